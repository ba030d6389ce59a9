"""The spine: examples with theta(w) and its vjp; w -> (value, gradient) as a fold over them.

    value(w) = sum_examples weight · objective(theta(w), labels) / (number of labelled variables) + l2 |w|^2

(for losses that are one number per example, such as f_measure: / the number of examples),
where l2 may be one number for the weights of variables and another for those of factors.

An :class:`Example` holds features and what is known about its labels. A :class:`Layout` says which part of w serves which
rows: one block per type of variable and per type of factor. A :class:`Problem` folds an objective over examples; learners
see nothing else.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from backfield.energies import Energy
from backfield.errors import InputError
from backfield.gradients import Truncated
from backfield.graph import Graph, Potentials
from backfield.objectives import Objective, Seen, Setting, Target
from backfield.preconditioner import add_grams, preconditioner
from backfield.training.execution import sum_over_chunks
from backfield.training.execution.cluster import Cluster, Shared
from backfield.training.execution.threads import N_CHUNKS, chunk_bounds

#: Of complex differentiation: so small that its square is nothing.
_STEP = 1e-100


class Rows(NamedTuple):
    """Rows of one block in one example: which variables (or factors) they are, and their features."""

    index: Any  # slice or int array
    features: Any  # (N, F), dense or CSR; (H, W, F) where the energy looks at a whole image


@dataclass
class Example:
    """One graph with features, and what is known about its labels."""

    graph: Graph
    unary: list[Rows | None]  # one entry per block of the layout's variables
    factors: list[Rows | None]
    target: Target | None = None
    weight: float = 1.0

    @property
    def n_labelled(self) -> int:
        """Number of variables about which something is known."""
        if self.target is None:
            return 0
        labeling = self.target.labeling
        if labeling.soft is not None:
            given = np.add.reduceat(labeling.soft, self.graph.layout.var_ptr[:-1]) > 0
            return int((given | labeling.known).sum())
        if not labeling.has_sets:
            return int((labeling.labels >= 0).sum())
        count = np.add.reduceat(labeling.allowed.astype(np.int64), self.graph.layout.var_ptr[:-1])
        return int((count < self.graph.labels).sum())


class Block(NamedTuple):
    """The weights of one type of variable or factor: ``w[start:stop]``."""

    energy: Energy
    n_features: int
    n_outputs: int
    intercept: bool
    start: int
    stop: int

    def scores(self, w: np.ndarray, rows: Rows) -> np.ndarray:
        """Return scores (N, K)."""
        return self.energy.scores(w[self.start : self.stop], rows.features, self.n_outputs, self.intercept)


@dataclass
class Layout:
    """Which part of w serves which rows."""

    unary: list[Block] = field(default_factory=list)
    factors: list[Block] = field(default_factory=list)
    n_weights: int = 0

    def add(self, kind: str, energy: Energy, n_features: int, n_outputs: int, intercept: bool) -> None:
        """Append a block of ``unary`` or ``factors``."""
        stop = self.n_weights + energy.n_weights(n_features, n_outputs, intercept)
        getattr(self, kind).append(Block(energy, n_features, n_outputs, intercept, self.n_weights, stop))
        self.n_weights = stop

    def theta(self, w: np.ndarray, example: Example, dtype: Any) -> Potentials:
        """Return the potentials of an example."""
        graph = example.graph
        unary = _assemble(self.unary, w, example.unary, _rows_of(graph, "unary"), dtype)
        return Potentials.from_flat(
            graph, unary, _assemble(self.factors, w, example.factors, _rows_of(graph, "factors"), dtype)
        )

    @property
    def blocks(self) -> list[Block]:
        """All blocks: of variables, then of factors."""
        return [*self.unary, *self.factors]

    def start(self) -> np.ndarray:
        """Return the weights to start from: zero, or those that a network has."""
        parts = [b.energy.start(b.n_features, b.n_outputs, b.intercept) for b in self.blocks]
        return np.concatenate(parts) if parts else np.zeros(0)

    def forget(self) -> None:
        """Drop what energies keep for a way back that will not come."""
        for block in self.blocks:
            block.energy.forget()

    def vjp(self, example: Example, d_theta: Potentials, w: np.ndarray | None = None) -> np.ndarray:
        """Return d_w from d_theta; without ``w``, energies must be linear in it."""
        d_w = np.zeros(self.n_weights)
        for blocks, parts, kind, flat in (
            (self.unary, example.unary, "unary", d_theta.unary_flat),
            (self.factors, example.factors, "factors", d_theta.factors_flat),
        ):
            where = _rows_of(example.graph, kind)
            for block, rows in zip(blocks, parts, strict=True):
                if rows is not None and block.stop > block.start:
                    part = flat[_entries(where, rows.index, block.n_outputs)].reshape(-1, block.n_outputs)
                    here = None if w is None else w[block.start : block.stop]
                    d_w[block.start : block.stop] = block.energy.vjp(rows.features, part, block.intercept, here)
        return d_w


class _Table(NamedTuple):
    """Where the tables of all variables (or factors) lie in flat arrays: a common size, or a start for each."""

    size: int | None
    ptr: np.ndarray | None
    total: int


def _rows_of(graph: Graph, kind: str) -> _Table:
    if kind == "unary" and graph.n_labels is not None:
        return _Table(graph.n_labels, None, graph.n_variables * graph.n_labels)
    if kind == "factors" and graph.n_labels is not None and (graph.arity is not None or graph.n_factors == 0):
        size = graph.n_labels ** (graph.arity or 2)
        return _Table(size, None, graph.n_factors * size)
    ptr = graph.layout.var_ptr if kind == "unary" else graph.layout.table_ptr
    return _Table(None, ptr, int(ptr[-1]))


def _entries(where: _Table, index: Any, n_outputs: int) -> Any:
    """Return the flat entries of some rows: a slice where they are contiguous and of one size."""
    if where.size is not None and isinstance(index, slice):
        return slice(index.start * where.size, index.stop * where.size)
    numbers = np.arange(index.start, index.stop) if isinstance(index, slice) else index
    starts = numbers * where.size if where.size is not None else where.ptr[numbers]  # type: ignore[index]
    return (starts[:, None] + np.arange(n_outputs)).reshape(-1)


def _assemble(blocks: list[Block], w: np.ndarray, parts: list[Rows | None], where: _Table, dtype: Any) -> np.ndarray:
    present = [rows for rows in parts if rows is not None]
    if present and where.size is not None and _in_turn([rows.index for rows in present], where.total // where.size):
        # The usual case: the blocks follow each other and leave nothing out.
        flat = [b.scores(w, rows).reshape(-1) for b, rows in zip(blocks, parts, strict=True) if rows is not None]
        return (flat[0] if len(flat) == 1 else np.concatenate(flat)).astype(dtype, copy=False)
    out = np.zeros(where.total, dtype)
    for block, rows in zip(blocks, parts, strict=True):
        if rows is not None:
            out[_entries(where, rows.index, block.n_outputs)] = block.scores(w, rows).reshape(-1)
    return out


def _in_turn(indices: list[Any], total: int) -> bool:
    """Whether slices follow each other from 0 to ``total``."""
    at = 0
    for index in indices:
        if not isinstance(index, slice) or index.start != at:
            return False
        at = index.stop
    return at == total


class Evaluation(NamedTuple):
    """Value and gradient at some w, and what was seen on the way."""

    value: float
    gradient: np.ndarray
    errors: float  # share of wrong labels, where the objective decodes; nan elsewhere
    sweeps: int
    truncated: int = 0  # couplings that cuts truncated


class _Sum(NamedTuple):
    value: float
    gradient: np.ndarray
    wrong: float
    sweeps: int
    truncated: int = 0


class Problem:
    """An objective over examples, as a function of w."""

    def __init__(
        self,
        examples: Sequence[Example],
        layout: Layout,
        objective: Objective,
        setting: Setting,
        *,
        l2: float | dict[str, float] = 0.0,
        dtype: Any = np.float64,
        n_jobs: int = 1,
        labelled: Sequence[int] | None = None,
        n_chunks: int = N_CHUNKS,
    ) -> None:
        self.examples = examples
        self.layout = layout
        self.objective_info = objective
        self.ridge = _ridge(layout, l2)
        self.l2 = float(np.min(self.ridge, initial=np.inf)) if layout.n_weights else 0.0
        self.dtype = np.dtype(dtype)
        self.n_jobs = n_jobs
        if isinstance(setting.gradient, Truncated) or setting.gradient is None:
            # The budget is one of the process; every thread gets its share.
            budget = (setting.gradient or Truncated()).memory // max(1, n_jobs)
            truncated = Truncated(memory=max(1, budget))
            setting = setting._replace(gradient=truncated if setting.gradient is not None else None)
        self.setting = setting
        self.n_chunks = n_chunks
        self.cluster: Cluster | None = None
        self._shared: Shared | None = None
        if labelled is None:
            labelled = [example.n_labelled for example in examples]
        self._labelled = np.array(labelled, dtype=np.int64)
        if self._labelled.sum() == 0:
            raise InputError("there is nothing to learn from: all labels are hidden (-1).")

    @property
    def n_weights(self) -> int:
        """Number of parameters."""
        return self.layout.n_weights

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.examples)

    def over(self, examples: Sequence[Example], labelled: Sequence[int], ridge: float = 1.0) -> Problem:
        """Return the same objective over other examples with so many labelled variables, with l2 times ``ridge``."""
        other = copy.copy(self)
        other.__class__ = Problem  # a special one may hold for its own examples only
        other.examples, other._labelled, other._shared = examples, np.array(labelled, dtype=np.int64), None
        other.ridge, other.l2 = ridge * self.ridge, ridge * self.l2
        return other

    @property
    def size(self) -> int:
        """What sums over all examples are divided by: their labelled variables, or their number."""
        return self._count(self._labelled)

    @property
    def labelled(self) -> np.ndarray:
        """(n_examples,) variables of each example about which something is known."""
        return self._labelled

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation:
        """Return the regularised mean loss per labelled variable, over all examples or a batch, and its gradient."""
        labelled = self._labelled if batch is None else self._labelled[batch]
        count = self._count(labelled)
        total = self.fold(_chunk, self.add, batch, w, seed)
        shrunk = self.ridge * w
        value = float(total.value / count + w @ shrunk)
        gradient = total.gradient / count
        gradient += 2 * shrunk
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            value = math.inf  # a learner takes it for too long a step
        errors = total.wrong if math.isnan(total.wrong) else total.wrong / max(1, int(labelled.sum()))
        return Evaluation(value, gradient, errors, total.sweeps, total.truncated)

    def fold(self, function: Callable[..., Any], add: Callable[..., Any], batch: Any, *arguments: Any) -> Any:
        """Return the tree sum of ``function(problem, numbers of a chunk, *arguments)`` over all examples or a batch.

        Threads or workers compute the same bytes; these find both callables by name: they are those of a module.
        """
        n_chunks = self._n_chunks(self.n_examples if batch is None else len(batch))
        if self.shared is not None:
            return self.shared.fold(function, add, batch, *arguments, n_chunks=n_chunks)
        chosen = np.arange(self.n_examples) if batch is None else np.asarray(batch)

        def evaluate(first: int, last: int) -> Any:
            return function(self, chosen[first:last], *arguments)

        return sum_over_chunks(evaluate, len(chosen), self.n_jobs, add, n_chunks)

    def collect(self, function: Callable[..., Any], batch: Any, *arguments: Any) -> list[Any]:
        """Return ``function(problem, number, *arguments)`` of all examples or a batch, in order."""
        found: list[Any] = self.fold(_each, operator.add, batch, function, *arguments)
        return found

    def preconditioner(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return v -> H0 v, the inverse curvature that features alone give."""
        grams = self.fold(_grams, add_grams, None)
        return preconditioner(self.layout.blocks, grams, self.size, np.broadcast_to(self.ridge, self.n_weights))

    def _count(self, labelled: np.ndarray) -> int:
        """Return what sums over examples are divided by: labelled variables, or examples where each has one number."""
        return max(1, int((labelled > 0).sum() if self.objective_info.per_example else labelled.sum()))

    def minimising(self, objective: Objective) -> Problem:
        """Return the problem of another objective over the same examples, through the same inference."""
        other = copy.copy(self)
        other.__class__ = Problem
        other.objective_info, other._shared = objective, None
        gradient = self.setting.gradient if objective.needs_inference and not objective.own_gradient else None
        other.setting = self.setting._replace(gradient=gradient)
        objective.check(other.setting)
        if self._shared is not None:
            other._shared = self._shared.instead(other._shell())
        return other

    def hessian_vector(
        self, w: np.ndarray, direction: np.ndarray, batch: np.ndarray | None = None, seed: int = 0
    ) -> tuple[Evaluation, np.ndarray]:
        """Return value and gradient, and the second derivative along ``direction``, over all examples or a batch.

        One evaluation at theta(w) + i h theta(direction) in complex arithmetic: exact, see ``api.hessian_vector``.
        """
        info = self.objective_info
        if not (info.smooth and info.integrable):
            raise InputError(f"{info.name} has no second derivative; use a loss on marginals or a likelihood.")
        if not all(block.energy.linear for block in self.layout.blocks):
            raise InputError("second derivatives need energies that are linear in the weights.")
        labelled = self._labelled if batch is None else self._labelled[batch]
        count = self._count(labelled)
        total = self.fold(_dual_chunk, self.add, batch, w, direction, seed)
        gradient, product = np.split(total.gradient / count, 2)
        value = total.value / count + float(w @ (self.ridge * w))
        errors = total.wrong / max(1, int(labelled.sum()))
        seen = Evaluation(value, gradient + 2 * self.ridge * w, errors, total.sweeps)
        return seen, product + 2 * self.ridge * direction

    def _dual(self, w: np.ndarray, direction: np.ndarray, example: Example, seed: int) -> _Sum:
        """Return the value of one example, and its gradient and second derivative end to end."""
        assert example.target is not None
        watch: list[Seen] = []
        setting = self.setting._replace(seed=seed, watch=watch, gradient=Truncated())
        theta, change = (self.layout.theta(x, example, np.float64) for x in (w, direction))
        moved = theta.like(theta.vector() + 1j * _STEP * change.vector())
        value, d_theta = self.objective_info.value_and_dtheta(moved, example.target, setting)
        both = d_theta.vector()
        parts = [self.layout.vjp(example, theta.like(each), w) for each in (both.real.copy(), both.imag / _STEP)]
        wrong, sweeps, _ = watch[0] if watch else Seen(float("nan"))
        return _Sum(example.weight * float(np.real(value)), example.weight * np.concatenate(parts), wrong, sweeps)

    def _n_chunks(self, count: int) -> int:
        """Return into how many chunks ``count`` examples are cut."""
        # Every chunk has a gradient of its own; with very many weights, writing those would cost more than the examples.
        return self.n_chunks if self.n_weights < 2**16 else max(1, self.n_chunks // 8)

    def distribute(self, cluster: Cluster | None) -> None:
        """Let the workers of a cluster compute sums over examples from now on; None: threads here."""
        self.cluster, self._shared = cluster, None

    @property
    def shared(self) -> Shared | None:
        """What the workers hold of the problem; sent to them when it is first asked for."""
        if self.cluster is not None and self._shared is None:
            blocks = None
            if isinstance(self.examples, list):  # in memory here: every worker gets those that it computes
                blocks = [(first, self.examples[first:last]) for first, last in chunk_bounds(self.n_examples)]
            self._shared = self.cluster.share(self._shell(), np.maximum(self._labelled, 1), blocks)
        return self._shared

    def _shell(self) -> Problem:
        """Return the problem without examples that are in memory here."""
        return self._with_examples([] if isinstance(self.examples, list) else self.examples)

    def with_blocks(self, blocks: dict[int, tuple[int, list[Example]]]) -> Problem:
        """Return the problem with the examples of some blocks, on a worker."""
        return self._with_examples({first + k: each for first, some in blocks.values() for k, each in enumerate(some)})

    def _with_examples(self, examples: Any) -> Problem:
        """Return the same problem, with all that it has cached, over other examples."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"examples": examples, "cluster": None, "_shared": None}
        return other

    @staticmethod
    def add(a: _Sum, b: _Sum) -> _Sum:
        """Return the sum of two sums, in the place of the first."""
        np.add(a.gradient, b.gradient, out=a.gradient)
        return _Sum(a.value + b.value, a.gradient, a.wrong + b.wrong, a.sweeps + b.sweeps, a.truncated + b.truncated)

    def chunk(self, numbers: np.ndarray, w: np.ndarray, seed: int) -> _Sum:
        """Sum over some examples, in order."""
        value, wrong, sweeps, truncated = 0.0, 0.0, 0, 0
        gradient = np.zeros(self.n_weights)
        for number in numbers:
            if self._labelled[number] == 0:
                continue
            example = self.examples[number]
            part = self._one(w, example, seed + int(number))
            value += example.weight * part.value
            gradient += example.weight * part.gradient
            wrong += part.wrong
            sweeps += part.sweeps
            truncated += part.truncated
        return _Sum(value, gradient, wrong, sweeps, truncated)

    def _one(self, w: np.ndarray, example: Example, seed: int) -> _Sum:
        assert example.target is not None
        watch: list[Seen] = []
        with np.errstate(over="ignore", invalid="ignore"):  # learners that went astray say so themselves
            theta = self.layout.theta(w, example, self.dtype)
            if not theta.is_finite:
                return _Sum(np.inf, np.zeros(self.n_weights), 0.0, 0)
        setting = self.setting._replace(seed=seed, watch=watch)
        value, d_theta = self.objective_info.value_and_dtheta(theta, example.target, setting)
        wrong, sweeps, truncated = watch[0] if watch else Seen(float("nan"))
        if not self.objective_info.integrable:
            wrong = float(value)
        return _Sum(float(value), self.layout.vjp(example, d_theta, w), wrong, sweeps, truncated)


def _chunk(problem: Problem, numbers: np.ndarray, w: np.ndarray, seed: int) -> _Sum:
    return problem.chunk(numbers, w, seed)


def _dual_chunk(problem: Problem, numbers: np.ndarray, w: np.ndarray, direction: np.ndarray, seed: int) -> _Sum:
    total = _Sum(0.0, np.zeros(2 * problem.n_weights), 0.0, 0)
    for number in numbers:
        if problem.labelled[number]:
            total = problem.add(total, problem._dual(w, direction, problem.examples[number], seed + int(number)))
    return total


def _grams(problem: Problem, numbers: np.ndarray) -> list[np.ndarray | None]:
    """Return X'X of each block over some examples."""
    blocks = problem.layout.blocks
    total: list[np.ndarray | None] = [None] * len(blocks)
    for example in (problem.examples[number] for number in numbers):
        rows = zip(blocks, [*example.unary, *example.factors], strict=True)
        total = add_grams(total, [part and block.energy.gram(part.features, block.intercept) for block, part in rows])
    return total


def _each(problem: Problem, numbers: np.ndarray, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return [function(problem, int(number), *arguments) for number in numbers]


def _ridge(layout: Layout, l2: float | dict[str, float]) -> Any:
    """Return the ridge: one number, or one per weight where variables and factors have different ones."""
    values = list(l2.values()) if isinstance(l2, dict) else [l2]
    numbers = all(isinstance(value, Real) and 0 <= value < math.inf for value in values)
    if not numbers or (isinstance(l2, dict) and not set(l2) <= {"unary", "pairwise"}):
        raise InputError(f"l2 must be a finite number >= 0 or {{'unary': a, 'pairwise': b}}, got {l2!r}.")
    if not isinstance(l2, dict):
        return float(l2)
    ridge = np.zeros(layout.n_weights)
    for kind, blocks in (("unary", layout.unary), ("pairwise", layout.factors)):
        for block in blocks:
            ridge[block.start : block.stop] = l2.get(kind, 0.0)
    return ridge
