"""Perturb-and-MAP ([S18] §2): marginals by counting the maximisers of potentials with Gumbel noise on every label.

    A_G = E_z max_y ( theta·f(y) + sum_i z_i(y_i) ) >= log Z        [S18] Prop. 1, tight for separable models

with independent zero-mean Gumbel z. Cost: ``n_samples`` MAP problems, on binary submodular models one cut that is solved
again dynamically.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import one_hot
from backfield.inference.base import Inference, Result
from backfield.map_solvers.auto import solve
from backfield.map_solvers.graph_cut import CutProblem, GraphCut
from backfield.registry import get


@dataclass(frozen=True, repr=False)
class PerturbAndMap(Inference, name="perturb_and_map"):
    """Count maximisers over ``n_samples`` draws of Gumbel noise.

    ``log_partition`` is an estimate of A_G, ``log_partition_error`` its standard error. A_G is an upper bound of log Z where
    the ``solver`` is exact (``auto`` takes the best one for the model); the estimate may lie below log Z, so no bound is
    claimed, and ``extra["expectation"]`` says what A_G is.
    """

    n_samples: int = 100
    seed: int = 0
    solver: str = "auto"

    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.n_samples, bool) or not isinstance(self.n_samples, int) or self.n_samples < 1:
            raise InputError(f"perturb_and_map: n_samples must be an integer >= 1, received {self.n_samples!r}.")
        if self.solver != "auto":
            get("map_solvers", self.solver)

    def infer(self, theta: Potentials) -> Result:
        """Return counted marginals and the estimate of A_G."""
        maximise = maximiser(theta, self.solver)
        total = np.zeros(len(theta.vector()))
        values = np.empty(self.n_samples)
        optimal = True
        for m in range(self.n_samples):
            noise = gumbel(theta, self.seed, m)
            labels, values[m], exact = maximise(noise)
            optimal &= exact
            unary, factors = one_hot(theta.graph, labels)
            total += np.concatenate([unary, factors])
        error = float(values.std(ddof=1) / np.sqrt(self.n_samples)) if self.n_samples > 1 else float("inf")
        return Result(
            marginals=theta.like((total / self.n_samples).astype(theta.dtype)),
            log_partition=float(values.mean()),
            bound="none",
            n_iter=self.n_samples,
            log_partition_error=error,
            extra={"expectation": "an upper bound of log Z" if optimal else "no bound: a maximum was approximate"},
        )


def gumbel(theta: Potentials, seed: int | tuple[int, ...], sample: int) -> np.ndarray:
    """Return zero-mean Gumbel noise, flat as the unary tables; a function of seed and sample alone.

    A union of graphs may have one seed for each: its noise is then theirs.
    """
    if not isinstance(seed, tuple):
        return gumbel_numbers(len(theta.unary_flat), seed, sample)
    graph = theta.graph
    assert graph.parts is not None
    sizes = np.diff(graph.layout.var_ptr[graph.parts])
    return np.concatenate([gumbel_numbers(size, each, sample) for size, each in zip(sizes, seed, strict=True)])


def gumbel_numbers(size: int, seed: int, sample: int) -> np.ndarray:
    """Return so many independent zero-mean Gumbel numbers."""
    rng = np.random.default_rng((abs(int(seed)), sample))
    return rng.gumbel(size=size) - np.euler_gamma


def maximiser(theta: Potentials, solver: str = "auto") -> Any:
    """Return a function noise -> (labels, max of theta + noise, whether it is the maximum)."""
    graph = theta.graph
    cut = theta.has_tables_only if solver == "auto" else isinstance(get("map_solvers", solver), GraphCut)
    if cut and graph.is_pairwise and graph.n_labels == 2 and graph.n_factors:
        truncate = solver != "auto" and get("map_solvers", solver).truncate
        try:
            problem = CutProblem(theta.astype(np.float64), truncate=truncate)
        except InputError:
            if solver != "auto":
                raise
        else:
            return lambda noise: _by_cut(problem, theta, noise)

    def general(noise: np.ndarray) -> tuple[np.ndarray, float, bool]:
        moved = theta.with_unary(theta.unary_flat + noise)
        found = solve(moved, solver)
        return found.labels, found.value, found.optimal

    return general


def _by_cut(problem: CutProblem, theta: Potentials, noise: np.ndarray) -> tuple[np.ndarray, float, bool]:
    problem.set_unary((theta.unary_flat + noise).reshape(-1, 2))
    found = problem.solve()
    return found.labels, found.value, found.optimal
