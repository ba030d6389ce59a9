"""A chunk of the examples of ``oracle_descent``: messages, scores and soft targets, and sums over their rows.

A chunk is made where its examples are, in this process or on a worker (``execution/resident.py``). What changes is in
states, which are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from backfield.constraints import is_sparse
from backfield.energies.oracle_backed import dense
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Evidence
from backfield.graph.labeling import factor_entries, one_hot
from backfield.inference.conditioned import infer_given
from backfield.inference.smoothed_lp.method import SmoothedLP
from backfield.learners._checkpoint import check_state
from backfield.learners.base import dot
from backfield.objectives.base import argmax_labels
from backfield.objectives.max_margin import margin
from backfield.oracles import OracleFunction
from backfield.oracles._softmax import BiasedLogistic, RowSums
from backfield.training.evaluators import Task
from backfield.training.examples import Example, Rows

#: Sweeps of each round for the error in the trace; their messages, of the model without the margin, are kept.
ERROR_SWEEPS = 5
KINDS = ("unary", "factors")


class Term(NamedTuple):
    """A block of the layout: the rows that one function serves."""

    kind: str
    place: int
    oracle: str
    n_classes: int
    sums: bool  # the oracle needs no rows, only sums over them


class Plan(NamedTuple):
    """What every chunk has to know."""

    terms: tuple[Term, ...]
    eps: float
    sweeps: int
    regions: str
    max_dense: float  # bytes that the sparse features of all chunks may take as an array


class Memory(NamedTuple):
    """What changes of an example."""

    messages: np.ndarray
    plain: np.ndarray  # messages of the model without the margin
    scores: np.ndarray  # f of all rows, without eps
    target: np.ndarray | None  # marginals given the known labels, where some are hidden


class ChunkState(NamedTuple):
    """What changes of a chunk: its examples, and the biases of the rows of the terms that are fitted next."""

    memories: tuple[Memory, ...]
    rows: dict[int, BiasedLogistic]


class Gathered(NamedTuple):
    """Rows of one term for an oracle that needs them."""

    bias: np.ndarray
    target: np.ndarray
    soft: np.ndarray  # (N,) whether a label is hidden


class Tally(NamedTuple):
    """What a step of messages tells: the value, and wrong labels without the margin if they were counted."""

    value: float
    wrong: int

    def plus(self, other: Tally) -> Tally:
        """Return the sum of both."""
        return Tally(self.value + other.value, self.wrong + other.wrong)


class Gradient(NamedTuple):
    """The loss of rows and its gradient."""

    value: float
    d_w: np.ndarray

    def plus(self, other: Gradient) -> Gradient:
        """Return the sum of both."""
        return Gradient(self.value + other.value, self.d_w + other.d_w)


class Step(NamedTuple):
    """What ``Chunk.advance`` does: pass messages, count errors, and then prepare the rows of a kind."""

    passes: bool
    looks: bool
    then: str


class Size(NamedTuple):
    """Known labels, and for each term the rows of each chunk and the weight of all."""

    labelled: int
    rows: list[np.ndarray]  # of each chunk
    weight: np.ndarray

    def plus(self, other: Size) -> Size:
        """Return the sum of both."""
        return Size(self.labelled + other.labelled, self.rows + other.rows, self.weight + other.weight)


class _Fixed(NamedTuple):
    """What stays of an example."""

    graph: Graph
    weight: float
    labels: np.ndarray
    delta: Potentials
    target: np.ndarray  # indicators of the labels
    known: tuple[np.ndarray, np.ndarray]  # variables and factors whose labels are all known
    evidence: Evidence | None  # the known labels, where some are hidden


class _Rows:
    """The rows of one term in all examples of a chunk."""

    def __init__(self, term: Term, examples: list[Example], limit: float, share: float) -> None:
        parts = [(k, example.of(term.kind)[term.place]) for k, example in enumerate(examples)]
        self.parts: list[tuple[int, slice, np.ndarray]] = []  # example, its rows here, their entries in its flat tables
        self.index: list[tuple[int, Any]] = []  # example, its variables or factors
        _check_size([rows.features for _, rows in parts if rows is not None], term.oracle, limit, share)
        features, weight, at = [], [], 0
        for k, rows in parts:
            if rows is None:
                continue
            n = rows.features.shape[0]
            self.parts.append((k, slice(at, at + n), _entries(examples[k].graph, term.kind, rows.index, term.n_classes)))
            self.index.append((k, rows.index))
            weight.append(np.full(n, examples[k].weight))
            if term.sums:
                features.append(dense(rows.features))
            at += n
        self.n = at
        self.weight = np.concatenate([np.empty(0), *weight])
        self.features = np.concatenate(features) if features else np.empty((0, 0))
        if features:  # the examples' rows become views of the stack: nothing is held twice
            for (k, rows_, _), (_, index) in zip(self.parts, self.index, strict=True):
                own = examples[k].of(term.kind)
                own[term.place] = Rows(index, self.features[rows_])

    def gather(self, n_classes: int, flat: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return the rows (N, K) of a quantity given as flat tables of each example."""
        out = np.empty((self.n, n_classes))
        for k, rows, entries in self.parts:
            np.take(flat(k), entries, out=out[rows])
        return out


class Chunk:
    """Some examples; methods take a state, and those that move it return the next one first."""

    def __init__(self, task: Task, numbers: np.ndarray, plan: Plan) -> None:
        examples = [task.examples[number] for number in numbers]
        share = len(numbers) / len(task.labelled)
        self.plan = plan
        self.method = SmoothedLP(n_iter=plan.sweeps, eps=plan.eps, regions=plan.regions)
        self.terms = [_Rows(term, examples, plan.max_dense, share) for term in plan.terms]
        self.fixed = [_fixed(example) for example in examples]

    def size(self, state: ChunkState | None) -> Size:
        """Count labels and rows."""
        labelled = sum(int(each.known[0].sum()) for each in self.fixed)
        rows = np.array([rows.n for rows in self.terms])
        return Size(labelled, [rows], np.array([rows.weight.sum() for rows in self.terms]))

    # ---- what moves ----

    def begin(self, state: ChunkState | None, kept: list[Any] | None) -> tuple[ChunkState, int]:
        """Start from f = 0, or from what was kept of each example."""
        memories = []
        for k, fixed in enumerate(self.fixed):
            zero = np.zeros(self.method.n_messages(fixed.graph))
            memory = Memory(zero, zero, np.zeros(len(fixed.target)), None)
            if kept is not None:
                _check_kept(kept[k], len(zero), len(fixed.target), hidden=fixed.evidence is not None)
                memory = memory._replace(messages=kept[k][0], plain=kept[k][1], target=kept[k][2])
            elif fixed.evidence is not None:
                memory = memory._replace(target=self._clamped(fixed, memory))
            memories.append(memory)
        return ChunkState(tuple(memories), {}), 0

    def advance(
        self, state: ChunkState, scores: dict[int, np.ndarray] | None, functions: dict[int, Any], step: Step
    ) -> tuple[ChunkState, Tally]:
        """Take scores and functions of some terms, pass messages, and prepare the rows that are fitted next."""
        memories = list(self._with_scores(state.memories, scores or {}, functions))
        value, wrong = 0.0, 0
        for k, (fixed, memory) in enumerate(zip(self.fixed, memories, strict=True)):
            if step.passes:
                memory, loss = self._passed(fixed, memory)
                value += fixed.weight * loss
            if step.looks:
                memory, mistakes = self._looked(fixed, memory)
                wrong += mistakes
            memories[k] = memory
        return ChunkState(tuple(memories), self._prepared(memories, step.then)), Tally(value, wrong)

    def _with_scores(self, memories: Any, scores: dict[int, np.ndarray], functions: dict[int, Any]) -> Iterator[Memory]:
        given = [(t, scores[t]) for t in sorted(scores)]
        given += [(t, functions[t].scores(self.terms[t].features)) for t in sorted(functions) if self.terms[t].n]
        new = [memory.scores.copy() if given else memory.scores for memory in memories]
        for t, rows in given:
            shift = [0 if self.plan.terms[t].kind == "unary" else fixed.delta.unary_flat.size for fixed in self.fixed]
            for k, where, entries in self.terms[t].parts:
                new[k][entries + shift[k]] = rows[where]
        return (memory._replace(scores=each) for memory, each in zip(memories, new, strict=True))

    def _passed(self, fixed: _Fixed, memory: Memory) -> tuple[Memory, float]:
        """Pass messages, propose new soft targets; return the loss as well."""
        engine = self.method.engine(self._theta(fixed, memory, with_margin=True))
        state = engine.state_of(memory.messages)
        engine.sweeps(state, 0, self.plan.sweeps)
        memory = memory._replace(messages=engine.messages(state))
        worth = self._worth(fixed, memory, memory.target)
        if memory.target is not None:
            target = self._clamped(fixed, memory)
            better = self._worth(fixed, memory, target)
            if better > worth:
                memory, worth = memory._replace(target=target), better
        return memory, float(engine.dual(state)) - worth

    def _looked(self, fixed: _Fixed, memory: Memory) -> tuple[Memory, int]:
        """Count the labelled variables whose most probable label, without the margin, is wrong."""
        engine = self.method.engine(self._theta(fixed, memory))
        state = engine.state_of(memory.plain)
        engine.sweeps(state, 0, ERROR_SWEEPS)
        best = argmax_labels(engine.marginals(state, factors=False))
        return memory._replace(plain=engine.messages(state)), int((best != fixed.labels)[fixed.known[0]].sum())

    def _prepared(self, memories: list[Memory], kind: str) -> dict[int, BiasedLogistic]:
        """Return labels and biases of the rows of all terms of a kind."""
        own = [t for t, term in enumerate(self.plan.terms) if term.kind == kind and self.terms[t].n]
        if not own:
            return {}
        each = zip(self.fixed, memories, strict=True)
        given = [self.method.biases(fixed.graph, memory.messages, fixed.delta) for fixed, memory in each]
        out = {}
        for t in own:
            bias = self.terms[t].gather(self.plan.terms[t].n_classes, lambda k: _flat(given[k], kind))
            target, soft = self._targets(t, memories)
            out[t] = BiasedLogistic(target.argmax(axis=1), target if soft.any() else target[:0], bias, self.terms[t].weight)
        return out

    def _targets(self, t: int, memories: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return targets (N, K) of the rows of a term, and which of them are soft."""
        term, rows = self.plan.terms[t], self.terms[t]
        side = KINDS.index(term.kind)
        soft = np.concatenate([~self.fixed[k].known[side][index] for k, index in rows.index])

        def flat(k: int) -> np.ndarray:
            fixed, target = self.fixed[k], memories[k].target
            return _flat(fixed.delta.like(fixed.target if target is None else target), term.kind)

        return rows.gather(term.n_classes, flat), soft

    # ---- what is asked ----

    def kept(self, state: ChunkState) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Return what has to be kept of each example: scores follow from functions."""
        return [(memory.messages, memory.plain, memory.target) for memory in state.memories]

    def gathered(self, state: ChunkState, t: int) -> list[Gathered]:
        """Return the rows of a term."""
        return [Gathered(state.rows[t].bias, *self._targets(t, state.memories))] if self.terms[t].n else []

    def squares(self, state: ChunkState, t: int) -> np.ndarray:
        """Return the weighted sum of the square of each feature."""
        return self._sums(state, t).mean_squares() if self.terms[t].n else np.zeros(1)

    def gradient(self, state: ChunkState, t: int, w: np.ndarray, n_features: int) -> Gradient:
        """Return the weighted loss of f = W x and its gradient."""
        if not self.terms[t].n:
            return Gradient(0.0, np.zeros(w.shape))
        return Gradient(*self._sums(state, t).linear_gradient(w, n_features))

    def loss(self, state: ChunkState, t: int, function: OracleFunction | None) -> float:
        """Return the weighted loss of a function, None for f = 0."""
        if not self.terms[t].n:
            return 0.0
        scores = np.zeros(state.rows[t].bias.shape) if function is None else function.scores(self.terms[t].features)
        return state.rows[t].value(scores)

    def _sums(self, state: ChunkState, t: int) -> RowSums:
        return RowSums(self.terms[t].features, state.rows[t])

    # ---- the model ----

    def _theta(self, fixed: _Fixed, memory: Memory, with_margin: bool = False) -> Potentials:
        theta = fixed.delta.like(self.plan.eps * memory.scores)
        if with_margin:
            theta.unary_flat += fixed.delta.unary_flat  # the margin of factors is 0
        return theta

    def _clamped(self, fixed: _Fixed, memory: Memory) -> np.ndarray:
        """Return the marginals given the known labels, without the margin."""
        return infer_given(self.method, self._theta(fixed, memory), fixed.evidence).marginals.vector()

    def _worth(self, fixed: _Fixed, memory: Memory, soft: np.ndarray | None) -> float:
        """Return eps f·q + eps H(q): what the labels are worth."""
        q = fixed.target if soft is None else soft
        value = dot(memory.scores, q)
        if soft is not None:
            q = q[q > 0]
            value -= dot(q, np.log(q))
        return self.plan.eps * value


def _fixed(example: Example) -> _Fixed:
    graph, target = example.graph, example.target
    assert target is not None
    if target.labeling.has_sets or target.observed is not None:
        raise InputError("oracle_descent takes labels or -1, not sets of labels nor observed inputs.")
    labels = target.labeling.labels
    unary, factors = one_hot(graph, labels)
    zero = Potentials.from_flat(graph, np.zeros(len(unary)), np.zeros(len(factors)))
    known = labels >= 0
    return _Fixed(
        graph,
        example.weight,
        labels,
        Potentials.from_flat(graph, margin(zero, target), zero.factors_flat),
        np.concatenate([unary, factors]).astype(np.float64),
        (known, factor_entries(graph, labels)[1]),
        None if known.all() else target.known(graph),
    )


def _check_size(features: list[Any], oracle: str, limit: float, share: float) -> None:
    """Refuse sparse rows, such as those of words, that would not fit into memory as an array."""
    size = sum(x.shape[0] * x.shape[1] * x.dtype.itemsize for x in features if is_sparse(x))
    if size > limit * share:
        n, m = sum(x.shape[0] for x in features), features[0].shape[1]
        raise InputError(
            f"oracle {oracle!r} takes dense features: {n / share:.0f} rows of {m} features would need "
            f"{size / share / 2**30:.0f} GB; give it fewer features, or learn linear energies with another learner."
        )


def _flat(theta: Potentials, kind: str) -> np.ndarray:
    return theta.unary_flat if kind == "unary" else theta.factors_flat


def _entries(graph: Any, kind: str, index: Any, n_outputs: int) -> np.ndarray:
    ptr = graph.layout.var_ptr if kind == "unary" else graph.layout.table_ptr
    return ptr[:-1][index][:, None] + np.arange(n_outputs)


def _check_kept(kept: Any, n_messages: int, n_entries: int, hidden: bool) -> None:
    """Refuse messages and targets from a checkpoint that are not those of the example: kernels go through them."""
    messages, plain, target = kept
    check_state(
        {"messages": messages, "plain": plain}, {}, {"messages": "float k", "plain": "float k"}, {}, {"k": n_messages}
    )
    if hidden != (target is not None):
        raise ValueError("its soft targets are not those of the hidden labels")
    if hidden:
        check_state({"target": target}, {}, {"target": "float k"}, {}, {"k": n_entries})
