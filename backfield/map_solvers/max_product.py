"""Loopy max-product belief propagation on any graph.

The messages are those of ``_messages``; after every iteration they are decoded, and the best labels seen are kept and
at the end improved by iterated conditional modes. On graphs without cycles the answer is Viterbi's, which is exact.

Cost O(degree · L + table) per message and iteration; memory O(messages).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.map_solvers import _messages
from backfield.map_solvers._order import message_order, order_of
from backfield.map_solvers.base import MapResult, MapSolver
from backfield.map_solvers.icm import icm, unary_argmax
from backfield.map_solvers.viterbi import Viterbi

SCHEDULES = ("auto", "sequential", "flooding")


@dataclass(frozen=True, repr=False)
class MaxProduct(MapSolver, name="max_product"):
    """Max-product belief propagation; exact on graphs without cycles.

    Parameters
    ----------
    n_iter : int
        Iterations at the most; one updates every directed message once.
    tol : float
        Stop when no log message changes by more.
    damping : float
        Share of the old log message that is kept.
    schedule : {"auto", "sequential", "flooding"}
        ``sequential`` (= ``auto``): leaves to roots of a breadth-first search, then back; ``flooding``: all at once.
    """

    n_iter: int = 100
    tol: float = 1e-9
    damping: float = 0.0
    schedule: str = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.n_iter, bool) or not isinstance(self.n_iter, int) or self.n_iter < 0:
            raise InputError(f"max_product: n_iter must be an integer >= 0, received {self.n_iter!r}.")
        if not (isinstance(self.tol, int | float) and 0 < self.tol < np.inf):
            raise InputError(f"max_product: tol must be a positive number, received {self.tol!r}.")
        if not (isinstance(self.damping, int | float) and 0 <= self.damping < 1):
            raise InputError(f"max_product: damping must be in [0, 1), received {self.damping!r}.")
        check_choice("schedule", self.schedule, SCHEDULES, "max_product")

    def solve(self, theta: Potentials) -> MapResult:
        """Return the best labels seen; ``optimal`` only on graphs without cycles."""
        if order_of(theta.graph).acyclic:
            return Viterbi().solve(theta)
        labels, n_iter = self._iterate(theta.astype(np.float64))
        best = icm(theta, labels)
        return MapResult(best.labels, best.value, optimal=False, n_iter=n_iter)

    def _iterate(self, theta: Potentials) -> tuple[np.ndarray, int]:
        graph, layout, tables = theta.graph, theta.graph.layout, (theta.unary_flat, theta.factors_flat)
        messages, variables = message_order(graph), order_of(graph).variables
        state = np.zeros(int(layout.msg_ptr[-1]))
        labels = np.empty(graph.n_variables, dtype=np.int64)
        best = unary_argmax(theta)
        value, t = theta.score(best), 0
        for t in range(1, self.n_iter + 1):
            flooding = self.schedule == "flooding"
            backward = not flooding and t % 2 == 0
            source = state.copy() if flooding else state
            change, slot = _messages.send(layout, messages, backward, *tables, float(self.damping), source, state)
            if slot >= 0:
                raise _messages.impossible(int(layout.scope[slot]))
            _messages.decode(layout, variables, *tables, state, labels)
            if theta.score(labels) > value:
                best, value = labels.copy(), theta.score(labels)
            if change < self.tol:
                break
        return best, t
