"""``backfield gradcheck``: gradients of any combination against central differences, on small random models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import numpy as np

    from backfield.graph import Potentials

#: Relative errors allowed: of exact derivatives, and of those that hold at convergence.
EXACT, CONVERGED = 1e-6, 1e-5
STEP = 2e-4


class Combination(NamedTuple):
    """What is checked, and how close it must come."""

    inference: str | None
    loss: str
    gradient: str | None
    tolerance: float


class Row(NamedTuple):
    """One line of the table: the worst relative error over ``models``."""

    inference: str | None
    loss: str
    gradient: str | None
    models: int
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the gradient is right; NaN is not."""
        return self.error <= self.tolerance


def gradcheck(
    inference: Annotated[str | None, typer.Option(help="One method, such as 'loopy_bp(n_iter=3)'; all by default.")] = None,
    loss: Annotated[str | None, typer.Option(help="One loss or objective; all by default.")] = None,
    gradient: Annotated[str | None, typer.Option(help="One gradient strategy, or 'direct'; all by default.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random models.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check gradients against central differences; exit code 1 if one is wrong."""
    import json
    import time

    start = time.perf_counter()
    combinations, left_out = plan(inference, loss, gradient)
    rows = list(_progress(combinations, seed))
    seconds = time.perf_counter() - start
    if as_json:
        shown = [row._asdict() | {"passed": row.passed} for row in rows]
        found = {"passed": all(row.passed for row in rows), "seconds": seconds, "left_out": left_out, "rows": shown}
        typer.echo(json.dumps(found))
    else:
        _print(rows, left_out, seconds)
    if not all(row.passed for row in rows):
        raise typer.Exit(1)


def plan(inference: str | None, loss: str | None, gradient: str | None) -> tuple[list[Combination], list[str]]:
    """Return the combinations that make sense, and the objectives left out for having no value to differentiate.

    Where none makes sense, the part that cannot do it says so.
    """
    from backfield.errors import InputError
    from backfield.objectives import get_objective, make_setting
    from backfield.registry import names

    found, left_out, refusals = [], [], []
    for name in [loss] if loss is not None else names("losses") + names("objectives"):
        if loss is None and (inference or gradient) and not get_objective(name).needs_inference:
            continue
        if not get_objective(name).integrable:
            left_out.append(name)
            continue
        for combination in _of_loss(name, inference, gradient):
            try:
                make_setting(get_objective(name), combination.inference, combination.gradient)
                found.append(combination)
            except InputError as error:
                refusals.append(error)
    if loss is not None and left_out:
        raise InputError(f"{loss} is a direction without an objective, which no difference can check.")
    if not found:
        raise refusals[0]
    return found, left_out


def _of_loss(loss: str, inference: str | None, gradient: str | None) -> Iterator[Combination]:
    from backfield.inference.base import ExactInference, IterativeInference
    from backfield.objectives import Marginal, get_objective
    from backfield.registry import get, names

    objective = get_objective(loss)
    if not objective.needs_inference:
        yield Combination(None, loss, gradient, EXACT)
        return
    strategies = ["truncated", *(name for name in names("gradients") if name != "truncated")]
    for method in [inference] if inference is not None else names("inference"):
        part = get("inference", method)
        if inference is None and not part.differentiable:
            continue
        exact = isinstance(part, ExactInference)
        known = ["direct"] if exact else strategies if isinstance(objective, Marginal) else ["direct", "truncated"]
        if inference is not None and isinstance(part, IterativeInference) and part.tol is None:
            known = ["truncated"]  # the others hold at convergence only
        for strategy in [gradient] if gradient is not None else known:
            at_convergence = not exact if strategy == "direct" else get("gradients", strategy).at_convergence
            spec = method
            if inference is None and isinstance(part, IterativeInference):
                spec = _spec(part, at_convergence)
            yield Combination(spec, loss, strategy, CONVERGED if at_convergence else EXACT)


def _spec(part: Any, at_convergence: bool) -> str:
    """Return a method with few sweeps, or with enough of them."""
    settings: dict[str, Any] = {"n_iter": 5000, "tol": 1e-13} if at_convergence else {"n_iter": 5}
    return repr(part.replace(**settings, **part.gentle))


def models(seed: int) -> Iterator[tuple[Potentials, np.ndarray]]:
    """Yield small models with labels: a grid and mixed arities with a hidden variable, a chain without."""
    import numpy as np

    from backfield.graph import Graph, Potentials

    graphs = [Graph.chain(4, labels=3), Graph.grid(3, 3), Graph([2, 3, 2, 2], [(0, 1), (1, 2, 3), (3, 0)])]
    for number, graph in enumerate(graphs):
        rng = np.random.default_rng([seed, number])
        unary = [0.5 * rng.normal(size=count) for count in graph.labels]
        tables = [0.5 * rng.normal(size=[graph.labels[i] for i in scope]) for scope in graph.factors]
        labels = rng.integers(0, graph.labels)
        labels[0] = -1 if number else labels[0]
        yield Potentials(graph, unary, tables), labels


def check(combination: Combination, seed: int = 0) -> Row:
    """Return the worst error of a combination over the models that it takes; refused where it takes none."""
    import warnings

    from backfield.errors import InputError

    errors, refusals = [], []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for theta, labels in models(seed):
            try:
                errors.append(relative_error(theta, labels, combination, seed))
            except InputError as error:  # not for graphs of this kind: chain, f_measure, ...
                refusals.append(error)
    for category, message in {warning.category: warning.message for warning in reversed(said)}.items():
        warnings.warn(str(message), category, stacklevel=2)
    if not errors:
        raise refusals[0]
    inference, loss, gradient, tolerance = combination
    return Row(inference, loss, gradient, len(errors), max(errors), tolerance)


def relative_error(theta: Potentials, labels: np.ndarray, combination: Combination, seed: int) -> float:
    """Compare a gradient with four-point central differences, half along itself and half in a random direction."""
    import numpy as np

    from backfield.api import value_and_gradient

    def at(vector: np.ndarray) -> tuple[float, Potentials]:
        return value_and_gradient(
            theta.like(vector),
            labels,
            loss=combination.loss,
            inference=combination.inference,
            gradient=combination.gradient,
            seed=seed,
        )

    start = theta.vector()
    value, d_theta = at(start)
    slope = d_theta.vector()
    direction = np.random.default_rng(seed).normal(size=len(start))
    direction /= np.linalg.norm(direction)
    direction += slope / max(float(np.linalg.norm(slope)), 1e-300)
    f = {k: at(start + k * STEP * direction)[0] for k in (-2, -1, 1, 2)}
    measured = (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * STEP)
    # Rounding hides derivatives much smaller than the value.
    return abs(measured - float(slope @ direction)) / max(abs(measured), 1e-5 * abs(value), 1e-12)


def _progress(combinations: list[Combination], seed: int) -> Iterator[Row]:
    from rich.console import Console
    from rich.progress import track

    from backfield.errors import InputError

    error = Console(stderr=True)
    for combination in track(combinations, "checking", console=error, transient=True, disable=not error.is_terminal):
        try:
            yield check(combination, seed)
        except InputError:
            if len(combinations) == 1:
                raise


def _print(rows: list[Row], left_out: list[str], seconds: float) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from backfield.cli._console import console

    out = console()
    table = Table(box=box.SIMPLE)
    for heading in ("inference", "loss", "gradient"):
        table.add_column(heading, overflow="fold")
    for heading in ("models", "relative error", "allowed", ""):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [row.inference or "-", row.loss, row.gradient or "its own", str(row.models)]
        verdict = "pass" if row.passed else "[bold red]FAIL[/]"
        table.add_row(*map(escape, cells), f"{row.error:.1e}", f"{row.tolerance:.0e}", verdict)
    out.print(table)
    if left_out:
        out.print(f"Left out, as directions without an objective: {', '.join(left_out)}.")
    failed = sum(not row.passed for row in rows)
    out.print(f"{len(rows)} combinations, {failed or 'none'} failed, {seconds:.3g} s")
