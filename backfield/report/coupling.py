"""The table of learning x inference as a page and as a picture: errors as shades, times at the edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from backfield.atomic import replacing
from backfield.errors import InputError
from backfield.report.html import write_page


def _shade(error: float, low: float, high: float) -> float:
    """Return how dark a cell is: errors differ by factors, so shades follow their logarithm."""
    import math

    if high <= low:
        return 0.0
    floor = max(low, 1e-6)
    return min(1.0, max(0.0, math.log(max(error, floor) / floor) / max(math.log(max(high, floor) / floor), 1e-12)))


def _range(columns: Sequence[str], rows: Sequence[str], at: Mapping[tuple[str, str], Any]) -> tuple[float, float]:
    errors = [at[row, column].error for row in rows for column in columns if at[row, column].error is not None]
    return min(errors), max(errors)


def _is_best(row: str, column: str, rows: Sequence[str], at: Mapping[tuple[str, str], Any]) -> bool:
    errors = [at[other, column].error for other in rows if at[other, column].error is not None]
    return at[row, column].error is not None and at[row, column].error == min(errors)


def write_coupling_page(
    path: Path, title: str, about: str, rows: Sequence[str], columns: Sequence[str], at: Mapping[tuple[str, str], Any]
) -> None:
    """Write the table as a separate page; the best of each column is bold."""
    low, high = _range(columns, rows, at)
    head = "".join(f"<th class=n>{escape(column)}</th>" for column in columns)
    body = ""
    for row in rows:
        body += f"<tr><td>{escape(row)}</td>"
        for column in columns:
            cell = at[row, column]
            if cell.error is None:
                body += f'<td class=n title="{escape(cell.reason)}">–</td>'
                continue
            text = f"{100 * cell.error:.2f} %"
            text = f"<b>{text}</b>" if _is_best(row, column, rows, at) else text
            shade = f"rgba(200, 80, 40, {0.75 * _shade(cell.error, low, high):.2f})"
            body += f'<td class=n style="background: {shade}">{text}</td>'
        body += f"<td class=n>{at[row, columns[0]].learning_seconds:.1f}</td></tr>"
    body += "<tr><td>seconds to infer</td>"
    for column in columns:
        seconds = [at[row, column].inference_seconds for row in rows]
        body += f"<td class=n>{sum(seconds) / len(seconds):.2f}</td>"
    top = f"<tr><th></th>{head}<th class=n>seconds to learn</th></tr>"
    table = f"<div class=scroll><table>{top}{body}<td></td></tr></table></div>"
    reasons = list(dict.fromkeys(cell.reason for cell in at.values() if cell.reason))
    notes = "".join(f"<p class=note>{escape(reason)}</p>" for reason in reasons)
    lead = "Share of wrong labels; each row is a way to learn, each column a way to decode; the best of each column is bold."
    write_page(path, title, [about], [("Errors", table + notes, lead)])


def draw_coupling(path: Path, rows: Sequence[str], columns: Sequence[str], at: Mapping[tuple[str, str], Any]) -> None:
    """Draw the table as a picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise InputError("pictures need matplotlib: pip install 'backfield[plots]'.") from missing
    low, high = _range(columns, rows, at)
    figure = Figure(figsize=(3.2 + 1.5 * len(columns), 1.4 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    nan = float("nan")
    shades = [[nan if (e := at[row, c].error) is None else _shade(e, low, high) for c in columns] for row in rows]
    axes.imshow(shades, cmap="OrRd", vmin=0, vmax=1.6, aspect="auto")
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            error = at[row, column].error
            weight = "bold" if _is_best(row, column, rows, at) else "normal"
            axes.text(j, i, "–" if error is None else f"{100 * error:.2f}", ha="center", va="center", weight=weight)
    seconds = [sum(at[row, column].inference_seconds for row in rows) / len(rows) for column in columns]
    axes.set_xticks(
        range(len(columns)), [f"{_short(c)}\n{s:.2g} s" for c, s in zip(columns, seconds, strict=True)], fontsize=8
    )
    names = [f"{_short(row)}  {at[row, columns[0]].learning_seconds:.3g} s" for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_xlabel("decoded by (mean seconds)")
    axes.set_ylabel("learned by (seconds)")
    axes.set_title("errors in per cent", fontsize=10)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=90, metadata={"Software": None})


def _short(spec: str) -> str:
    return spec if len(spec) <= 34 else spec[:31] + "..."
