"""Entropy-smoothed LP relaxation by block-coordinate descent on its dual, star by star: [L13] §5, eq. (7)-(10).

    A(theta) = max_{mu in local polytope} theta·mu + eps sum_alpha H(mu_alpha)  =  min_lambda A(lambda, theta)
    A(lambda, theta) = sum_alpha eps log sum_{y_alpha} exp( (theta(y_alpha) + sum_{beta in alpha} lambda_alpha(y_beta)
                                                             - sum_{gamma containing alpha} lambda_gamma(y_alpha)) / eps )

Regions alpha are the variables and the factors; every factor sends one message lambda to each of its variables and, with
``regions="nested"``, to each factor that it strictly contains, as in [L13]. The terms of the sum are the log-normalisers of
the marginals mu_alpha (eq. 9). The dual bounds A(theta) from above, which bounds max theta·mu over the local polytope from
above, by eps sum_alpha log |y_alpha| at the most (Theorem 1), and eps log Z(theta / eps). It bounds log Z itself only for
eps >= 1.

Cost of a sweep: one log-sum-exp over the table for each message of each factor; memory: one number for each label of
each slot, and for each configuration of each factor in a factor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference import schedule as schedules
from backfield.inference.base import IterativeInference, Piece, check_iterations
from backfield.inference.smoothed_lp.engine import CHOICES, SmoothedEngine, Stars
from backfield.inference.smoothed_lp.engine import biases as biases
from backfield.inference.smoothed_lp.general import GeneralEngine
from backfield.inference.smoothed_lp.lattice import SmoothedLattice
from backfield.inference.smoothed_lp.nested import NestedEngine, nested_biases
from backfield.inference.smoothed_lp.pairwise import PairwiseEngine
from backfield.inference.smoothed_lp.regions import Nesting, nesting

SCHEDULES = ("auto", "sequential", "lattice")
FAMILIES = ("auto", "lattice", "pairwise", "general")
REGIONS = ("variables", "nested")
_ENGINES: dict[str, type[SmoothedEngine]] = {
    "lattice": SmoothedLattice,
    "pairwise": PairwiseEngine,
    "general": GeneralEngine,
}


@dataclass(frozen=True, repr=False)
class SmoothedLP(IterativeInference, name="smoothed_lp"):
    """The smoothed LP on any graph: ``log_partition`` is the dual, which no iteration raises.

    Parameters
    ----------
    n_iter : int
        Iterations; one updates every star once, a star being all messages to one variable.
    eps : float
        Weight of the entropies.
    tol : float, optional
        Stop when no univariate marginal changes by more; without it exactly ``n_iter`` iterations are done.
    choice : {"cyclic", "random", "greedy"}
        Which star comes next: as ``schedule`` says; in a new random order for each iteration; or, n times in an
        iteration, the one that lowers the dual most, which may leave stars out and take others twice.
    seed : int
        Of the random orders.
    schedule : {"auto", "sequential", "lattice"}
        The cycle: ``auto`` is ``lattice`` (red stars, then black ones) on grids and else ``sequential`` (variables in
        their order, forward and backward in turn).
    family : {"auto", "lattice", "pairwise", "general"}
        The kernel family: ``lattice`` for binary grids, ``pairwise`` for factors of two variables and one label count,
        both for finite real potentials; all give the same numbers in the same order.
    regions : {"variables", "nested"}
        What the marginals of a factor must agree with: those of its variables, or also those of the factors that it
        strictly contains (a triple with its pairs), which is tighter. Under ``nested`` a star is all messages to one
        variable or contained factor, by size in the cycle; where no factor contains another one it changes nothing.

    Notes
    -----
    To keep messages from one theta to the next, run the engine: ``state = engine.init()`` or, from kept ones,
    ``engine.state_of(messages)``; ``method.iterate(engine, state)``; ``messages = engine.messages(state)``.
    """

    n_iter: int = 25
    eps: float = 0.1
    tol: float | None = None
    choice: str = "cyclic"
    seed: int = 0
    schedule: str = "auto"
    family: str = "auto"
    regions: str = "variables"

    gentle: ClassVar[dict[str, Any]] = {"eps": 0.5}
    symmetric: ClassVar[bool] = True
    #: Star updates never raise the dual as they are: there is nothing to damp.
    damping: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        check_iterations(self)
        if isinstance(self.eps, bool) or not isinstance(self.eps, int | float) or not 0 < self.eps < np.inf:
            raise InputError(f"smoothed_lp: eps must be a positive number, received {self.eps!r}.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"smoothed_lp: seed must be an integer >= 0, received {self.seed!r}.")
        choices = {"choice": CHOICES, "schedule": SCHEDULES, "family": FAMILIES, "regions": REGIONS}
        for what, known in choices.items():
            if getattr(self, what) not in known:
                raise InputError(f"smoothed_lp: {what} must be one of {', '.join(known)}; received {getattr(self, what)!r}.")

    @property
    def separable(self) -> bool:
        """Where parts do not decide together when to stop, nor which star comes next."""
        return self.tol is None and self.choice == "cyclic"

    def bound_for(self, graph: Graph) -> str:
        """Return 'upper' for eps >= 1: then the entropies of the regions together are no less than that of the field."""
        return "upper" if self.eps >= 1 else "none"

    def phases(self, graph: Graph) -> int | None:
        """Return over how many edges one sweep carries information."""
        return schedules.phases(graph, schedules.resolve(graph, self.schedule)) if self.choice == "cyclic" else None

    def piece(self, theta: Potentials, rung: int) -> Piece:
        """Return the marginals of a piece: rung 0 with the kernels of its graph, 1 with those for all numbers."""
        method = replace(self, family="general") if rung else self
        return Piece(method.beliefs(theta), theta.magnitude())

    def enough(self, rung: int, demand: np.ndarray, dtype: Any) -> bool:
        """Whether sums of a field with this demand stay finite."""
        return rung == 1 or demand.max(initial=0) < self._limit(dtype)

    def engine(self, theta: Potentials) -> SmoothedEngine:
        """Bind to ``theta`` with the fastest kernels that can do it: the one place of this choice."""
        graph, family = theta.graph, self.family
        name = schedules.resolve(graph, self.schedule)
        nested = self._nesting(graph)
        if nested is not None:
            return self._nested_engine(theta, Stars(graph, self.choice, name, self.seed), nested)
        if family == "auto":
            family = next(known for known in _ENGINES if not self._refusal(known, theta, name))
        elif self._refusal(family, theta, name):
            raise InputError(
                f"family={family!r} of smoothed_lp needs {self._refusal(family, theta, name)}; use family='auto'."
            )
        if family == "general" and theta.dtype == np.float32:
            theta = theta.astype(np.float64)  # theta / eps in single precision has no digits to spare
        return _ENGINES[family](theta, self.eps, Stars(graph, self.choice, name, self.seed))

    def biases(self, graph: Graph, messages: np.ndarray, delta: Potentials | None = None) -> Potentials:
        """Return the biases that messages of this method put on each region ([L13] eq. (14)); see :func:`biases`."""
        nested = self._nesting(graph)
        if nested is None:
            return biases(graph, messages, self.eps, delta)
        return nested_biases(graph, nested, messages, self.eps, delta)

    def n_messages(self, graph: Graph) -> int:
        """Return how many numbers the messages of a graph are."""
        nested = self._nesting(graph)
        return int((graph.layout if nested is None else nested.links).msg_ptr[-1])

    def _nesting(self, graph: Graph) -> Nesting | None:
        """Return the regions, where factors exchange messages with factors."""
        return nesting(graph) if self.regions == "nested" else None

    def _nested_engine(self, theta: Potentials, stars: Stars, nested: Nesting) -> NestedEngine:
        if self.family in ("lattice", "pairwise"):
            raise InputError(
                f"family={self.family!r} of smoothed_lp has messages to variables alone, and factors of this graph contain "
                "others; use family='auto', or regions='variables'."
            )
        if self.choice == "greedy":
            raise InputError(
                "choice='greedy' of smoothed_lp ranks messages to variables only, and factors of this graph contain "
                "others; use choice='cyclic' or 'random', or regions='variables'."
            )
        # Single precision has no digits to spare for theta / eps.
        return NestedEngine(theta.astype(np.float64) if theta.dtype == np.float32 else theta, self.eps, stars, nested)

    def _refusal(self, family: str, theta: Potentials, schedule: str) -> str:
        """Return what a family lacks to run this method on theta; empty where nothing."""
        if family == "general":
            return ""
        graph = theta.graph
        if theta.dtype.kind == "c" or not theta.magnitude().max() < self._limit(theta.dtype):
            return "finite real potentials"
        if family == "pairwise" and not (graph.is_pairwise and graph.n_factors and self.choice != "greedy"):
            return "factors of two variables, one label count, and a choice other than greedy"
        is_lattice = schedule == "lattice" and graph.image_shape is not None and graph.n_labels == 2
        if family == "lattice" and not (is_lattice and self.choice == "cyclic"):
            return "a binary 4-connected grid (Graph.grid) in the lattice schedule and choice='cyclic'"
        return ""

    def _limit(self, dtype: Any) -> float:
        """Return how large potentials may be for kernels that multiply probabilities."""
        return float(np.sqrt(np.finfo(dtype).max)) * min(self.eps, 1)
