"""``backfield bench``: nanoseconds per message of every algorithm, kernel family and type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

#: What a row is about.
KEYS = ("workload", "algorithm", "family", "dtype", "labels", "threads")


def bench(
    cases: Annotated[
        list[str] | None, typer.Argument(help="messages, labels, gradient, threads, scaling, startup; all without one.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="Folder with the C kernels (limit, limit_bp, limit_bp32) and their models: print ratios."),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Checkout or git tag of an old version: measure it beside this one, print ratios.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of measurements per row with --against.")] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller runs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the JSON there.")] = None,
) -> None:
    """Measure speed, memory and start-up; ratios to C (--reference) or to an old version (--against) in one run."""
    import json

    from backfield.errors import InputError
    from backfield_benchmarks import bench as measured

    if against is not None and reference is not None:
        raise InputError("--against and --reference are two different runs; give one of them.")
    if against is not None:
        rows = list(_beside(cases or [], against, pairs, quick))
    else:
        rows = measured.run(cases or [], reference, quick)
    report = {"machine": measured.machine(), "rows": [_plain(row) for row in rows]}
    text = json.dumps(report, indent=1, allow_nan=False)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")
    if as_json:
        typer.echo(text)
    elif against is not None:
        _print_ratios(rows)
    else:
        _print(rows)


def _beside(cases: list[str], against: str, pairs: int, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of both versions, each shown on standard error as it comes: all take many minutes."""
    from backfield_benchmarks.against import run

    for row in run(cases, against, pairs, quick):
        name = ", ".join(str(row[key]) for key in ("case", *KEYS) if key in row)
        typer.echo(f"{name}: {row.get('error') or format(row['ratio'], '.3f')}", err=True)
        yield row


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity, and four digits are more than a machine repeats."""
    import math

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        if not isinstance(value, float):
            return value
        return float(f"{value:.4g}") if math.isfinite(value) else None

    return {key: plain(value) for key, value in row.items()}


def _print(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console

    out = console()
    for case in dict.fromkeys(row["case"] for row in rows):
        table = Table(title=case, box=box.SIMPLE, title_justify="left")
        for heading in ("workload", "algorithm", "family", "type", "labels"):
            table.add_column(heading)
        for heading in ("measured", "compile or load", "ratio", "bar"):
            table.add_column(heading, justify="right")
        for row in (row for row in rows if row["case"] == case):
            table.add_row(*map(escape, _cells(row)))
        out.print(table)
    held = [row for row in rows if _bar(row)]
    missed = sum(row["ratio"] > row["bar"] for row in held)
    out.print(f"{len(held) - missed} of {len(held)} bars reached")


def _print_ratios(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console

    table = Table("case", *KEYS, box=box.SIMPLE)
    for heading in ("old", "new", "", "new / old", ""):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*map(escape, _ratio_cells(row)))
    console().print(table)
    slower = sum("error" in row or row["ratio"] > row["bar"] for row in rows)
    console().print(f"{slower} of {len(rows)} rows are slower than {rows[0].get('bar', 1.05):g} x, or failed")


def _ratio_cells(row: dict[str, Any]) -> list[str]:
    named = [str(row.get(key, "")) for key in ("case", *KEYS)]
    if "error" in row:
        return [*named, "", "", "", "", row["error"]]
    mark = "SLOWER" if row["ratio"] > row["bar"] else ""
    return [*named, f"{row['old']:.3g}", f"{row['new']:.3g}", row["unit"], f"{row['ratio']:.3f}", mark]


def _cells(row: dict[str, Any]) -> list[str]:
    figures = [("ns", "ns / {unit}"), ("total_ms", "ms"), ("over_forward", "x forward"), ("peak_MB", "MB"),
               ("processor_s", "s of processor time"), ("threads", "threads")]  # fmt: skip
    shown = ", ".join(f"{row[key]:.3g} {unit.format(**row)}" for key, unit in figures if key in row)
    compiled = f"{row['compile_s']:.2g} s" if "compile_s" in row else ""
    ratio = f"{row['ratio']:.2f} {row['versus']}" if "ratio" in row else ""
    bar = f"{row['bar']:g} {'reached' if row['ratio'] <= row['bar'] else 'MISSED'}" if _bar(row) else ""
    dtype = row["dtype"]
    if row.get("computed_in", dtype) != dtype:
        dtype = f"{dtype} in {row['computed_in']}"
    return [row["workload"], row["algorithm"], row["family"], dtype, str(row["labels"]), shown, compiled, ratio, bar]


def _bar(row: dict[str, Any]) -> bool:
    return row.get("bar", float("inf")) < float("inf")
