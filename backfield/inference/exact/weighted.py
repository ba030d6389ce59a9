"""Elimination with a weight for each variable: sums, maxima, and the power sums in between.

    value = W_{v_n} ... W_{v_1} theta(x),      W_v f = w_v log sum_{x_v} exp(f / w_v)   (w_v = 0: max over x_v)

in the order of elimination. All weights 1: log Z; all 0: the value of the MAP labels; 1 before 0: marginal MAP. From the
tables that the way up leaves, the way down gives marginals (the gradient of the value), the best labels, or exact
samples. Cost and memory: the tables of all variables, each kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph
from backfield.inference.exact.elimination import Elimination, TooLargeError, eliminate
from backfield.inference.exact.junction_tree import JunctionTree, free_scopes
from backfield.inference.exact.table_kernels import run_down_weighted, run_up_weighted, walk_down
from backfield.inference.exact.table_memory import Plan

#: Bytes that the tables may take where nothing else is said.
MEMORY = 2 * 2**30


class WeightedElimination:
    """The compiled elimination of a graph's variables in one order.

    Parameters
    ----------
    graph : Graph
    order : Elimination, optional
        An order of the variables with more than one label, by their places among them.
    last : sequence of int
        Without ``order``: variables (of the graph) that are eliminated after all others.
    memory : int
        Bytes that the tables may take; an order that needs more is refused before anything is computed.
    """

    def __init__(
        self, graph: Graph, order: Elimination | None = None, last: np.ndarray | None = None, memory: int = MEMORY
    ) -> None:
        self.graph = graph
        if order is None:
            order = _order(graph, np.zeros(0, dtype=np.int64) if last is None else last, memory)
        if order.entries * 8 > memory:
            raise _refusal(order.entries, memory)
        self.tree = JunctionTree(graph, order, merge=False)
        self.n_cliques = len(self.tree.cliques)
        self.entries = order.entries
        self.owner = self.tree.free[np.array([clique.own[0] for clique in self.tree.cliques], dtype=np.int64)]
        if self.n_cliques:
            self.plan = Plan(self.tree, [0, self.n_cliques])
            self.program = self.plan.program()
            if self.program.size * 8 > memory:
                raise _refusal(self.program.size, memory)

    def forward(self, theta: np.ndarray, weights: np.ndarray) -> Forward:
        """Eliminate all variables.

        Parameters
        ----------
        theta : (unary + factor entries,) float64, as by ``Potentials.vector``
        weights : (n,) of the variables, >= 0
        """
        value = float(theta[self.tree.constants].sum())
        if not self.n_cliques:
            return Forward(self, value, theta.copy())
        values = np.empty(self.program.size)
        values[: len(theta)] = theta
        run_up_weighted(self.program.code, self.program.places, weights[self.owner].astype(np.float64), values)
        return Forward(self, value + float(values[self.program.roots].sum()), values)

    @cached_property
    def walk(self) -> tuple[np.ndarray, ...]:
        """For each clique: its variable, table and label count, and the variables and strides of its separator."""
        cliques = self.tree.cliques
        variable = {axis: int(self.owner[k]) for k, axis in enumerate(clique.table.axes[-1] for clique in cliques)}
        ptr = np.cumsum([0] + [len(clique.message.axes) for clique in cliques])
        sep = np.array([variable[axis] for clique in cliques for axis in clique.message.axes], dtype=np.int64)
        stride = np.array([s for clique in cliques for s in clique.message.strides], dtype=np.int64)
        table = np.array([self.plan.address[clique.table.number] for clique in cliques], dtype=np.int64)
        return self.owner, table, self.graph.labels[self.owner], ptr, sep, stride


@dataclass
class Forward:
    """The value of one elimination, and what can be read off its tables; marginals overwrite them and come last."""

    elimination: WeightedElimination
    value: float
    values: np.ndarray

    def labels(self) -> np.ndarray:
        """Return (n,) labels: at each variable the first that reaches half of q, which is the maximum where w = 0."""
        return self._walk(np.full((1, self.elimination.n_cliques), 0.5))[0]

    def samples(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Return (N, n) labels drawn from the model; exact where all weights are 1."""
        return self._walk(rng.random((n, self.elimination.n_cliques)))

    def _walk(self, uniform: np.ndarray) -> np.ndarray:
        labels = np.zeros((len(uniform), self.elimination.graph.n_variables), dtype=np.int64)
        if self.elimination.n_cliques:
            walk_down(*self.elimination.walk, self.values, uniform, labels)
        return labels

    def marginals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return d value / d theta, as theta is laid out, and H(x_v | later ones) of each variable (= d value / d w)."""
        elimination = self.elimination
        n_theta = elimination.tree.n_theta
        entropy = np.zeros(elimination.graph.n_variables)
        if elimination.n_cliques:
            self.values[elimination.program.roots] = 1
            part = np.empty(elimination.n_cliques)
            run_down_weighted(elimination.program.code, elimination.program.places, self.values, part)
            entropy[elimination.owner] = part
        out = self.values[:n_theta].copy()
        out[elimination.tree.constants] = 1
        return out, entropy


def _order(graph: Graph, last: np.ndarray, memory: int) -> Elimination:
    labels, scopes = free_scopes(graph)
    if not labels:
        nothing = np.zeros(0, dtype=np.int64)
        return Elimination(nothing, nothing, nothing, 0, 0)
    after = np.flatnonzero(np.isin(np.flatnonzero(graph.labels > 1), last)).tolist()
    try:
        return eliminate(labels, scopes, after if len(after) < len(labels) else ())
    except TooLargeError as error:
        raise _refusal(error.entries, memory) from error


def _refusal(entries: int, memory: int) -> InputError:
    return InputError(f"exact elimination needs {entries:,} entries ({entries * 8:,} bytes), but memory={memory:,} bytes.")
