"""Structured learning via logistic regression ([L13] Alg. 1): any function class, through an oracle.

    min_F min_lambda  sum_k [ -F(x^k, y^k) + A(lambda^k, theta_F^k) ],     theta_F = eps f + Delta

alternates between messages lambda (star updates of ``smoothed_lp``) and functions f. For fixed messages the best f of all
tied factors solves a logistic regression with a bias on each row (Theorem 4), which is what an oracle does. The value, a
smoothed bound on the margin-rescaled loss, never rises: a fit that would raise it is not taken.

Hidden labels: F(x, y) becomes eps f·q + eps H(q) for marginals q that agree with the known labels, which is the clamped
smoothed maximum where q attains it. q is a third block of the descent: clamped ``smoothed_lp`` proposes one after each fit,
and it is taken unless it raises the value. Rows of hidden variables, and of factors that touch one, have q as soft
targets; an oracle that takes none leaves these rows out, which the trace counts.

Messages are passed, and the sums that the linear oracles need are made, chunk by chunk: by threads, or where the chunks of
examples are on the workers of a cluster (``_oracle_chunk.py``), with the same bytes. Other oracles (trees, networks, your
own) are given all rows of their term, here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from backfield.energies.oracle_backed import OracleEnergy, dense
from backfield.errors import InputError
from backfield.inference.smoothed_lp.method import REGIONS
from backfield.learners._checkpoint import check_state
from backfield.learners._oracle_chunk import KINDS, Chunk, Gathered, Gradient, Plan, Size, Step, Tally, Term
from backfield.learners.base import Ending, Learner, Restored, Run, number, whole
from backfield.oracles import OracleFunction, OracleTask, checked_fit, objective
from backfield.training.examples import Rows
from backfield.training.execution.resident import Here, Resident, There
from backfield.training.execution.threads import chunk_bounds
from backfield.training.problem import Problem
from backfield.training.protocols import HasExamples
from backfield.training.weights import Block

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
    regions : {"variables", "nested"}
        As of ``smoothed_lp``; predict with the same.
    """

    n_rounds: int = 100
    sweeps: int = 25
    eps: float = 0.1
    tol: float = 1e-4
    patience: int = 5
    regions: str = "variables"

    requires: ClassVar[tuple[type, ...]] = (HasExamples,)
    own_start: ClassVar[bool] = True  # functions start at zero
    uses_oracles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for key in ("n_rounds", "sweeps", "patience"):
            whole(self.name, key, getattr(self, key), 1)
        number(self.name, "eps", self.eps, 0.0, open_=True)
        number(self.name, "tol", self.tol, 0.0)
        if self.regions not in REGIONS:
            raise InputError(f"oracle_descent: regions must be one of {', '.join(REGIONS)}; received {self.regions!r}.")

    def minimise(self, problem: Any, w: np.ndarray, run: Run, restored: Restored | None) -> Ending:
        """Fit the functions of all blocks; they are left in the energies of the problem's layout."""
        if isinstance(run.validation, HasExamples):
            run.validation.distribute(None)  # the functions are here
        descent = _Descent(self, problem)
        if restored is None:
            descent.start()
            run.mark(descent.state())
        else:
            with run.restoring():
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
            return Ending(w, False, f"stopped by a callback after round {descent.round}", finished=False)
        descent.take(descent.best or descent.functions)
        if stop == "validation":
            return Ending(w, True, f"the validation value has not improved for {self.patience} rounds")
        if settled:
            return Ending(w, True, f"the last round lowered the value by less than tol={self.tol:g} of it")
        return Ending(w, False, f"stopped after n_rounds={self.n_rounds} rounds")

    def reopen(self, problem: Any, run: Run, restored: Restored) -> None:
        """Put the functions of a finished fit into the energies."""
        descent = _Descent(self, problem)
        descent.restore(run, *restored)
        descent.take(descent.best or descent.functions)


#: The function of each block, unary ones first; None where there is none yet.
Functions = tuple[OracleFunction | None, ...]


@dataclass(frozen=True)
class DescentState:
    """What lasts from round to round. Scores follow from functions and features."""

    round: int
    value: float
    functions: Functions
    best: Functions | None  # of the lowest validation value before this round
    examples: Callable[[], list[Any]]  # gives messages, those without the margin, and soft targets of each example

    def pack(self) -> Restored:
        """Return arrays, and numbers for JSON."""
        arrays: dict[str, np.ndarray] = {}
        numbers: dict[str, Any] = {"round": self.round, "value": self.value}
        for name, functions in (("functions", self.functions), ("best", self.best)):
            numbers[name] = functions and [f and f.meta() for f in functions]
            for k, f in enumerate(functions or ()):
                arrays |= {f"{name}.{k}.{key}": array for key, array in (f.arrays() if f else {}).items()}
        for k, parts in enumerate(self.examples()):
            names = ("messages", "plain", "target")
            arrays |= {f"{key}.{k}": part for key, part in zip(names, parts, strict=True) if part is not None}
        return arrays, numbers


class _Stack:
    """All rows of a term, for an oracle that needs them; the rows of examples in memory become views of it."""

    def __init__(self, problem: Problem, term: Term, n_features: int) -> None:
        parts = []
        weight = [np.empty(0)]
        for example in problem.task.examples:
            rows = example.of(term.kind)[term.place]
            if rows is not None:
                parts.append(dense(rows.features))
                weight.append(np.full(len(parts[-1]), example.weight))
        self.features = np.concatenate(parts) if parts else np.empty((0, n_features))
        self.weight = np.concatenate(weight)
        self.scores = np.zeros((len(self.features), term.n_classes))
        if problem.task.in_memory and problem.cluster is None:
            at = 0
            for example in problem.task.examples:
                own = example.of(term.kind)
                rows = own[term.place]
                if rows is not None:
                    n = rows.features.shape[0]
                    own[term.place] = Rows(rows.index, self.features[at : at + n])
                    at += n


@dataclass(frozen=True)
class _Sums:
    """The rows of a term as oracles see them that need sums alone."""

    parts: Resident
    term: int
    n_features: int
    weight: float

    def mean_squares(self) -> np.ndarray:
        """Return the weighted mean of the square of each feature."""
        total: np.ndarray = self.parts.ask(Chunk.squares, operator.add, self.term)
        return total / self.weight

    def linear_gradient(self, w: np.ndarray, n_features: int) -> tuple[float, np.ndarray]:
        """Return the mean loss of f = W x and its gradient."""
        total: Gradient = self.parts.ask(Chunk.gradient, Gradient.plus, self.term, w, n_features)
        return total.value / self.weight, total.d_w / self.weight

    def loss(self, function: OracleFunction | None) -> float:
        """Return the mean loss of a function, None for f = 0."""
        return float(self.parts.ask(Chunk.loss, operator.add, self.term, function)) / self.weight


@dataclass
class _Descent:
    """The state of a descent: functions in the energies; messages and scores in the chunks."""

    learner: OracleDescent
    problem: Problem
    round: int = 0
    value: float = field(init=False)
    best: Functions | None = None

    def __post_init__(self) -> None:
        layout, problem = self.problem.task.layout, self.problem
        blocks = [(kind, place, block) for kind in KINDS for place, block in enumerate(layout.of(kind))]
        self.energies = [_energy(block) for *_, block in blocks]
        self.terms = tuple(
            Term(kind, place, energy.oracle.name, block.n_outputs, energy.oracle.sums)
            for (kind, place, block), energy in zip(blocks, self.energies, strict=True)
        )
        self.n_features = [block.n_features for *_, block in blocks]
        plan = Plan(self.terms, self.learner.eps, self.learner.sweeps, self.learner.regions, MAX_DENSE)
        n_chunks = problem.n_chunks
        self.bounds = chunk_bounds(problem.n_examples, n_chunks)
        self.parts: Resident = (
            Here(problem, Chunk, plan, n_chunks) if problem.shared is None else There(problem.shared, Chunk, plan, n_chunks)
        )
        size: Size = self.parts.ask(Chunk.size, Size.plus)
        self.labelled, self.weight = max(1, size.labelled), size.weight
        self.n_rows: list[np.ndarray] = size.rows  # of each chunk, for each term
        self.stacks = {t: _Stack(problem, term, self.n_features[t]) for t, term in enumerate(self.terms) if not term.sums}
        self.kinds = [kind for kind in KINDS if self._of(kind)]

    def _of(self, kind: str) -> list[int]:
        """Return the terms of a kind that have rows."""
        return [t for t, term in enumerate(self.terms) if term.kind == kind and sum(rows[t] for rows in self.n_rows)]

    @property
    def functions(self) -> Functions:
        """The functions in the energies."""
        return tuple(energy.function for energy in self.energies)

    def take(self, functions: Functions) -> None:
        """Put functions into the energies."""
        for energy, function in zip(self.energies, functions, strict=True):
            energy.function = function

    # ---- starting, keeping and going on ----

    def start(self) -> None:
        """Start from f = 0."""
        self.take((None,) * len(self.terms))
        self.parts.move(Chunk.begin, operator.add, None)
        self._advance([], Step(passes=True, looks=False, then=self.kinds[0]))

    def state(self) -> DescentState:
        """Return what has to be kept to go on."""
        kept = self.parts.later(Chunk.kept, operator.add)
        return DescentState(self.round, self.value, self.functions, self.best, kept)

    def restore(self, run: Run, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> None:
        """Go on from a state that was packed."""
        check_state(arrays, numbers, {}, {"round": int, "value": float}, {})
        self.round = numbers["round"]
        self.take(self._functions("functions", arrays, numbers))
        self.best = self._functions("best", arrays, numbers) if numbers["best"] is not None else None
        kept = [
            (arrays[f"messages.{k}"], arrays[f"plain.{k}"], arrays.get(f"target.{k}")) for k in range(self.bounds[-1][1])
        ]
        self.parts.move(Chunk.begin, operator.add, [kept[first:last] for first, last in self.bounds])
        for t, stack in self.stacks.items():
            function = self.energies[t].function
            if function is not None and len(stack.features):
                stack.scores = function.scores(stack.features)
        present = [t for kind in self.kinds for t in self._of(kind) if self.energies[t].function is not None]
        self._advance(present, Step(passes=False, looks=False, then=self.kinds[0]))
        self.value = numbers["value"]
        self.watch(run)

    def _functions(self, name: str, arrays: dict[str, np.ndarray], numbers: dict[str, Any]) -> Functions:
        out: list[OracleFunction | None] = []
        for k, (energy, meta) in enumerate(zip(self.energies, numbers[name], strict=True)):
            prefix = f"{name}.{k}."
            own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            out.append(None if meta is None else energy.oracle.function_class.from_arrays(own, meta))
        return tuple(out)

    def watch(self, run: Run) -> None:
        """Remember the functions if the last row has the lowest validation value."""
        if run.validation is not None and run.best.waited == 0:
            self.best = self.functions

    # ---- the alternation ----

    def step(self, seed: int) -> dict[str, Any]:
        """Fit all functions once, messages after the unary ones and after those of factors; return a row of the trace."""
        rejected = left_out = wrong = 0
        for kind, then in zip(self.kinds, [*self.kinds[1:], self.kinds[0]], strict=True):
            fitted = []
            for t in self._of(kind):
                taken, left = self._fit_sums(t) if self.terms[t].sums else self._fit_rows(t, seed + self.round)
                rejected, left_out = rejected + (not taken), left_out + left
                fitted += [t] if taken else []
            wrong = self._advance(fitted, Step(passes=True, looks=kind == self.kinds[-1], then=then))
        self.round += 1
        return {
            "iteration": self.round,
            "objective": self.value,
            "error": wrong / self.labelled,
            "rejected": rejected,
            "left_out": left_out,
            "sweeps": self.learner.sweeps * len({term.kind for term in self.terms}),
            "examples": self.problem.n_examples,
        }

    def _advance(self, terms: list[int], step: Step) -> int:
        """Give the chunks the functions of some terms, or the scores of gathered ones; return how many labels are wrong."""
        functions = {t: self.energies[t].function for t in terms if self.terms[t].sums}
        gathered = [t for t in terms if not self.terms[t].sums]
        scores = None
        if gathered:
            ends = np.cumsum(self.n_rows, axis=0)
            scores = [
                {t: self.stacks[t].scores[end[t] - rows[t] : end[t]] for t in gathered}
                for rows, end in zip(self.n_rows, ends, strict=True)
            ]
        tally: Tally = self.parts.move(Chunk.advance, Tally.plus, scores, functions, step)
        self.value = tally.value / self.labelled
        return tally.wrong

    def _fit_sums(self, t: int) -> tuple[bool, int]:
        """Fit a function from sums over the rows; return whether it was taken, and how many rows were left out."""
        energy, rows = self.energies[t], _Sums(self.parts, t, self.n_features[t], float(self.weight[t]))
        function = energy.oracle.fit_sums(rows, n_classes=self.terms[t].n_classes, start=energy.function)
        if not rows.loss(function) <= rows.loss(energy.function):
            return False, 0
        energy.function = function
        return True, 0

    def _fit_rows(self, t: int, seed: int) -> tuple[bool, int]:
        """Fit a function to all rows of a term."""
        energy, stack = self.energies[t], self.stacks[t]
        parts: list[Gathered] = self.parts.ask(Chunk.gathered, operator.add, t)
        bias, target, soft = (np.concatenate(each) for each in zip(*parts, strict=True))
        labels: np.ndarray = target if soft.any() else target.argmax(axis=1)
        use: Any = slice(None)
        if soft.any() and not energy.oracle.supports_soft_targets:
            use, labels = ~soft, target.argmax(axis=1)
        left = int(soft.sum()) if not isinstance(use, slice) else 0
        # The oracle's rows weigh what the example weighs.
        start = energy.function
        rows = stack.features[use], labels[use], bias[use], stack.weight[use]
        task = OracleTask(*rows, start=start, seed=seed, n_jobs=self.problem.n_jobs)
        fit = checked_fit(energy.oracle, task, start_scores=None if start is None else stack.scores[use])
        scores, loss, before = fit.scores, fit.loss, fit.loss_before
        if left:
            scores = fit.function.scores(stack.features)
            loss, before = (objective(each, target, bias, stack.weight) for each in (scores, stack.scores))
        if loss > before:
            return False, left
        energy.function, stack.scores = fit.function, scores
        return True, left


def _energy(block: Block) -> OracleEnergy:
    if not isinstance(block.energy, OracleEnergy):
        raise InputError(f"oracle_descent needs oracles for energies, not {block.energy!r}; see `backfield list oracles`.")
    return block.energy
