"""From samples to examples: what an entry of X, its labels and its weights become before anything is learned.

Subclasses say how an entry of their X becomes a :class:`Sample` and how labels of one example are flattened and given back
their shape. Data in memory becomes examples once; of lazy data one example per thread is in memory.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from backfield.api import checked_weights
from backfield.energies import Energy, Network, ObservedLinear
from backfield.energies.observed_linear import observed_pairs
from backfield.errors import InputError
from backfield.estimators._lazy import Lazy, checked_sequence, is_lazy, mapped, opened
from backfield.estimators._spec_params import SpecParams, part_of
from backfield.estimators._survey import Survey, Surveyor
from backfield.estimators.classifier import Classifier
from backfield.estimators.samples import Sample, checked_features
from backfield.graph.conditioning import evidence
from backfield.graph.labeling import as_labeling
from backfield.learners.oracle_descent import oracle_energy
from backfield.objectives import Target, get_objective
from backfield.objectives.base import balanced
from backfield.training.examples import Example, Rows
from backfield.training.execution import sum_over_chunks
from backfield.training.execution.cluster import active
from backfield.training.weights import WeightLayout


class Assembling(SpecParams):
    """Base of :class:`CRF`: the part that knows about data."""

    loss: Any
    learner: Any
    unary: Any
    pairwise: Any
    class_weight: Any
    fit_intercept: bool
    n_labels: int | None
    dtype: str
    n_jobs: int
    classes_: np.ndarray
    layout_: WeightLayout

    # ---- what subclasses give ----

    def _sample(self, x: Any, number: int) -> Sample:
        """Return the sample of one entry of X; graphs get their label count in :meth:`_graph`."""
        raise NotImplementedError

    def _flat_labels(self, y: Any, number: int) -> np.ndarray:
        """Return the labels of an example as (n,) values or an (n, L) mask."""
        raise NotImplementedError

    def _shaped(self, values: np.ndarray, sample: Sample, number: int) -> Any:
        """Give per-variable values back the shape of the input."""
        return values

    # ---- from samples to examples ----

    def _training_data(self, X: Any, y: Any) -> tuple[Sequence[Sample], Sequence[np.ndarray]]:
        """Return samples and flat labels, lists where X is in memory."""
        X, y = opened(X, y)
        if y is None:
            raise InputError("fit needs labels: y, or a folder that was packed with labels.")
        X, y = checked_sequence(X, "X"), checked_sequence(y, "y")
        if len(X) == 0:
            raise InputError("there are no examples to learn from.")
        if len(y) != len(X):
            raise InputError(f"got {len(X)} examples but {len(y)} labelings.")
        samples = mapped(self._sample, X)
        return samples, Lazy(self._flat_labels, y) if is_lazy(samples) else mapped(self._flat_labels, y)

    def _survey(self, samples: Sequence[Sample], labels: Sequence[np.ndarray]) -> Survey:
        """Go through the examples once."""
        surveyor = Surveyor(samples, labels)
        cluster = active()
        if cluster is not None and is_lazy(samples):
            return cluster.share(surveyor, np.ones(len(samples))).sum(None)

        def some(first: int, last: int) -> Survey:
            return surveyor.chunk(np.arange(first, last))

        return sum_over_chunks(some, len(samples), self._jobs(), operator.add)

    def _learn_classes(self, labels: list[np.ndarray]) -> None:
        if self.n_labels is not None:
            self.classes_ = np.arange(self.n_labels)
            return
        masks = [each.shape[1] for each in labels if each.ndim == 2]
        if masks:
            self.classes_ = np.arange(max(masks))
            return
        seen = np.unique(np.concatenate([np.unique(each) for each in labels]))
        seen = seen[seen >= 0] if seen.dtype.kind in "iu" else seen[seen != ""]
        if len(seen) == 0:
            raise InputError("there is nothing to learn from: all labels are hidden (-1).")
        self.classes_ = seen if len(seen) > 1 else np.union1d(seen, seen + 1 if seen.dtype.kind in "iu" else seen)

    def _encoded(self, labels: np.ndarray, number: int) -> np.ndarray:
        """Return labels as positions in ``classes_``, -1 = hidden; masks pass."""
        if labels.ndim == 2:
            return labels
        hidden = labels == (-1 if labels.dtype.kind in "iu" else "")
        position = np.searchsorted(self.classes_, labels)
        position = np.minimum(position, len(self.classes_) - 1)
        unknown = np.flatnonzero((self.classes_[position] != labels) & ~hidden)
        if len(unknown):
            raise InputError(
                f"example {number} holds the label {labels[unknown[0]].item()!r}, which is not among the classes "
                f"{_short(self.classes_)}; -1 means don't care."
            )
        return np.where(hidden, -1, position)

    def _examples(
        self,
        samples: Sequence[Sample],
        labels: Sequence[np.ndarray] | None,
        sample_weight: Any,
        survey: Survey | None = None,
    ) -> Sequence[Example]:
        """Return examples; the survey of those to learn from decides which weights there are."""
        features = None
        if survey is not None:
            if isinstance(self.unary, Classifier):
                features = self._out_of_fold(samples, labels)
            self.layout_ = self._make_layout(survey, samples, labels)
        weight = self._sample_weight(sample_weight, len(samples))
        return mapped(self._example, samples, features, labels, weight)

    def _example(self, sample: Sample, x: Any, labels: np.ndarray | None, weight: float | None, number: int) -> Example:
        """Return one example; ``x`` are its node features where they are not those of the sample."""
        graph = self._graph(sample)
        if x is None:
            x = self._node_features(sample, number)
            if isinstance(self.unary, Classifier):
                x = self.unary.log_probabilities(self.classifier_, x, len(self.classes_)).astype(self.dtype)
        unary, factors = self._rows(sample, graph, x, number)
        target = None if labels is None else self._target(sample, graph, self._encoded(labels, number), number)
        return Example(graph, unary, factors, target, 1.0 if weight is None else float(weight))

    def _graph(self, sample: Sample) -> Any:
        return sample.graph

    def _node_features(self, sample: Sample, number: int) -> Any:
        return checked_features(sample.node_features, sample.graph.n_variables, self.dtype, f"example {number}")

    def _out_of_fold(self, samples: Sequence[Sample], labels: Sequence[np.ndarray] | None) -> list[np.ndarray]:
        """Fit the classifier and return the log-probabilities of the training rows."""
        assert isinstance(self.unary, Classifier) and labels is not None
        if is_lazy(samples):
            raise InputError("unary=Classifier(...) learns from all rows at once: it needs X in memory, as a list.")
        features = mapped(self._node_features, samples)
        self.classifier_, out = self.unary.fit_predict(features, mapped(self._encoded, labels), len(self.classes_))
        return [each.astype(self.dtype) for each in out]

    def _make_layout(self, survey: Survey, samples: Sequence[Sample], labels: Sequence[np.ndarray] | None) -> WeightLayout:
        """Return one block of weights per type of variable and per type of factor."""
        layout = WeightLayout()
        for kind, count, outputs in survey.types("node"):
            unary = self._energy("unary")  # each block has its own: an oracle's function is kept in it
            outputs = self._n_outputs(outputs, 1)
            if isinstance(unary, ObservedLinear):
                if kind > 0:
                    raise InputError("observed_linear takes one node type; use 'linear'.")
                features, encoded = Lazy(self._node_features, samples), Lazy(self._encoded, labels)
                unary = unary.bind(*observed_pairs(features, encoded, outputs))
            if isinstance(self.unary, Classifier):
                count = len(self.classes_)
            layout.add("unary", unary, count, outputs, self.fit_intercept)
        for _, count, outputs in survey.types("factor"):
            outputs = self._n_outputs(outputs, 2)
            layout.add("factors", self._energy("pairwise"), count, outputs, self.fit_intercept or count == 0)
        return layout

    def _n_outputs(self, found: int, arity: int) -> int:
        """Return the size of a table for the size that the survey found."""
        return found

    def _energy(self, kind: str) -> Energy:
        spec = getattr(self, kind)
        if isinstance(spec, Classifier):
            spec = "linear"
        learner = self._learner()
        if learner.uses_oracles:
            return oracle_energy(spec, learner.eps)
        part = part_of(kind, spec)
        if isinstance(part, Network):
            return part.bind()
        if not isinstance(part, Energy):
            raise InputError(f"{kind}={part!r} is an oracle; it needs learner='oracle_descent'.")
        return part

    def _rows(self, sample: Sample, graph: Any, x: Any, number: int) -> tuple[list[Rows | None], list[Rows | None]]:
        edges = _factor_features(sample, graph, self.dtype, number)
        unary = _split(x, sample.node_types, len(self.layout_.unary), number, "node")
        if graph.shape is not None and sample.node_types is None and self.layout_.unary[0].energy.whole:
            unary = [Rows(slice(0, graph.n_variables), x.reshape(*graph.shape, -1))]
        factors = _split(edges, sample.factor_types, len(self.layout_.factors), number, "factor")
        for blocks, parts, what in ((self.layout_.unary, unary, "node"), (self.layout_.factors, factors, "edge")):
            for block, rows in zip(blocks, parts, strict=True):
                if rows is not None and rows.features.shape[-1] != block.n_features:
                    raise InputError(
                        f"example {number} has {rows.features.shape[-1]} {what} features; {block.n_features} were learned."
                    )
        return unary, factors

    def _target(self, sample: Sample, graph: Any, labels: np.ndarray, number: int) -> Target:
        try:
            labeling = as_labeling(graph, labels)
            observed = evidence(graph, sample.observed)
            weights = checked_weights(graph, sample.weights)
            sizes = self._sizes(graph, weights)
            weights = self._with_class_weight(graph, weights) if sizes is None else balanced(graph, sizes, labeling)
        except InputError as error:
            raise InputError(f"example {number}: {error}") from error
        target = Target(labeling, observed, weights, sizes)
        get_objective(self.loss).admit(target)
        return target

    def _sizes(self, graph: Any, weights: np.ndarray | None) -> np.ndarray | None:
        """Return the sizes of the variables if classes are balanced, else None."""
        if not isinstance(self.class_weight, str):
            return None
        if self.class_weight != "balanced":
            raise InputError(f"class_weight must be None, 'balanced' or a dict, got {self.class_weight!r}.")
        if weights is not None and len(weights) != graph.n_variables:
            raise InputError("class_weight='balanced' takes weights per variable (n,), their sizes, not per label.")
        return np.ones(graph.n_variables) if weights is None else weights

    def _with_class_weight(self, graph: Any, weights: np.ndarray | None) -> np.ndarray | None:
        if self.class_weight is None:
            return weights
        if not isinstance(self.class_weight, dict):
            raise InputError(
                f"class_weight must be None, 'balanced' or a dict {{class: weight}}, got {self.class_weight!r}."
            )
        per_class = np.array([float(self.class_weight.get(c, 1.0)) for c in self.classes_.tolist()])
        if not (per_class.min() >= 0 and per_class.max() > 0 and np.isfinite(per_class).all()):
            raise InputError(f"class_weight must hold finite numbers >= 0, not all zero; got {self.class_weight!r}.")
        each = np.tile(per_class, graph.n_variables)
        if weights is None:
            return each
        return each * (np.repeat(weights, len(per_class)) if len(weights) == graph.n_variables else weights)

    def _sample_weight(self, sample_weight: Any, count: int) -> np.ndarray:
        if sample_weight is None:
            return np.ones(count)
        weight = np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != (count,) or not np.isfinite(weight).all() or (weight < 0).any():
            raise InputError(f"sample_weight must be {count} finite numbers >= 0.")
        if count and not weight.any():
            raise InputError("sample_weight is zero for all examples: there is nothing to learn from.")
        return weight

    def _learner(self) -> Any:
        return part_of("learner", self.learner)

    def _jobs(self) -> int:
        if self.n_jobs in (-1, None):
            return os.cpu_count() or 1
        if isinstance(self.n_jobs, bool) or not isinstance(self.n_jobs, int | np.integer) or self.n_jobs < 1:
            raise InputError(f"n_jobs must be a whole number >= 1, or -1 for all cores; got {self.n_jobs!r}.")
        return int(self.n_jobs)


def _factor_features(sample: Sample, graph: Any, dtype: Any, number: int) -> Any:
    if sample.factor_features is None:
        return np.empty((graph.n_factors, 0), dtype)
    return checked_features(sample.factor_features, graph.n_factors, dtype, f"example {number}, factors")


def _split(features: Any, types: Any, count: int, number: int, kind: str) -> list[Rows | None]:
    """Return the rows of each type; one type, or types in contiguous runs, need no copy."""
    if types is None:
        return [Rows(slice(0, features.shape[0]), features)] + [None] * (count - 1) if count else []
    types = np.asarray(types)
    if len(types) and types.max() >= count:
        raise InputError(f"example {number} has {kind}s of type {types.max()}, which was not seen in training.")
    out: list[Rows | None] = []
    for each in range(count):
        index = np.flatnonzero(types == each)
        if len(index) == 0:
            out.append(None)
        elif index[-1] - index[0] + 1 == len(index):
            run = slice(int(index[0]), int(index[-1]) + 1)
            out.append(Rows(run, features[run]))
        else:
            out.append(Rows(index, features[index]))
    return out


def _short(classes: np.ndarray) -> str:
    shown = ", ".join(str(c) for c in classes[:10])
    return shown + (", ..." if len(classes) > 10 else "")
