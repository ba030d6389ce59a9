"""Structured learning via logistic regression ([L13] Alg. 1): any function class, through an oracle.

    min_F min_lambda  sum_k [ -F(x^k, y^k) + A(lambda^k, theta_F^k) ],     theta_F = eps f + Delta

alternates between messages lambda (star updates of ``smoothed_lp``) and functions f. For fixed messages the best f of all
tied factors solves a logistic regression with a bias on each row (Theorem 4), which is what an oracle does. The value, a
smoothed bound on the margin-rescaled loss, never rises: a fit that would raise it is not taken.

Hidden labels: F(x, y) becomes eps f·q + eps H(q) for marginals q that agree with the known labels, which is the clamped
smoothed maximum where q attains it. q is a third block of the descent: clamped ``smoothed_lp`` proposes one after each fit,
and it is taken unless it raises the value. Rows of hidden variables, and of factors that touch one, have q as soft
targets; an oracle that takes none leaves these rows out, which the trace counts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from backfield._component import get
from backfield.energies.oracle_backed import OracleEnergy, dense
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.conditioning import Restriction
from backfield.graph.labeling import factor_entries, one_hot
from backfield.inference._smoothed_lp import biases
from backfield.inference.smoothed_lp import SmoothedLP
from backfield.learners._base import Learner, number, whole
from backfield.learners._problem import dot
from backfield.learners._run import Outcome, Restored, Run
from backfield.objectives._base import Conditioned, argmax_labels, both
from backfield.objectives.max_margin import margin
from backfield.oracles import OracleFunction, checked_fit, objective
from backfield.problem import Block, Example, Problem, Rows

#: Sweeps of each round for the error in the trace; their messages, of the model without the margin, are kept.
ERROR_SWEEPS = 5
KINDS = ("unary", "factors")
#: Bytes that sparse features may take as an array.
MAX_DENSE = 4 << 30


@dataclass(frozen=True, repr=False)
class OracleDescent(Learner, name="oracle_descent"):
    """Alternate message passing and oracle fits.

    Parameters
    ----------
    n_rounds : int
        Rounds at the most; each fits the unary functions, then the functions of the factors.
    sweeps : int
        Message-passing iterations after each fit.
    eps : float
        Strength of the entropy; [L13] uses 0.1. Predict with ``inference="smoothed_lp(eps=...)"`` of the same.
    tol : float
        Stop when a round whose fits were all taken lowers the value by less than this share.
    patience : int
        Rounds without a new lowest validation value after which the fit stops.
    """

    n_rounds: int = 100
    sweeps: int = 25
    eps: float = 0.1
    tol: float = 1e-4
    patience: int = 5

    needs_value: ClassVar[bool] = False
    own_start: ClassVar[bool] = True  # functions start at zero
    distributes: ClassVar[bool] = False
    #: Uses examples, not values and gradients; estimators hand it oracles for energies.
    uses_oracles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for key in ("n_rounds", "sweeps", "patience"):
            whole(self.name, key, getattr(self, key), 1)
        number(self.name, "eps", self.eps, 0.0, open_=True)
        number(self.name, "tol", self.tol, 0.0)

    def _minimise(self, problem: Any, w: np.ndarray, run: Run, restored: Restored | None) -> Outcome:
        """Fit the functions of all blocks; they are left in the energies of the problem's layout."""
        descent = _Descent(self, problem)
        if restored is None:
            descent.start()
            run.mark(descent.state())
        else:
            descent.restore(run, *restored)
        stop, settled = run.verdict(), False
        while descent.round < self.n_rounds and not stop and not settled:
            before = descent.value
            row = descent.step(run.seed)
            # A fit that was not taken may be the next time, from another seed.
            settled = not row["rejected"] and before - descent.value <= self.tol * abs(before)
            stop = run.record(w, row, descent.state(), self.n_rounds)
            descent.watch(run)
        if stop == "callback":
            return Outcome(w, False, f"stopped by a callback after round {descent.round}", finished=False)
        descent.take(descent.best or descent.functions)
        if stop == "validation":
            return Outcome(w, True, f"the validation value has not improved for {self.patience} rounds")
        if settled:
            return Outcome(w, True, f"the last round lowered the value by less than tol={self.tol:g} of it")
        return Outcome(w, False, f"stopped after n_rounds={self.n_rounds} rounds")

    def _reopen(self, problem: Any, run: Run, restored: Restored) -> None:
        """Put the functions of a finished fit into the energies."""
        descent = _Descent(self, problem)
        descent.restore(run, *restored)
        descent.take(descent.best or descent.functions)


#: The function of each block, unary ones first; None where there is none yet.
Functions = tuple[OracleFunction | None, ...]


@dataclass(frozen=True)
class _State:
    """What lasts from round to round. Scores follow from functions and features."""

    round: int
    value: float
    functions: Functions
    best: Functions | None  # of the lowest validation value before this round
    examples: tuple[tuple[np.ndarray, np.ndarray, np.ndarray | None], ...]  # messages, without the margin, soft targets
    specs: list[str]

    def pack(self) -> Restored:
        arrays: dict[str, np.ndarray] = {}
        numbers: dict[str, Any] = {"round": self.round, "value": self.value, "oracles": self.specs}
        for name, functions in (("functions", self.functions), ("best", self.best)):
            numbers[name] = functions and [f and f.meta() for f in functions]
            for k, f in enumerate(functions or ()):
                arrays |= {f"{name}.{k}.{key}": array for key, array in (f.arrays() if f else {}).items()}
        for k, parts in enumerate(self.examples):
            names = ("messages", "plain", "target")
            arrays |= {f"{key}.{k}": part for key, part in zip(names, parts, strict=True) if part is not None}
        return arrays, numbers


class _Term:
    """The rows of one block in all examples, in one array that the examples' rows become views of."""

    def __init__(self, block: Block, kind: str, place: int, examples: list[Example]) -> None:
        if not isinstance(block.energy, OracleEnergy):
            raise InputError(
                f"oracle_descent needs oracles for energies, not {block.energy!r}; see `backfield list oracles`."
            )
        self.kind, self.energy, self.n_classes = kind, block.energy, block.n_outputs
        self.oracle = block.energy.oracle
        parts = [(k, getattr(example, kind)[place]) for k, example in enumerate(examples)]
        _check_size([rows.features for _, rows in parts if rows is not None], self.oracle)
        self.parts: list[tuple[int, slice, np.ndarray]] = []  # example, its rows here, their entries in flat tables
        self.index: list[tuple[int, Any]] = []  # example, its variables or factors
        features, at = [], 0
        for k, rows in parts:
            if rows is None:
                continue
            x = dense(rows.features)
            features.append(x)
            self.parts.append((k, slice(at, at + len(x)), _entries(examples[k].graph, kind, rows.index, self.n_classes)))
            self.index.append((k, rows.index))
            at += len(x)
        self.features = np.concatenate(features) if features else np.empty((0, block.n_features))
        self.weight = np.empty(at)
        for k, rows, _ in self.parts:
            self.weight[rows] = examples[k].weight
            own = getattr(examples[k], kind)
            own[place] = Rows(own[place].index, self.features[rows])
        self.scores = np.zeros((at, self.n_classes))

    def gather(self, flat: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return the rows (N, K) of a quantity given as flat tables of each example."""
        out = np.empty((len(self.features), self.n_classes))
        for k, rows, entries in self.parts:
            np.take(flat(k), entries, out=out[rows])
        return out


@dataclass
class _Memory:
    """What descent keeps of an example."""

    example: Example
    delta: Potentials
    target: Potentials  # indicators of the labels; marginals given the known ones where some are hidden
    known: tuple[np.ndarray, np.ndarray]  # variables and factors whose labels are all known
    messages: np.ndarray
    plain: np.ndarray  # messages of the model without the margin
    scores: Potentials  # f of all rows, without eps
    restriction: Restriction | None  # to the known labels, where some are hidden
    dual: float = 0.0
    wrong: int = 0

    @property
    def complete(self) -> bool:
        """Whether no label is hidden."""
        return bool(self.known[0].all())


@dataclass
class _Descent:
    """The state of a descent: functions in the energies, messages and scores of each example."""

    learner: OracleDescent
    problem: Problem
    round: int = 0
    value: float = field(init=False)
    best: Functions | None = None

    def __post_init__(self) -> None:
        layout, examples = self.problem.layout, list(self.problem.examples)
        self.terms = [
            _Term(block, kind, place, examples) for kind in KINDS for place, block in enumerate(getattr(layout, kind))
        ]
        self.method = SmoothedLP(n_iter=self.learner.sweeps, eps=self.learner.eps)
        self.memories = [self._memory(example) for example in examples]
        self.labelled = max(1, sum(int(memory.known[0].sum()) for memory in self.memories))

    @property
    def functions(self) -> Functions:
        """The functions in the energies."""
        return tuple(term.energy.function for term in self.terms)

    def take(self, functions: Functions) -> None:
        """Put functions into the energies."""
        for term, function in zip(self.terms, functions, strict=True):
            term.energy.function = function

    def _memory(self, example: Example) -> _Memory:
        graph, target = example.graph, example.target
        assert target is not None
        if target.labeling.has_sets or target.observed is not None:
            raise InputError("oracle_descent takes labels or -1, not sets of labels nor observed inputs.")
        labels = target.labeling.labels
        unary, factors = one_hot(graph, labels)
        zero = Potentials.from_flat(graph, np.zeros(len(unary)), np.zeros(len(factors)))
        n_messages = int(graph.layout.msg_ptr[-1])
        return _Memory(
            example=example,
            delta=Potentials.from_flat(graph, margin(zero, target), np.zeros(len(factors))),
            target=Potentials.from_flat(graph, unary.astype(np.float64), factors.astype(np.float64)),
            known=(labels >= 0, factor_entries(graph, labels)[1]),
            messages=np.zeros(n_messages),
            plain=np.zeros(n_messages),
            scores=zero,
            restriction=None if (labels >= 0).all() else both(graph, target),
        )

    # ---- starting, keeping and going on ----

    def start(self) -> None:
        """Start from f = 0."""
        self.take((None,) * len(self.terms))
        for memory in self.memories:
            if not memory.complete:
                memory.target = self._clamped(memory)
        self._pass_messages()

    def state(self) -> _State:
        """Return what has to be kept to go on."""
        examples = tuple((m.messages, m.plain, None if m.complete else m.target.vector()) for m in self.memories)
        return _State(self.round, self.value, self.functions, self.best, examples, [repr(t.oracle) for t in self.terms])

    def restore(self, run: Run, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> None:
        """Go on from a state that was packed."""
        ours = [repr(term.oracle) for term in self.terms]
        if numbers["oracles"] != ours:
            theirs = ", ".join(numbers["oracles"])
            raise InputError(
                f"the checkpoint has oracles {theirs} and this fit has {', '.join(ours)}; they cannot be joined."
            )
        self.round, self.value = numbers["round"], numbers["value"]
        self.take(self._functions("functions", arrays, numbers))
        self.best = self._functions("best", arrays, numbers) if numbers["best"] is not None else None
        for k, memory in enumerate(self.memories):
            memory.messages, memory.plain = arrays[f"messages.{k}"], arrays[f"plain.{k}"]
            if not memory.complete:
                memory.target = memory.target.like(arrays[f"target.{k}"])
        for term in self.terms:
            if term.energy.function is not None and len(term.features):
                self._set_scores(term, term.energy.function.scores(term.features))
        self.watch(run)

    def _functions(self, name: str, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Functions:
        out: list[OracleFunction | None] = []
        for k, (term, meta) in enumerate(zip(self.terms, numbers[name], strict=True)):
            prefix = f"{name}.{k}."
            own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            out.append(None if meta is None else term.oracle.function_class.from_arrays(own, meta))
        return tuple(out)

    def watch(self, run: Run) -> None:
        """Remember the functions if the last row has the lowest validation value."""
        if run.validation is not None and run.best.waited == 0:
            self.best = self.functions

    # ---- the alternation ----

    def step(self, seed: int) -> dict[str, Any]:
        """Fit all functions once, messages after the unary ones and after those of factors; return a row of the trace."""
        rejected = left_out = 0
        for kind in KINDS:
            terms = [term for term in self.terms if term.kind == kind and len(term.features)]
            given = [biases(m.example.graph, m.messages, self.learner.eps, m.delta) for m in self.memories] if terms else []
            for term in terms:
                taken, left = self._fit(term, given, seed + self.round)
                rejected, left_out = rejected + (not taken), left_out + left
            if terms:
                self._pass_messages()
        self.round += 1
        self._each(self._look)
        return {
            "iteration": self.round,
            "objective": self.value,
            "error": sum(memory.wrong for memory in self.memories) / self.labelled,
            "rejected": rejected,
            "left_out": left_out,
            "sweeps": self.learner.sweeps * len({term.kind for term in self.terms}),
            "examples": len(self.memories),
        }

    def _fit(self, term: _Term, given: list[Potentials], seed: int) -> tuple[bool, int]:
        """Fit one function given the messages; return whether it was taken, and how many rows were left out."""
        bias = term.gather(lambda k: _flat(given[k], term.kind))
        known = KINDS.index(term.kind)
        soft = np.concatenate([~self.memories[k].known[known][index] for k, index in term.index])
        target = term.gather(lambda k: _flat(self.memories[k].target, term.kind))
        labels: np.ndarray = target if soft.any() else target.argmax(axis=1)
        use: Any = slice(None)
        if soft.any() and not term.oracle.supports_soft_targets:
            use, labels = ~soft, target.argmax(axis=1)
        left = int(soft.sum()) if not isinstance(use, slice) else 0
        # The oracle's rows weigh what the example weighs.
        start = term.energy.function
        fit = checked_fit(
            term.oracle, term.features[use], labels[use], bias[use], term.weight[use], n_classes=term.n_classes,
            start=start, start_scores=None if start is None else term.scores[use], seed=seed, n_jobs=self.problem.n_jobs,
        )  # fmt: skip
        scores, loss, before = fit.scores, fit.loss, fit.loss_before
        if left:
            scores = fit.function.scores(term.features)
            loss, before = (objective(each, target, bias, term.weight) for each in (scores, term.scores))
        if loss > before:
            return False, left
        term.energy.function = fit.function
        self._set_scores(term, scores)
        return True, left

    def _set_scores(self, term: _Term, scores: np.ndarray) -> None:
        term.scores = scores
        for k, rows, entries in term.parts:
            _flat(self.memories[k].scores, term.kind)[entries] = scores[rows]

    def _each(self, do: Callable[[_Memory], None]) -> None:
        if self.problem.n_jobs > 1:
            with ThreadPoolExecutor(self.problem.n_jobs) as pool:
                list(pool.map(do, self.memories))
        else:
            for memory in self.memories:
                do(memory)

    def _pass_messages(self) -> None:
        def one(memory: _Memory) -> None:
            engine = self.method.engine(self._theta(memory, memory.delta))
            state = engine.state_of(memory.messages)
            engine.sweeps(state, 0, self.learner.sweeps)
            memory.messages, memory.dual = engine.messages(state), float(engine.dual(state))
            if not memory.complete:
                target = self._clamped(memory)
                if self._right(memory, target) > self._right(memory, memory.target):
                    memory.target = target

        self._each(one)
        losses = (m.example.weight * (m.dual - self._right(m, m.target)) for m in self.memories)
        self.value = float(sum(losses)) / self.labelled

    def _theta(self, memory: _Memory, delta: Potentials | None = None) -> Potentials:
        unary, factors = (self.learner.eps * flat for flat in (memory.scores.unary_flat, memory.scores.factors_flat))
        if delta is not None:
            unary += delta.unary_flat  # the margin of factors is 0
        return Potentials.from_flat(memory.example.graph, unary, factors)

    def _clamped(self, memory: _Memory) -> Potentials:
        """Return the marginals given the known labels, without the margin."""
        model = Conditioned(self._theta(memory), memory.restriction)
        assert model.theta is not None  # something is hidden
        return model.expand(model.method(self.method).infer(model.theta).marginals)

    def _right(self, memory: _Memory, target: Potentials) -> float:
        """Return eps f·q + eps H(q): what the labels are worth."""
        q = target.vector()
        value = dot(memory.scores.vector(), q)
        if not memory.complete:
            q = q[q > 0]
            value -= dot(q, np.log(q))
        return self.learner.eps * value

    def _look(self, memory: _Memory) -> None:
        """Count the labelled variables whose most probable label, without the margin, is wrong."""
        assert memory.example.target is not None
        engine = self.method.engine(self._theta(memory))
        state = engine.state_of(memory.plain)
        engine.sweeps(state, 0, ERROR_SWEEPS)
        memory.plain = engine.messages(state)
        best = argmax_labels(engine.marginals(state, factors=False))
        memory.wrong = int((best != memory.example.target.labeling.labels)[memory.known[0]].sum())


def _check_size(features: list[Any], oracle: Any) -> None:
    """Refuse sparse rows, such as those of words, that would not fit into memory as an array."""
    size = sum(x.shape[0] * x.shape[1] * x.dtype.itemsize for x in features if hasattr(x, "toarray"))
    if size > MAX_DENSE:
        n, m = sum(x.shape[0] for x in features), features[0].shape[1]
        raise InputError(
            f"oracle {oracle.name!r} takes dense features: {n} rows of {m} features would need {size / 2**30:.0f} GB; "
            "give it fewer features, or learn linear energies with another learner."
        )


def _flat(theta: Potentials, kind: str) -> np.ndarray:
    return theta.unary_flat if kind == "unary" else theta.factors_flat


def _entries(graph: Any, kind: str, index: Any, n_outputs: int) -> np.ndarray:
    ptr = graph.layout.var_ptr if kind == "unary" else graph.layout.table_ptr
    return ptr[:-1][index][:, None] + np.arange(n_outputs)


def oracle_energy(spec: Any, eps: float) -> OracleEnergy:
    """Return the energy of an oracle given as a part or its spec."""
    return OracleEnergy(get("oracles", spec), eps)
