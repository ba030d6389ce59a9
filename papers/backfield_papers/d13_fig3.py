"""[D13] Figure 3: the error of 1-, 2- and 4-sided perturbation against the multiplier m of its step, for TRW and MNF.

Random 10x10 binary grids: theta(x_i) standard normal, theta(x_i, x_j) normal with standard deviation s, random labels,
double precision, inference run until marginals change by less than 1e-15. Two effects: numerical errors where the step is
too small, approximation errors where it is too large.

# Differs from [D13]: it takes two-sided differences of the loss, component by component, for the true gradient; these
# stop at some 1e-10 themselves. Here it is truncated back-propagation through the same converged runs, compared with such
# differences in the rows "check". The loss (univariate logistic), s and the number of models are not in its text.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from backfield.api import value_and_gradient
from backfield.errors import ConvergenceWarning
from backfield.graph import Graph, Potentials
from backfield_papers._base import Context, Outcome, experiment, figure, save

LOSS, SIDES, SEED = "univariate_logistic", (1, 2, 4), 0
METHODS = {"TRW": "tree_reweighted(n_iter={n}, rho=0.5, tol=1e-15)", "MNF": "mean_field(n_iter={n}, tol=1e-15)"}


@experiment("d13-fig3", "Error of 1-, 2- and 4-sided perturbation against the multiplier")
def run(context: Context) -> Outcome:
    """Measure relative errors of gradients over random models."""
    side, count, n_iter = (5, 1, 500) if context.quick else (10, 10, 2000)
    powers = np.arange(-4, 4.1) if context.quick else np.arange(-5, 5.1, 0.5)
    multipliers = [float(f"{10**power:.3g}") for power in powers]
    couplings = [1.0] if context.quick else [0.3, 1.0, 3.0]
    found: dict[tuple[str, float, int, float], list[float]] = {}
    checks: dict[tuple[str, float], list[float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 1e-15 is where rounding may keep the marginals moving
        for method, spec in METHODS.items():
            for s in couplings:
                for number in range(count):
                    context.progress(f"{method}, s = {s:g}, model {number + 1} of {count}")
                    theta, labels = _model(side, s, number)
                    inference = spec.format(n=n_iter)
                    _, exact = value_and_gradient(theta, labels, loss=LOSS, inference=inference, gradient="truncated")
                    if number == 0:
                        checks[method, s] = _differences(theta, labels, inference, exact, 20 if context.quick else None)
                    for sides in SIDES:
                        for m in multipliers:
                            value = _error(theta, labels, inference, sides, m, exact)
                            found.setdefault((method, s, sides, m), []).append(value)
    rows = [_row(key, values) for key, values in found.items()] + _summary(found, couplings)
    rows += [
        {"inference": method, "s": s, "what": "check: truncated against differences", "paper": None, "ours": max(values)}
        for (method, s), values in checks.items()
    ]
    chosen = {"grid": [side, side], "models": count, "s": couplings, "loss": LOSS, "inference": METHODS, "n_iter": n_iter}
    chosen |= {"multipliers": multipliers, "seeds": [[SEED, number] for number in range(count)]}
    return Outcome(chosen, rows, {"d13-fig3.png": lambda path: _draw(path, found, couplings, multipliers)})


def _model(side: int, s: float, number: int) -> tuple[Potentials, np.ndarray]:
    rng = np.random.default_rng([SEED, number])
    graph = Graph.grid(side, side)
    unary, tables = rng.normal(size=(graph.n_variables, 2)), rng.normal(size=(graph.n_factors, 2, 2))
    return Potentials(graph, unary, s * tables), rng.integers(0, 2, size=graph.n_variables)


def _error(theta: Potentials, labels: np.ndarray, inference: str, sides: int, multiplier: float, exact: Potentials) -> float:
    """Return |g - exact| / |exact|."""
    gradient = f"perturbation(sides={sides}, multiplier={multiplier!r})"
    _, d_theta = value_and_gradient(theta, labels, loss=LOSS, inference=inference, gradient=gradient)
    wanted = exact.vector()
    return float(np.linalg.norm(d_theta.vector() - wanted) / np.linalg.norm(wanted))


def _differences(theta: Potentials, labels: np.ndarray, inference: str, exact: Potentials, count: int | None) -> list[float]:
    """Compare components with two-sided differences of the loss: errors relative to the largest component."""
    start, wanted, step = theta.vector(), exact.vector(), 1e-5
    which = np.arange(len(start)) if count is None else np.random.default_rng(SEED).choice(len(start), count, False)
    errors = []
    for k in which:
        value = []
        for sign in (1, -1):
            moved = start.copy()
            moved[k] += sign * step
            value.append(value_and_gradient(theta.like(moved), labels, loss=LOSS, inference=inference)[0])
        errors.append(abs((value[0] - value[1]) / (2 * step) - wanted[k]) / float(np.abs(wanted).max()))
    return errors


def _row(key: tuple[str, float, int, float], values: list[float]) -> dict[str, Any]:
    method, s, sides, m = key
    head = {"inference": method, "s": s, "sides": sides, "multiplier": m, "what": "relative error"}
    return {**head, "paper": None, "ours": _mean(values)}


def _summary(found: dict[tuple[str, float, int, float], list[float]], couplings: list[float]) -> list[dict[str, Any]]:
    """Return the best multiplier and its error for each number of sides: more sides are better, at larger steps."""
    rows = []
    for method in METHODS:
        for s in couplings:
            for sides in SIDES:
                curve = {key[3]: _mean(values) for key, values in found.items() if key[:3] == (method, s, sides)}
                best = min(curve, key=lambda m: curve[m])
                head = {"inference": method, "s": s, "sides": sides, "multiplier": best, "what": "best multiplier"}
                paper = {1: "worst", 2: "chosen, with m = 1", 4: "best"}[sides]
                rows.append({**head, "paper": paper, "ours": curve[best]})
    return rows


def _mean(values: list[float]) -> float:
    """Geometric mean: errors span many orders of magnitude."""
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-18)))))


def _draw(
    path: Path, found: dict[tuple[str, float, int, float], list[float]], couplings: list[float], multipliers: list[float]
) -> None:
    made, axes = figure(len(METHODS), len(couplings))
    for row, method in zip(axes, METHODS, strict=True):
        for axis, s in zip(row, couplings, strict=True):
            for sides in SIDES:
                curve = [_mean(found[method, s, sides, m]) for m in multipliers]
                axis.loglog(multipliers, curve, "o-", markersize=2, label=f"{sides}-sided")
            axis.set(title=f"{method}, s = {s:g}", xlabel="multiplier m", ylabel="relative error")
            axis.sharey(axes[0, 0])
    axes[0, 0].legend(fontsize=7)
    save(made, path)
