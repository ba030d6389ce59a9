"""``backfield infer``: marginals and log Z of a model in a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backfield.cli._models import Force

if TYPE_CHECKING:
    from backfield.inference import Result

MAX_ROWS = 40
MAX_LABELS = 8


class Dtype(StrEnum):
    """Types of numbers to compute in."""

    float64 = "float64"
    float32 = "float32"


def infer(
    file: Annotated[Path, typer.Argument(help="A model: .uai, .fg of libDAI, .bif or .xmlbif, each also .gz.")],
    evidence: Annotated[Path | None, typer.Option(help="Observed labels, in the UAI format.")] = None,
    inference: Annotated[
        str | None, typer.Option(help="The method, such as 'tree_reweighted(n_iter=50)'; exact by default.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Exact where it fits, else the best bounds in this time: auto(seconds=...).")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Precision of the computation.")] = Dtype.float64,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; log_partition is the natural log.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the marginals to this file, as UAI MAR.")] = None,
    force: Force = False,
) -> None:
    """Print the marginals and log Z of a model."""
    import backfield as bf
    from backfield.atomic import protecting
    from backfield.data.formats import read_evidence, write_mar
    from backfield.kernels.compiling import clock

    method = _method(inference, seconds)
    theta = bf.Model.read(file).theta
    observed = None if evidence is None else read_evidence(evidence, theta.graph.n_variables)
    start = clock()
    run = bf.infer(theta, method, observed=observed, dtype=dtype.value)
    taken = clock() - start
    if out is not None:
        with protecting(file, evidence, force=force):
            write_mar(run.unary, out)
    if as_json:
        _print_json(run, taken)
    else:
        _print_table(run, f"{file.name}, {method}", taken)


def _method(inference: str | None, seconds: float | None) -> str:
    """Return the spec of the method; a time alone asks for ``auto``."""
    from backfield.errors import InputError

    if seconds is None:
        return inference or "exact"
    if inference is not None:
        raise InputError("give --inference or --seconds, not both: --seconds 20 is --inference 'auto(seconds=20)'.")
    return f"auto(seconds={seconds})"


def _print_json(run: Result, seconds: float) -> None:
    import json

    typer.echo(
        json.dumps(
            {
                "log_partition": _finite(run.log_partition),
                "log_partition_error": _finite(run.log_partition_error),
                "bound": run.bound,
                "lower": _finite(run.lower),
                "upper": _finite(run.upper),
                "converged": run.converged,
                "n_iter": run.n_iter,
                "residual": _finite(run.residual),
                "seconds": seconds,
                "marginals": [row.tolist() for row in run.unary],
            },
            allow_nan=False,
        )
    )


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    import math

    return float(value) if math.isfinite(value) else None


def _print_table(run: Result, title: str, seconds: float) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console

    out = console()
    out.print(escape(title))
    table = Table("variable", "label", "marginals", box=box.SIMPLE)
    n = len(run.unary)
    for i in range(min(n, MAX_ROWS)):
        table.add_row(str(i), str(int(run.unary[i].argmax())), _row(run.unary[i]))
    out.print(table)
    if n > MAX_ROWS:
        out.print(f"... and {n - MAX_ROWS} more variables (--json or -o gives all)")
    relation = {"exact": "", "none": " (an estimate)", "bethe": " (Bethe)"}.get(run.bound, f" ({run.bound} bound)")
    if run.log_partition_error:
        relation = f" ± {run.log_partition_error:.2g}{relation}"
    state = "converged" if run.converged else "not converged"
    steps = f", {state} after {run.n_iter} iterations" if run.n_iter else ""
    out.print(f"log Z = {run.log_partition:.10g}{relation}{steps}, {seconds:.3g} s")
    if "known" in run.extra:
        out.print(run.extra["known"])


def _row(mu: Any) -> str:
    more = f" ... ({len(mu)} labels)" if len(mu) > MAX_LABELS else ""
    return " ".join(f"{p:.4f}" for p in mu[:MAX_LABELS]) + more
