"""From X and y to weights. What a fit learns is one object, which the estimator takes when all went well."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from backfield.constraints import check
from backfield.data.label_sets import LabelSets
from backfield.data.packed import open_data
from backfield.data.sequences import Lazy, checked_sequence, is_lazy, mapped
from backfield.energies import Given, ObservedConstant, ObservedLinear
from backfield.energies.observed_linear import observed_pairs
from backfield.errors import ConvergenceWarning, InputError
from backfield.estimators._assembly import Assembler, Classes, Learned, Reader, Survey, Surveyor, located, node_features
from backfield.estimators._guard import STRENGTHS, Guard
from backfield.estimators._progress import Progress
from backfield.estimators._settings import FIT, Settings, part_of
from backfield.estimators.selection import choose
from backfield.graph.labeling import as_labeling, factor_entries
from backfield.learners import Incremental, Learner
from backfield.learners.base import Fit
from backfield.objectives import Setting, get_objective
from backfield.scikit_learn import ConvergenceWarning as SklearnConvergenceWarning
from backfield.structures import BlockSize, Instance
from backfield.training.examples import Example
from backfield.training.execution import N_CHUNKS, active
from backfield.training.problem import Problem
from backfield.training.weights import WeightLayout, is_auto

#: The ridge "auto" of examples that come bit by bit, whose number nobody knows: alpha of scikit-learn's SGDClassifier.
_STREAM = 1e-4
#: A gradient is far from the tolerance where it is so many times as large.
_FAR = 100.0


class FitWarning(ConvergenceWarning, SklearnConvergenceWarning):
    """A fit stopped far from its tolerance; scikit-learn's filters know it."""


#: (iteration, w, row of the trace) -> stop?
Callback = Callable[[int, np.ndarray, dict[str, Any]], Any]
Pairs = Sequence[tuple[Instance, np.ndarray | LabelSets]]


@dataclass(frozen=True, eq=False)
class Fitted:
    """All that a fit leaves behind."""

    learned: Learned
    weights: np.ndarray
    trace: list[dict[str, Any]]
    converged: bool | None = None
    message: str = ""
    step: tuple[np.ndarray, Any] | None = None  # where the last partial_fit ended
    preprocessing: dict[str, Any] | None = None  # how the user made the features


class Preparation(NamedTuple):
    """Training data on their way to a learner; ``settings`` name an inference, perhaps without a number of sweeps."""

    settings: Settings
    learned: Learned
    examples: Sequence[Example]
    problem: Problem
    labelled: list[int]


def prepare(
    settings: Settings,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    learned: Learned | None = None,
    classes: Any = None,
    n_chunks: int = N_CHUNKS,
) -> Preparation:
    """Return the problem of fitting X and y; with ``learned``, one more of the same weights."""
    X, y = _training_data(X, y)
    reader = learned.reader if learned is not None else Reader(settings.structure, settings.structure.learn_names(X))
    pairs = reader.pairs(X, y)
    survey = Surveyor(reader.structure, pairs).survey(settings.n_jobs)
    settings = settings.resolved(survey.acyclic)
    features = None
    if learned is None:
        learned, features = _learn(settings, reader, pairs, survey, classes)
    weight = checked_sample_weight(sample_weight, len(pairs))
    examples = Assembler(settings, learned).examples(pairs, features, weight)
    labelled = survey.n_labelled(len(learned.classes))
    problem = make_problem(settings.with_sweeps(None), examples, learned.layout, labelled, n_chunks)
    return Preparation(settings, learned, examples, problem, labelled)


def fit(
    settings: Settings,
    X: Any,
    y: Any,
    sample_weight: Any,
    validation: Any,
    n_chunks: int,
    callbacks: Sequence[Callback],
    show: Callable[[Fitted], AbstractContextManager[None]],
    options: dict[str, Any],
) -> Fitted:
    """Learn the weights; ``show`` is entered around each callback with the model so far."""
    _ = settings.decoder  # refused before hours are spent, not after
    strengths = STRENGTHS[settings.params["guard"]]
    ready = prepare(settings, X, y, sample_weight, n_chunks=n_chunks)
    if len(strengths) > 1 and not ready.learned.layout.kernels:
        raise InputError("guard='labels' says how strongly kernels enter (DenseCRF); there are none: use guard=True.")
    ready.learned.check_decoder(settings.decoder)
    choice = choose(ready.settings, ready.problem, partial(_trial, settings, ready), settings.open_ridge)
    settings, learned = choice.settings, replace(ready.learned, inference=repr(choice.settings.inference))
    problem = ready.problem
    if settings is not ready.settings:  # the number of sweeps was open
        problem = make_problem(settings, ready.examples, learned.layout, ready.labelled, n_chunks)
    problem = problem.with_penalty(ready.problem.penalty.stronger(learned.layout, choice.ridge))
    held_out = None
    if validation is not None:
        held_out = prepare(settings, *validation, learned=learned, n_chunks=n_chunks).problem
        held_out.penalty = problem.penalty

    def watched(callback: Callback, iteration: int, w: np.ndarray, row: dict[str, Any]) -> Any:
        with show(Fitted(learned, w, [row])):
            return callback(iteration, w, row)

    options = options | {"callbacks": [partial(watched, callback) for callback in callbacks], "validation": held_out}
    if not choice.edges:
        penalty = problem.penalty
        problem, w = _trial(settings, ready, None, ready.examples, ready.labelled), np.zeros(problem.n_weights)
        problem.penalty = penalty
    else:
        w = start_weights(settings, ready) if choice.start is None else choice.start
    learner = settings.learner
    guard = None
    if learned.layout.kernels and all(block.energy.linear for block in learned.layout.unary):
        guard = Guard(problem, learned.layout, _alone(settings, ready, w), held_out, strengths)
        w = guard.learn(learner, w, settings.seed)
        problem = problem.with_fixed_scales()
    with Progress(repr(learner)) if settings.params["verbose"] else nullcontext() as progress:
        result = learner.fit(problem, w, seed=settings.seed, progress=progress, **options)
    warn_if_far(learner, result)
    weights, found = (choice.scale * result.w, "") if guard is None else guard.choose(result.w)
    numbers = choice.numbers or {} if guard is None else guard.numbers
    trace = [row | numbers if k == 0 else row for k, row in enumerate(result.trace)]
    return Fitted(learned, weights, trace, result.converged, choice.reason + result.message + found)


def warn_if_far(learner: Learner, result: Fit) -> None:
    """Warn where the learner has used up its iterations far from its tolerance."""
    if not result.converged and result.distance > _FAR:
        warnings.warn(
            f"{learner!r} stopped at its last iteration, with a gradient {result.distance:.0f} times as large as its "
            "tolerance: give it more iterations, or a larger tol.",
            FitWarning,
            stacklevel=4,
        )


def make_problem(
    settings: Settings, examples: Sequence[Example], layout: WeightLayout, labelled: list[int], n_chunks: int = N_CHUNKS
) -> Problem:
    """Return the objective over the examples."""
    problem = Problem(
        examples, layout, settings.objective, settings.setting, l2=settings.params["l2"], dtype=settings.dtype,
        units=not settings.learner.uniform_ridge, n_jobs=settings.n_jobs,
        labelled=labelled, n_chunks=n_chunks, chains=settings.structure.chains,
    )  # fmt: skip
    problem.distribute(active())
    return problem


def start_weights(settings: Settings, ready: Preparation) -> np.ndarray:
    """Return the weights to start from."""
    layout = ready.learned.layout
    w, start = layout.start(), settings.params["start"]
    if not isinstance(start, str):
        given = np.asarray(start, dtype=np.float64)  # the settings are checked: numbers
        if given.shape != w.shape or not np.isfinite(given).all():
            raise InputError(f"start must be {len(w)} finite weights, as weights_ of such a model; received {given.shape}.")
        return given.copy()
    if settings.learner.own_start or layout.uncoupled(w).any():  # a network starts from what it is
        return w
    if start == "random":
        return w + np.random.default_rng(settings.seed).normal(size=len(w))
    if start == "independent" and any(block.stop > block.start for block in [*layout.factors, *layout.kernels]):
        return w + _independent(settings, ready)
    return w


def _alone(settings: Settings, ready: Preparation, w: np.ndarray) -> np.ndarray:
    """Return the weights of the unary terms alone: where the fit starts from, unless that is something else."""
    layout, start = ready.learned.layout, settings.params["start"]
    usual = isinstance(start, str) and start == "independent" and not settings.learner.own_start
    return layout.uncoupled(w if usual else layout.start() + _independent(settings, ready))


def _independent(settings: Settings, ready: Preparation) -> np.ndarray:
    """Return weights of the model without factors, from which all papers start."""
    problem = _trial(settings, ready, None, ready.examples, ready.labelled)
    problem.penalty = ready.problem.penalty
    learner: Learner = part_of("learner", "lbfgs(max_iter=50)")  # type: ignore[assignment]
    return learner.fit(problem, np.zeros(problem.n_weights), seed=settings.seed).w


def _trial(
    plain: Settings, ready: Preparation, settings: Settings | None, examples: Sequence[Example], labelled: list[int]
) -> Problem:
    """Return the problem of some examples, with settings, or (None) the one of the variables alone, without factors."""
    layout, n_chunks = ready.learned.layout, ready.problem.n_chunks
    if settings is not None:
        return make_problem(settings, examples, layout, labelled, n_chunks)
    problem = Problem(
        examples, layout, get_objective("univariate_logistic"), Setting(None, None), dtype=plain.dtype,
        n_jobs=plain.n_jobs, labelled=labelled, n_chunks=n_chunks, coupled=False,
    )  # fmt: skip
    problem.distribute(active())
    return problem


def partial_fit(settings: Settings, X: Any, y: Any, sample_weight: Any, classes: Any, before: Fitted | None) -> Fitted:
    """Do one pass of the learner over some more examples."""
    learner = settings.learner
    if not isinstance(learner, Incremental):
        raise InputError(f"partial_fit needs the learner 'sgd', not {learner.name!r}.")
    if is_auto(settings.params["l2"]):
        settings = Settings(settings.params | {"l2": _STREAM})
    if before is not None and before.learned.inference is not None and settings.open_inference:
        settings = Settings(settings.params | {"inference": before.learned.inference})
    ready = prepare(settings, X, y, sample_weight, learned=None if before is None else before.learned, classes=classes)
    if before is None:
        chosen = repr(ready.settings.with_sweeps(None).inference)
        before = Fitted(replace(ready.learned, inference=chosen), ready.learned.layout.start(), [])
    # Where an average of the weights is the answer, the steps go on from where the last one ended.
    w, state = before.step or (before.weights, None)
    for number in range(len(ready.examples)):
        w, state = learner.step(ready.problem, w, state, np.array([number]), settings.seed)
    weights = learner.answer(w, state)
    return Fitted(before.learned, weights, before.trace, before.converged, before.message, (w, state), before.preprocessing)


def checked_sample_weight(sample_weight: Any, count: int) -> np.ndarray:
    """Return the weight of each example."""
    if sample_weight is None:
        return np.ones(count)
    check({"sample_weight": sample_weight}, FIT)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (count,) or not np.isfinite(weight).all() or (weight < 0).any():
        raise InputError(f"sample_weight must be {count} finite numbers >= 0.")
    if count and not weight.any():
        raise InputError("sample_weight is zero for all examples: there is nothing to learn from.")
    return weight


def _training_data(X: Any, y: Any) -> tuple[Any, Any]:
    if is_lazy(X):  # perhaps a packed folder, or the name of one
        X, y = open_data(X, y)
    if y is None:
        raise InputError("fit needs labels: y, or a folder that was packed with labels.")
    X, y = checked_sequence(X, "X"), checked_sequence(y, "y")
    if len(X) == 0:
        raise InputError("there are no examples to learn from.")
    if len(y) != len(X):
        raise InputError(f"received {len(X)} examples but {len(y)} labelings.")
    return X, y


def _learn(settings: Settings, reader: Reader, pairs: Pairs, survey: Survey, given: Any) -> tuple[Learned, Any]:
    """Return what the data say before there are weights, and the features that a classifier makes of them."""
    classes = _classes(settings, survey, given)
    for labels in survey.seen:
        settings.objective.check_labels(classes.encode(classes.known(labels)))
    classifier, features = _out_of_fold(settings, pairs, classes)
    return Learned(reader, classes, _layout(settings, survey, pairs, classes), classifier), features


def _classes(settings: Settings, survey: Survey, given: Any) -> Classes:
    """Return the classes: of the graphs, 0 .. n_labels - 1, of given probabilities, as the caller lists, or that occur."""
    if settings.structure.fixed_labels:
        return Classes(np.arange(survey.largest), fixed=True)
    if settings.params["n_labels"] is not None:
        return Classes(np.arange(settings.params["n_labels"]))
    if settings.classifier is None and isinstance(settings.energy("unary"), Given):
        return Classes(np.arange(survey.types("node")[0].n_features))  # each feature is the probability of a class
    return Classes.learn(survey.seen if given is None else [np.asarray(given)])


def _out_of_fold(settings: Settings, pairs: Pairs, classes: Classes) -> tuple[Any, list[np.ndarray] | None]:
    """Return the fitted classifier, if there is one, and its log-probabilities of the training rows."""
    if settings.classifier is None:
        return None, None
    if is_lazy(pairs):
        raise InputError("unary=Classifier(...) learns from all rows at once: it needs X in memory, as a list.")
    rows = Rows(settings, classes)
    features = mapped(rows.features, pairs)
    fitted, out = settings.classifier.fit_predict(features, mapped(rows.labels, pairs), len(classes))
    return fitted, [each.astype(settings.dtype) for each in out]


@dataclass(frozen=True)
class Rows:
    """Features and encoded labels of the variables of training data."""

    settings: Settings
    classes: Classes

    def features(self, pair: tuple[Instance, np.ndarray | LabelSets], number: int) -> Any:
        """Return the node features of an example."""
        with located(number):
            return node_features(pair[0], self.settings.dtype)

    def labels(self, pair: tuple[Instance, np.ndarray | LabelSets], number: int) -> np.ndarray:
        """Return the positions of the labels of an example."""
        with located(number):
            return self.classes.encode(pair[1])


def _layout(settings: Settings, survey: Survey, pairs: Pairs, classes: Classes) -> WeightLayout:
    """Return one block of weights per type of variable and per type of factor."""
    layout, intercept = WeightLayout(), settings.params["fit_intercept"]
    settings.energy("pairwise")  # a wrong name is refused also where there are no factors
    for kind, block in enumerate(survey.types("node")):
        energy, outputs, width = settings.energy("unary"), _n_outputs(block, classes), block.n_features
        if isinstance(energy, ObservedLinear):
            if kind > 0:
                raise InputError("observed_linear takes one node type; use 'linear'.")
            rows = Rows(settings, classes)
            known = Lazy(rows.features, pairs), Lazy(rows.labels, pairs)
            energy = energy.bind(*observed_pairs(*known, outputs, energy.min_count), outputs)
        layout.add("unary", energy, len(classes) if settings.classifier is not None else width, outputs, intercept)
    for kind, block in enumerate(survey.types("factor")):
        energy, outputs, width = settings.energy("pairwise"), _n_outputs(block, classes), block.n_features
        if isinstance(energy, ObservedConstant):
            counts = _entry_counts(settings, pairs, classes, kind, outputs)
            energy = energy.bind(np.flatnonzero(counts >= max(1.0, energy.min_count)), outputs)
        layout.add("factors", energy, width, outputs, intercept or width == 0)
    for energy in settings.structure.kernel_energies():
        layout.add("kernels", energy, 0, len(classes), False)
    return layout


def _entry_counts(settings: Settings, pairs: Pairs, classes: Classes, kind: int, n_outputs: int) -> np.ndarray:
    """Return how often known labels select each entry of the tables of a type of factors."""
    rows, total = Rows(settings, classes), np.zeros(n_outputs, dtype=np.int64)
    for number, (sample, labels) in enumerate(pairs):
        graph = settings.structure.graph(sample, len(classes))
        known = as_labeling(graph, rows.labels((sample, labels), number)).labels
        entries, complete = factor_entries(graph, known)
        if sample.factor_types is not None:
            complete = complete & (np.asarray(sample.factor_types) == kind)
        total += np.bincount((entries - graph.layout.table_ptr[:-1])[complete], minlength=n_outputs)
    return total


def _n_outputs(block: BlockSize, classes: Classes) -> int:
    return len(classes) ** block.arity if block.n_outputs is None else block.n_outputs
