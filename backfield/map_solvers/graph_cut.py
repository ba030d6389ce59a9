"""Exact MAP of binary submodular pairwise models by minimum cuts, and dynamic cuts while the unaries change.

    max_x theta·f(x) = const - min cut,   if   c = theta(0,0) + theta(1,1) - theta(0,1) - theta(1,0) >= 0

for every pair of variables (parallel factors added up); ``_cut_graph`` has the capacities. Label 1 is the source side;
among several best labelings the one with the fewest ones is returned. Forbidden entries (-inf) become capacities above
the sum of all others.

Truncation (``truncate=True``) lowers theta(0,1) and theta(1,0) of an offending factor by ``|c|/2`` each, so its
coupling is 0: the cut maximises a lower bound of theta·f that is tight where both variables agree. Where theta(0,0) or
theta(1,1) is -inf and no finite change would do, theta(0,1) = -inf.

Cost and memory: see ``_max_flow``. [S18] §3.3 uses dynamic cuts for learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.kernels.compile import exact_kernel, kernel
from backfield.map_solvers import _max_flow
from backfield.map_solvers._cut_graph import edge_terms, topology
from backfield.map_solvers.base import MapResult, MapSolver

#: Couplings may be negative by this share of the entries of their table (rounding of what made the table).
_TOLERANCE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-5}

#: Beyond this share of changed variables new trees on the old flow are faster than repaired ones (measured).
_MANY = 0.2


@dataclass(frozen=True, repr=False)
class GraphCut(MapSolver, name="graph_cut"):
    """Minimum cut: the best labels of a binary submodular pairwise model on any graph.

    Parameters
    ----------
    truncate : bool
        Cut off couplings that are not submodular instead of refusing the model; the labels are then not ``optimal``.
    """

    truncate: bool = False
    exact: ClassVar[bool] = True

    def solve(self, theta: Potentials) -> MapResult:
        """Return the best labels, and how many couplings were truncated."""
        return CutProblem(theta, truncate=self.truncate).solve(last=True)


class Changes(NamedTuple):
    """What each of K changes does alone: variables ``where[ptr[k]:ptr[k + 1]]`` get the other label."""

    labels: np.ndarray  # (K,) label of the changed variable
    ptr: np.ndarray  # (K + 1,)
    where: np.ndarray


class CutProblem:
    """A cut that is solved again and again while unaries change; flow and search trees are kept.

    Parameters
    ----------
    theta : Potentials
        Two labels, factors of two variables.
    truncate : bool
        See :class:`GraphCut`.

    Attributes
    ----------
    n_truncated : int
        Number of pairs of variables whose coupling was cut off.
    """

    def __init__(self, theta: Potentials, truncate: bool = False) -> None:
        _check_graph(theta.graph)
        self.graph = theta.graph
        self._theta = theta
        self._unary = theta.unary_flat.reshape(-1, 2)  # copied on the first change
        self._topo = topology(theta.graph)
        self._flow = _max_flow.new_flow(self._topo)
        self._linear = np.zeros(self._topo.n_nodes)  # what the factors add to the unary differences
        self._cap = np.zeros(self._topo.n_arcs)
        tolerance = _TOLERANCE[theta.dtype]
        self.n_truncated, worst, lost = edge_terms(theta, tolerance, self._linear, self._cap)
        if self.n_truncated and not truncate:
            raise InputError(_not_submodular(theta.graph, worst, lost, self.n_truncated))
        self._big = np.inf  # stands for forbidden; infinite where nothing is
        self._soft = 0.0  # sum of everything that is not forbidden
        self._solved = False
        self._pending: list[np.ndarray] = []

    @property
    def labels(self) -> np.ndarray:
        """(n,) labels of the last cut."""
        return self._flow.label[self._inside].astype(np.int64)

    @property
    def value(self) -> float:
        """theta·f of :attr:`labels` under the present unaries."""
        return _score(self.graph, self._unary, self._theta.factors_flat, self._flow.label[self._inside])

    @property
    def _inside(self) -> slice:
        return slice(self._topo.offset, self._topo.offset + self.graph.n_variables)

    def solve(self, last: bool = False) -> MapResult:
        """Cut from scratch; the ``last`` cut of a problem uses up its capacities instead of a copy."""
        if last:
            self._flow = self._flow._replace(cap=self._cap)
        labels = self.cut()
        return MapResult(labels, self.value, optimal=self.n_truncated == 0, n_truncated=self.n_truncated)

    def cut(self) -> np.ndarray:
        """Cut from scratch; return the labels, without their value."""
        terminal = self._terminal()
        if self._flow.cap is not self._cap:
            self._flow.cap[:] = self._cap
        self._flow.excess[:] = terminal
        self._big, self._soft = _bound(self._flow.cap, self._flow.excess)
        self._pending.clear()
        _max_flow.solve(self._topo.arcs, self._flow)
        self._solved = True
        self._check_possible()
        return self.labels

    def add_unary(self, variables: Any, delta: Any) -> None:
        """Add finite ``delta`` to theta_i(1) - theta_i(0) of some variables; :meth:`resolve` cuts again."""
        index = self._variables(variables)
        delta = _numbers(delta, index.shape, "delta")
        if not np.isfinite(delta).all():
            raise InputError("delta holds infinite numbers; forbid a label through set_unary.")
        if self._unary.base is not None:
            self._unary = self._unary.astype(np.float64)
        np.add.at(self._unary[:, 1], index, delta)
        self._add(index + self._topo.offset, delta)

    def set_unary(self, unary: Any) -> None:
        """Replace all unary tables by ``unary`` (n, 2); :meth:`resolve` cuts again."""
        old = self._terminal() if self._solved else None
        self._unary = self._tables(unary)
        if old is None:
            return
        new = self._terminal()
        if not (np.isfinite(old).all() and np.isfinite(new).all()):
            self._solved = False  # forbidden labels change: rare, so start again
            return
        nodes = np.flatnonzero(new != old)
        self._add(nodes, (new - old)[nodes])

    def resolve(self) -> np.ndarray:
        """Cut again after changed unaries; return the variables whose label changed, in rising order."""
        if not self._solved or self._soft > 0.5 * self._big:
            before = self.labels
            return np.flatnonzero(self.cut() != before)
        if not self._pending:
            return np.empty(0, dtype=np.int64)
        nodes = np.concatenate(self._pending)
        self._pending.clear()
        changed = self._recut(nodes)
        if len(changed):
            self._check_possible()
        return changed

    def _recut(self, nodes: np.ndarray) -> np.ndarray:
        """Cut again from the present flow; return the variables that changed."""
        if len(nodes) > _MANY * self.graph.n_variables:
            before = self.labels
            _max_flow.solve(self._topo.arcs, self._flow)
            return np.flatnonzero(self.labels != before)
        changed = np.empty(self._topo.n_nodes, dtype=np.int32)
        count = _max_flow.resolve(self._topo.arcs, nodes, self._flow, changed)
        return np.sort(changed[:count]).astype(np.int64) - self._topo.offset

    def solve_many(self, variables: Any, deltas: Any, returns: str = "label") -> Any:
        """Cut once for each change ``theta_i(1) - theta_i(0) += delta`` alone; the problem itself stays as it is.

        Parameters
        ----------
        variables : (K,) ints
            The variable of each change.
        deltas : (K,) floats
            ``inf`` and ``-inf`` fix the variable to 1 and to 0.
        returns : {"label", "labels", "count", "changed"}
            What to return: the label of variable k under change k (K,), all labels under each change (K, n), how many
            variables differ from :attr:`labels` (K,), or :class:`Changes`, which says which.
        """
        if returns not in ("label", "labels", "count", "changed"):
            raise InputError(f"returns must be 'label', 'labels', 'count' or 'changed', received {returns!r}.")
        index = self._variables(variables)
        delta = _numbers(deltas, index.shape, "deltas")
        self.resolve()
        changes = self._change_each(index, delta, returns != "label", afresh=False)
        if returns == "label":
            return changes.labels
        if returns == "count":
            return np.diff(changes.ptr)
        if returns == "changed":
            return changes
        labels = np.tile(self.labels, (len(index), 1))
        labels[np.repeat(np.arange(len(index)), np.diff(changes.ptr)), changes.where] ^= 1
        return labels

    def fix_each(self, variables: np.ndarray, labels: np.ndarray, afresh: bool = False) -> Changes:
        """Cut once with each variable alone fixed to its label, int64 each: ``solve_many`` without a look at its input.

        ``afresh``: each from no flow, to measure what flows that are kept save.
        """
        self.resolve()
        return self._change_each(variables, np.where(labels == 1, np.inf, -np.inf), True, afresh)

    def min_marginals(self, variables: Any = None) -> np.ndarray:
        """Return the best value of theta·f with x_i = 0 and with x_i = 1 for each variable, (K, 2)."""
        index = np.arange(self.graph.n_variables) if variables is None else self._variables(variables)
        self.resolve()
        price = np.empty(len(index))
        _max_flow.min_marginals(self._topo.arcs, index + self._topo.offset, self._flow, price)
        price[price >= 0.5 * self._big] = np.inf
        out = np.full((len(index), 2), self.value)
        out[np.arange(len(index)), 1 - self.labels[index]] -= price
        return out

    def _change_each(self, index: np.ndarray, delta: np.ndarray, record: bool, afresh: bool) -> Changes:
        labels, ptr = np.empty(len(index), dtype=np.int64), np.zeros(len(index) + 1, dtype=np.int64)
        nodes, differ = index + self._topo.offset, np.empty(4 * self.graph.n_variables * record, dtype=np.int32)
        if afresh:
            cap, excess = self._cap.copy(), self._terminal()
            _bound(cap, excess)
        done = 0
        while done < len(index):
            found = self._flow, labels, ptr, differ
            if afresh:
                done = _max_flow.change_each_afresh(self._topo.arcs, nodes, delta, cap, excess, done, *found)
            else:
                done = _max_flow.change_each(self._topo.arcs, nodes, delta, record, done, *found)
            if done < len(index):
                differ = np.concatenate([differ, np.empty_like(differ)])
        return Changes(labels, ptr, differ[: ptr[-1]].astype(np.int64) - self._topo.offset)

    def _terminal(self) -> np.ndarray:
        """(N,) theta(1) - theta(0) of every node with the share of its factors; infinite where a label is forbidden."""
        terminal = self._linear.copy()
        with np.errstate(invalid="ignore"):
            terminal[self._inside] += self._unary[:, 1] - self._unary[:, 0]
        if np.isnan(terminal).any():
            bad = int(np.flatnonzero(np.isnan(terminal))[0]) - self._topo.offset
            raise InputError(f"no labels are possible: variable {bad} has no label that its -inf potentials allow.")
        return terminal

    def _add(self, nodes: np.ndarray, delta: np.ndarray) -> None:
        if self._solved and len(nodes):
            np.add.at(self._flow.excess, nodes, delta)
            self._soft += float(np.abs(delta).sum())
            self._pending.append(nodes)

    def _check_possible(self) -> None:
        if self._big < np.inf and self.value == -np.inf:  # else nothing is forbidden
            self._solved = False
            how = " after truncation" if self.n_truncated else ""
            raise InputError(f"no labels are possible{how}: every labeling has a forbidden (-inf) entry.")

    def _tables(self, unary: Any) -> np.ndarray:
        array = np.array(unary, dtype=np.float64)
        if array.shape != (self.graph.n_variables, 2):
            raise InputError(f"unary must have shape {(self.graph.n_variables, 2)}, received {array.shape}.")
        if not array.max() < np.inf:
            raise InputError("unary holds NaN or inf; potentials are finite or -inf.")
        return array

    def _variables(self, variables: Any) -> np.ndarray:
        index = np.atleast_1d(np.asarray(variables))
        if index.ndim != 1 or (index.dtype.kind not in "iu" and index.size):
            raise InputError(f"variables must be a list of integers, received {index.dtype} of shape {index.shape}.")
        if index.size and not (index.min() >= 0 and index.max() < self.graph.n_variables):
            raise InputError(
                f"variables must be 0 .. {self.graph.n_variables - 1}, received {index.min()} .. {index.max()}."
            )
        return index.astype(np.int64, copy=False)


def _numbers(numbers: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    array = np.array(numbers, dtype=np.float64)
    if array.shape != shape:
        array = np.array(np.broadcast_to(array, shape))
    if np.isnan(array).any():
        raise InputError(f"{what} holds NaN.")
    return array


def _check_graph(graph: Graph) -> None:
    if graph.n_factors and graph.arity != 2:
        raise InputError("graph_cut takes factors of two variables; use max_product (or viterbi on trees) for others.")
    if graph.n_labels != 2:
        bad = int(np.flatnonzero(graph.labels != 2)[0])
        raise InputError(
            f"graph_cut takes two labels, but variable {bad} has {graph.labels[bad]}; use alpha_expansion or max_product."
        )


def _not_submodular(graph: Graph, factor: int, lost: float, count: int) -> str:
    i, j = graph.factors[factor]
    more = f" (one of {count} such couplings)" if count > 1 else ""
    return (
        f"factor {factor} over variables ({i}, {j}) is not submodular{more}: theta(0,0) + theta(1,1) is {lost:.6g} "
        "below theta(0,1) + theta(1,0); cut such terms off with graph_cut(truncate=True), use max_product, or train with "
        "projection='supermodular' (sgd, frank_wolfe)."
    )


def _score(graph: Graph, unary: np.ndarray, factors: np.ndarray, labels: np.ndarray) -> float:
    """theta.score(labels) of a binary pairwise model, to the bit, without the layout of the graph."""
    total = np.where(labels, unary[:, 1], unary[:, 0]).sum(dtype=np.float64)
    if graph.n_factors:
        chosen = np.empty(graph.n_factors, dtype=factors.dtype)
        if graph.lattice is None:
            _choose(graph.factors, factors, labels, chosen)
        else:
            _choose_on_grid(graph.lattice.edges, factors, labels, chosen)
        total = total + chosen.sum(dtype=np.float64)
    return float(total)


@exact_kernel
def _choose(scope, factors, labels, chosen):
    """Pick the entry of each table that the labels select."""
    for e in range(len(scope)):
        chosen[e] = factors[4 * e + 2 * labels[scope[e, 0]] + labels[scope[e, 1]]]


@exact_kernel
def _choose_on_grid(edges, factors, labels, chosen):
    """Pick the entry of each table that the labels select, without scopes."""
    last = edges.extent.shape[1] - 1
    e = 0
    for k in range(len(edges.step)):
        rows = 1
        for axis in range(last):
            rows *= edges.extent[k, axis]
        for row in range(rows):
            i, rest = edges.corner[k], row
            for axis in range(last - 1, -1, -1):
                i += rest % edges.extent[k, axis] * edges.strides[axis]
                rest //= edges.extent[k, axis]
            for _ in range(edges.extent[k, last]):
                chosen[e] = factors[4 * e + 2 * labels[i] + labels[i + edges.step[k]]]
                i += 1
                e += 1


def _bound(cap: np.ndarray, terminal: np.ndarray) -> tuple[float, float]:
    """Replace infinities by a number above the sum of all else, in place; return it (inf: none needed) and the sum."""
    total = _finite_sum(cap) + _finite_sum(terminal)
    if np.isfinite(cap.max(initial=0)) and np.isfinite(terminal.max()) and np.isfinite(terminal.min()):
        return np.inf, total
    big = 4 * total or 1.0
    for array in (cap, terminal):
        np.clip(array, -big, big, out=array)
    return big, total


@kernel
def _finite_sum(array):
    total = 0.0
    for k in range(len(array)):
        size = abs(array[k])
        total += size if size < np.inf else 0.0
    return total
