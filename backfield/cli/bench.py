"""``backfield bench``: nanoseconds per message of every algorithm, kernel family and type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench(
    cases: Annotated[
        list[str] | None, typer.Argument(help="messages, labels, gradient, threads, scaling, startup; all without one.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="Folder with the C kernels (limit, limit_bp, limit_bp32) and their models: print ratios."),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Fewer and smaller runs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure speed, memory and start-up; ratios to hand-written C in the same run with --reference."""
    import json

    from rich.console import Console
    from rich.table import Table

    from backfield.experiments import bench as measured

    rows = []
    table = Table("case", "workload", "algorithm", "family", "type", "labels", "figure", "C", "ratio", "bar")
    for row in measured.run(cases or [], reference, quick):
        rows.append(row)
        table.add_row(*_cells(row))
    if as_json:
        typer.echo(json.dumps({"machine": measured.machine(), "rows": rows}, indent=1))
    else:
        Console().print(table)


def _cells(row: dict[str, object]) -> list[str]:
    figures = [("ns", "ns"), ("over_forward", "x forward"), ("peak_MB", "MB"), ("import_s", "s import"), ("fit_s", "s fit")]
    shown = ", ".join(f"{row[key]:.3g} {unit}" for key, unit in figures if key in row)
    ends = [f"{row[key]:.3g}" if key in row else "" for key in ("C_ns", "ratio", "bar")]
    middle = [str(row.get(key, "")) for key in ("case", "workload", "algorithm", "family", "dtype", "labels")]
    return [*middle, shown, *ends]
