"""Learning with hidden labels by filling them in ([S18] Alg. 3, §4 and §5.2).

    w_1      from the examples whose labels are all known
    fill     what is hidden in the others, by w_1 and given what is known of them: probabilities q (perturb-and-MAP), or
             the most probable labels
    w_12     from all examples, the filled ones weighted by kappa:   (L_1 + kappa L_2) / N_1 + l2 |w|^2         eq. (7)

where N_1 is what L_1, the loss of the complete examples, was divided by for w_1 (their labelled variables): with kappa near
0, w_12 is w_1, and the more is filled in, the less the ridge weighs. Learners see this times N_1 / (N_1 + kappa N_2), a mean
over all examples, for which steps of the same length are right.

Boxes, scribbles and sets of labels are what is known of an example; nothing need be. Objectives that take soft targets
(``marginal_perturb_and_map``) get q, which is more cautious than labels; others (``max_margin``, ``perturb_and_map``) get
labels. Balanced weights of an example are computed again from what was filled in: V_k = sum_d V_d q_d(k).

Cost: two fits, and for each example with hidden labels ``n_samples`` MAP problems (one for hard targets). Memory: the filled
targets of these examples.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from backfield.constraints import check_choice
from backfield.data.sequences import mapped, select
from backfield.errors import InputError
from backfield.graph.labeling import as_labeling, one_hot
from backfield.inference.conditioned import Conditioned
from backfield.inference.sampling.perturb_and_map import PerturbAndMap
from backfield.learners._composite import Composite, Parts, stopped
from backfield.learners.base import Fit, number, whole
from backfield.map_solvers.auto import solve
from backfield.objectives import MarginalPerturbAndMap, MaxMargin, Objective, PerturbAndMapLikelihood, SaddlePoint
from backfield.objectives.base import Target, argmax_labels, balanced
from backfield.registry import get
from backfield.training.evaluators import Task
from backfield.training.examples import Example
from backfield.training.protocols import HasExamples

TARGETS = ("auto", "soft", "hard")
#: Objectives that choose their own MAP solver.
SOLVED = (MarginalPerturbAndMap, MaxMargin, PerturbAndMapLikelihood, SaddlePoint)


@dataclass(frozen=True, repr=False)
class SelfTraining(Composite, name="self_training"):
    """Fit on complete examples, fill in the others, fit on all.

    Parameters
    ----------
    learner
        Spec of the learner of the first fit.
    second
        Spec of the learner of the second fit, which starts from w_1; None: the same.
    kappa
        Weight of the examples that were filled in.
    targets
        "soft": probabilities; "hard": labels; "auto": soft where the objective takes them.
    n_samples
        Draws of noise for the probabilities.
    """

    learner: str = "sgd"
    second: str | None = None
    kappa: float = 1.0
    targets: str = "auto"
    n_samples: int = 100

    requires: ClassVar[tuple[type, ...]] = (HasExamples,)

    def __post_init__(self) -> None:
        number(self.name, "kappa", self.kappa, 0, open_=True)
        whole(self.name, "n_samples", self.n_samples, 1)
        check_choice("targets", self.targets, TARGETS, self.name)
        for spec in (self.learner, self.second or self.learner):
            part = get("learners", spec)
            if part.uses_oracles or isinstance(part, SelfTraining):
                raise InputError(f"self_training takes a learner of weights (sgd, lbfgs, frank_wolfe), not {spec!r}.")

    def _compose(self, problem: Any, w: np.ndarray, parts: Parts) -> Fit:
        """Minimise in two stages; the first has its checkpoint beside the other, named ``.first``."""
        complete = np.array(problem.collect(_is_complete, None))
        first = Fit(w, [], True, "")
        size = 0
        if complete.any():
            task = problem.task
            known = problem.over(select(task.examples, np.flatnonzero(complete).tolist()), task.labelled[complete].tolist())
            first = parts.fit(get("learners", self.learner), known, w, {"stage": 1}, ".first")
            size = known.size
        elif not np.any(w):
            raise InputError(
                "self_training needs at least one example with all labels, or weights to start from (start='independent')."
            )
        if complete.all() or stopped(first):
            return first
        filled = self._filled(problem, first.w, complete, parts.seed)
        every = self._together(problem, filled, size)
        second = parts.fit(get("learners", self.second or self.learner), every, first.w, {"stage": 2})
        how = "soft" if self._soft(problem.objective_info) else "hard"
        message = f"filled in {len(filled)} of {problem.n_examples} examples with {how} targets; {second.message}"
        return Fit(second.w, parts.trace, second.converged, message)

    def check(self, problem: Any) -> None:
        """Refuse problems that cannot be filled in."""
        super().check(problem)
        if self.targets == "soft" and not problem.objective_info.soft_targets:
            raise InputError(
                f"{problem.objective_info.name} takes labels, not probabilities: use self_training(targets='hard'), or the "
                "loss marginal_perturb_and_map."
            )

    def _soft(self, objective: Objective) -> bool:
        return self.targets != "hard" and objective.soft_targets

    def _filled(self, problem: Any, w: np.ndarray, complete: np.ndarray, seed: int) -> dict[int, Target]:
        """Return the targets of the examples that are not complete."""
        numbers = np.flatnonzero(~complete)
        return dict(zip(numbers.tolist(), problem.collect(_fill, numbers, self, w, seed), strict=True))

    def _together(self, problem: Any, filled: dict[int, Target], size: int) -> HasExamples:
        """Return the problem of all examples; ``size`` is N_1, 0 where no example is complete."""
        labelled = _labelled(problem.task, filled)
        whole = problem.over(problem.task.examples, labelled).size
        total = size + self.kappa * (whole - size)
        weigh = partial(_weighted, filled, whole / total, self.kappa * whole / total)
        examples = mapped(weigh, problem.task.examples)
        return problem.over(examples, labelled, size / total if size else 1.0)

    def fill(self, task: Task, at: int, w: np.ndarray, seed: int) -> Target:
        """Return the target of example ``at``, filled in by w."""
        example = task.examples[at]
        target, graph = example.target, example.graph
        assert target is not None
        theta = task.layout.theta(w, example, task.dtype).written_out()
        solver = task.objective.solver if isinstance(task.objective, SOLVED) else "auto"
        try:
            model = Conditioned(theta, target.known(graph))
            assert model.theta is not None
            if self._soft(task.objective):
                run = PerturbAndMap(self.n_samples, seed + at, solver).infer(model.theta)
                hidden = np.repeat(target.labeling.labels < 0, graph.labels)
                soft = model.expand(run.marginals).unary_flat * hidden
                labeling = dataclasses.replace(target.labeling, soft=soft.astype(np.float64))
            else:
                found = solve(model.theta, solver).labels
                indicators = np.concatenate(one_hot(model.theta.graph, found))
                labeling = as_labeling(graph, argmax_labels(model.expand(model.theta.like(indicators))))
        except InputError as error:
            raise InputError(f"example {at}: {error}") from error
        weights = target.weights if target.sizes is None else balanced(graph, target.sizes, labeling)
        return dataclasses.replace(target, labeling=labeling, weights=weights)


def _fill(task: Task, number: int, learner: SelfTraining, w: np.ndarray, seed: int) -> Target:
    return learner.fill(task, number, w, seed)


def _is_complete(task: Task, number: int) -> bool:
    """Whether every variable of an example has a label, observed inputs and soft targets included."""
    example = task.examples[number]
    target = example.target
    assert target is not None
    open_ = target.labeling.labels < 0
    if target.labeling.soft is not None:
        open_ &= np.add.reduceat(target.labeling.soft, example.graph.layout.var_ptr[:-1]) == 0
    if target.observed is not None:
        kept = np.zeros(len(open_), dtype=bool)
        kept[target.observed.restriction.kept_variables] = True
        open_ &= kept
    return not bool(open_.any())


def _labelled(task: Task, filled: dict[int, Target]) -> list[int]:
    count = task.labelled.tolist()
    for n, target in filled.items():
        count[n] = len(target.labeling.labels)
    return count


def _weighted(targets: dict[int, Target], given: float, added: float, example: Example, number: int) -> Example:
    """Return an example with its new target, weighted by ``added``, or where there is none as it was, by ``given``."""
    target = targets.get(number)
    if target is None:
        return dataclasses.replace(example, weight=given * example.weight)
    return dataclasses.replace(example, target=target, weight=added * example.weight)
