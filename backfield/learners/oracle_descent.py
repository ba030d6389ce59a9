"""Structured learning via logistic regression ([L13] Alg. 1): any function class, through an oracle.

    min_F min_lambda  sum_k [ -F(x^k, y^k) + A(lambda^k, theta_F^k) ],     theta_F = eps f + Delta

alternates between messages lambda (star updates of ``smoothed_lp``) and functions f. For fixed messages the best f of all
tied factors solves a logistic regression with a bias on each row (Theorem 4), which is what an oracle does. The value, a
smoothed bound on the margin-rescaled loss, never rises: a fit that would raise it is not taken.

Hidden labels: with F(x, y) replaced by its clamped smoothed maximum, rows of hidden variables and of factors that touch one
get the clamped marginals as soft targets; an oracle that takes none leaves these rows out, which the trace counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from backfield._component import get
from backfield.energies.oracle_backed import OracleEnergy
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import factor_entries, one_hot
from backfield.inference._smoothed_lp import biases
from backfield.inference.smoothed_lp import SmoothedLP
from backfield.learners._base import Learner, number, whole
from backfield.learners._run import Fit, Row
from backfield.objectives._base import Conditioned, both
from backfield.oracles import checked_fit
from backfield.problem import Block, Example, Problem


@dataclass(frozen=True, repr=False)
class OracleDescent(Learner, name="oracle_descent"):
    """Alternate message passing and oracle fits.

    Parameters
    ----------
    n_rounds : int
        Rounds; each fits the unary functions, then the functions of the factors.
    sweeps : int
        Message-passing iterations after each fit.
    eps : float
        Strength of the entropy; [L13] uses 0.1.
    tol : float
        Stop when a round lowers the value by less than this share.
    """

    n_rounds: int = 20
    sweeps: int = 25
    eps: float = 0.1
    tol: float = 1e-4

    needs_value: ClassVar[bool] = False
    #: Uses examples, not values and gradients; estimators hand it oracles for energies.
    uses_oracles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole(self.name, "n_rounds", self.n_rounds, 1)
        whole(self.name, "sweeps", self.sweeps, 1)
        number(self.name, "eps", self.eps, 0.0, open_=True)
        number(self.name, "tol", self.tol, 0.0)

    def fit(  # type: ignore[override]
        self,
        problem: Problem,
        w: np.ndarray,
        *,
        callbacks: Sequence[Any] = (),
        checkpoint: Any = None,
        resume: bool = False,
        seed: int = 0,
        validation: Any = None,
        progress: Callable[[Row], Any] | None = None,
        **_: Any,
    ) -> Fit:
        """Fit the functions of all blocks; they are left in the energies of the problem's layout."""
        if checkpoint is not None or validation is not None:
            raise InputError(
                "oracle_descent takes no checkpoint and no validation data yet; save the model when it is done."
            )
        run = _Descent(self, problem, seed)
        trace: list[Row] = []
        start = time.monotonic()
        message = f"stopped after n_rounds={self.n_rounds} rounds"
        for round_ in range(self.n_rounds):
            before = run.value
            rejected = [run.fit_block(block, kind, seed + round_) for kind, block in run.blocks]
            row: Row = {
                "iteration": round_ + 1,
                "objective": run.value,
                "error": run.error_rate(),
                "rejected": int(sum(rejected)),
                "left_out": run.left_out,
                "sweeps": self.sweeps * len(run.blocks),
                "seconds": time.monotonic() - start,
            }
            trace.append(row)
            if progress is not None:
                progress({**row, "total": self.n_rounds})
            stop = [callback(round_ + 1, w, row) for callback in callbacks]
            if any(stop) or before - run.value <= self.tol * abs(before):
                message = "a callback stopped it" if any(stop) else "the value has settled"
                break
        return Fit(w=w, trace=trace, converged=message == "the value has settled", message=message)


@dataclass
class _Memory:
    """What descent keeps of an example."""

    example: Example
    delta: Potentials
    target: Potentials  # indicators of the labels, or soft targets
    known: tuple[np.ndarray, np.ndarray]  # variables and factors whose labels are all known
    messages: np.ndarray
    scores: Potentials  # f of all rows, without eps
    mu: Potentials | None = None
    dual: float = 0.0
    clamped: float = 0.0  # log-partition counterpart of the known labels, where some are hidden


@dataclass
class _Descent:
    """The state of a descent: functions in the energies, messages and scores of each example."""

    learner: OracleDescent
    problem: Problem
    seed: int
    left_out: int = 0
    value: float = field(init=False)

    def __post_init__(self) -> None:
        layout = self.problem.layout
        self.blocks: list[tuple[str, Block]] = [("unary", block) for block in layout.unary]
        self.blocks += [("factors", block) for block in layout.factors]
        for _, block in self.blocks:
            if not isinstance(block.energy, OracleEnergy):
                raise InputError(
                    f"oracle_descent needs oracles for energies, not {block.energy!r}; see `backfield list oracles`."
                )
        self.method = SmoothedLP(n_iter=self.learner.sweeps, eps=self.learner.eps)
        self.memories = [self._memory(example) for example in self.problem.examples]
        self.labelled = max(1, sum(int(memory.known[0].sum()) for memory in self.memories))
        self._pass_messages()

    def _memory(self, example: Example) -> _Memory:
        graph, target = example.graph, example.target
        assert target is not None
        if target.labeling.has_sets or target.observed is not None:
            raise InputError("oracle_descent takes labels or -1, not sets of labels nor observed inputs.")
        labels = target.labeling.labels
        unary, factors = one_hot(graph, labels)
        known = labels >= 0
        complete = factor_entries(graph, labels)[1]
        margin = np.repeat(known, graph.labels) * (1.0 - unary)
        zero = np.zeros_like(factors)
        return _Memory(
            example=example,
            delta=Potentials.from_flat(graph, margin, zero),
            target=Potentials.from_flat(graph, unary, factors),
            known=(known, complete),
            messages=np.zeros(int(graph.layout.msg_ptr[-1])),
            scores=Potentials.from_flat(graph, np.zeros_like(unary), zero.copy()),
        )

    def _each(self, do: Callable[[_Memory], None]) -> None:
        if self.problem.n_jobs > 1:
            with ThreadPoolExecutor(self.problem.n_jobs) as pool:
                list(pool.map(do, self.memories))
        else:
            for memory in self.memories:
                do(memory)

    def _theta(self, memory: _Memory) -> Potentials:
        eps = self.learner.eps
        return Potentials.from_flat(
            memory.example.graph,
            eps * memory.scores.unary_flat + memory.delta.unary_flat,
            eps * memory.scores.factors_flat + memory.delta.factors_flat,
        )

    def _pass_messages(self) -> None:
        def one(memory: _Memory) -> None:
            engine = self.method.engine(self._theta(memory))
            state = engine.state_of(memory.messages)
            engine.sweeps(state, 0, self.learner.sweeps)
            memory.messages = engine.messages(state)
            memory.dual = float(engine.dual(state))
            memory.mu = engine.marginals(state, factors=False)
            self._clamp(memory)

        self._each(one)
        self.value = sum(memory.example.weight * self._loss(memory) for memory in self.memories) / self.labelled

    def _clamp(self, memory: _Memory) -> None:
        """Set soft targets of what is hidden: the marginals given the known labels, without the margin."""
        if memory.known[0].all():
            return
        assert memory.example.target is not None
        scaled = memory.scores.like(self.learner.eps * memory.scores.vector())
        model = Conditioned(scaled, both(memory.example.graph, memory.example.target))
        assert model.theta is not None  # something is hidden
        run = self.method.infer(model.theta)
        memory.target = model.expand(run.marginals)
        memory.clamped = run.log_partition + float(model.constant)

    def _loss(self, memory: _Memory) -> float:
        if memory.known[0].all():
            right = self.learner.eps * float(memory.scores.vector() @ memory.target.vector())
        else:
            right = memory.clamped
        return memory.dual - right

    def fit_block(self, block: Block, kind: str, seed: int) -> bool:
        """Fit one block's function given the messages, then pass messages; return whether the fit was rejected."""
        energy = block.energy
        assert isinstance(energy, OracleEnergy)
        rows = [self._rows(memory, block, kind) for memory in self.memories]
        features, bias, target, weight, soft = _stack([row for row in rows if row is not None])
        if len(features) == 0:
            return False
        use = ~soft if not energy.oracle.supports_soft_targets else np.ones(len(soft), dtype=bool)
        self.left_out = int((~use).sum())
        labels: np.ndarray = target[use]
        if not soft[use].any():
            labels = labels.argmax(axis=1)
        # The oracle's rows weigh what the example weighs.
        fit = checked_fit(
            energy.oracle, features[use], labels, bias[use], weight[use], n_classes=block.n_outputs,
            start=energy.function, seed=seed, n_jobs=self.problem.n_jobs,
        )  # fmt: skip
        rejected = fit.loss > fit.loss_before + 1e-9 * abs(fit.loss_before) and energy.function is not None
        if not rejected:
            energy.function = fit.function
            self._each(lambda memory: self._rescore(memory, block, kind))
        self._pass_messages()
        return rejected

    def _index(self, memory: _Memory, block: Block, kind: str) -> Any:
        layout = self.problem.layout
        number_ = getattr(layout, kind).index(block)
        return getattr(memory.example, kind)[number_]

    def _rows(self, memory: _Memory, block: Block, kind: str) -> tuple[np.ndarray, ...] | None:
        rows = self._index(memory, block, kind)
        if rows is None:
            return None
        graph = memory.example.graph
        bias = biases(graph, memory.messages, self.learner.eps, memory.delta)
        flat, soft, known = (
            (bias.unary_flat, memory.target.unary_flat, memory.known[0])
            if kind == "unary"
            else (bias.factors_flat, memory.target.factors_flat, memory.known[1])
        )
        at = _entries(graph, kind, rows.index, block.n_outputs)
        features = rows.features.toarray() if hasattr(rows.features, "toarray") else rows.features
        weight = np.full(len(features), memory.example.weight)
        return features, flat[at], soft[at], weight, ~known[rows.index]

    def _rescore(self, memory: _Memory, block: Block, kind: str) -> None:
        rows = self._index(memory, block, kind)
        energy = block.energy
        if rows is None:
            return
        assert isinstance(energy, OracleEnergy) and energy.function is not None
        features = rows.features.toarray() if hasattr(rows.features, "toarray") else rows.features
        flat = memory.scores.unary_flat if kind == "unary" else memory.scores.factors_flat
        flat[_entries(memory.example.graph, kind, rows.index, block.n_outputs)] = energy.function.scores(features)

    def error_rate(self) -> float:
        """Return the share of labelled variables whose largest margin-augmented marginal is wrong."""
        wrong = 0
        for memory in self.memories:
            graph, labels = memory.example.graph, memory.example.target.labeling.labels  # type: ignore[union-attr]
            assert memory.mu is not None
            best = (
                np.array([row.argmax() for row in memory.mu.unary]) if graph.n_labels is None else memory.mu.unary.argmax(1)
            )
            wrong += int((best != labels)[memory.known[0]].sum())
        return wrong / self.labelled


def _entries(graph: Any, kind: str, index: Any, n_outputs: int) -> np.ndarray:
    ptr = graph.layout.var_ptr if kind == "unary" else graph.layout.table_ptr
    return ptr[:-1][index][:, None] + np.arange(n_outputs)


def _stack(rows: list[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    if not rows:
        return [np.empty(0)] * 5
    return [np.concatenate(parts) for parts in zip(*rows, strict=True)]


def oracle_energy(spec: Any, eps: float) -> OracleEnergy:
    """Return the energy of an oracle given as a part or its spec."""
    return OracleEnergy(get("oracles", spec), eps)
