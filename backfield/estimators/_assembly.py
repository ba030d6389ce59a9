"""From entries of X and y to examples: what learners and inference see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backfield.api import checked_weights
from backfield.errors import InputError
from backfield.estimators._classes import Classes
from backfield.estimators._graph_cache import GraphCache
from backfield.estimators._located import located
from backfield.estimators._settings import Settings
from backfield.graph import Graph
from backfield.graph.conditioning import evidence
from backfield.graph.labeling import as_labeling
from backfield.objectives import Target
from backfield.objectives.base import balanced
from backfield.structures import Instance, Structure
from backfield.structures.base import checked_features
from backfield.structures.constraints import Rules
from backfield.training.examples import Example, Rows
from backfield.training.weights import WeightLayout


@dataclass(frozen=True)
class Reader:
    """Entries of X and y as instances and flat labels."""

    structure: Structure
    names: dict[str, int] | None = None

    def sample(self, x: Any, number: int) -> Instance:
        """Return the instance of an entry of X."""
        with located(number):
            return self.structure.sample(x, self.names)

    def pair(self, x: Any, y: Any, number: int) -> tuple[Instance, np.ndarray]:
        """Return the instance and the flat labels of an example."""
        with located(number):
            sample = self.structure.sample(x, self.names)
            return sample, self.structure.flat(y, sample)


@dataclass(frozen=True, eq=False)
class Learned:
    """What a fit knows about the data before there are weights: how to read them, their classes, the blocks of weights."""

    reader: Reader
    classes: Classes
    layout: WeightLayout
    classifier: Any = None
    graphs: GraphCache = field(default_factory=GraphCache)

    @property
    def rules(self) -> Rules | None:
        """Return which labels cannot follow each other, if there are such."""
        return self.reader.structure.rules(self.classes.values)

    def graph(self, sample: Instance) -> Graph:
        """Return the graph of an instance; those of one key share one."""
        structure, count = self.reader.structure, len(self.classes)
        key = structure.key(sample)
        if key is None:
            return structure.graph(sample, count)
        return self.graphs.get((key, count), lambda: structure.graph(sample, count))


@dataclass(frozen=True, eq=False)
class Assembler:
    """Makes examples of instances."""

    settings: Settings
    learned: Learned

    def labelled(self, pair: tuple[Instance, np.ndarray], x: Any, weight: float, number: int) -> Example:
        """Return an example to learn from; ``x`` are its node features where they are not those of the instance."""
        sample, labels = pair
        example = self.example(sample, number, x)
        with located(number):
            target = self._target(sample, example.graph, self.learned.classes.encode(labels))
            if self.learned.rules is not None:
                self.learned.rules.check(target.labeling.labels, self.learned.classes.values)
        self.settings.objective.admit(target)
        return Example(example.graph, example.unary, example.factors, target, float(weight), example.forbidden)

    def example(self, sample: Instance, number: int, x: Any = None) -> Example:
        """Return an example without labels."""
        graph = self.learned.graph(sample)
        with located(number):
            if x is None:
                x = self._features(sample)
            rules = self.learned.rules
            forbidden = None if rules is None else rules.of(sample.n_variables)
            return Example(graph, *self._rows(sample, graph, x), forbidden=forbidden)

    def _features(self, sample: Instance) -> Any:
        x = node_features(sample, self.settings.dtype)
        classifier = self.settings.classifier
        if classifier is None:
            return x
        classes = len(self.learned.classes)
        return classifier.log_probabilities(self.learned.classifier, x, classes).astype(self.settings.dtype)

    def _rows(self, sample: Instance, graph: Graph, x: Any) -> tuple[list[Rows | None], list[Rows | None]]:
        layout = self.learned.layout
        edges: Any = np.empty((graph.n_factors, 0), self.settings.dtype)
        if sample.factor_features is not None:
            edges = checked_features(sample.factor_features, graph.n_factors, self.settings.dtype, "factor")
        unary = _split(x, sample.node_types, len(layout.unary), "node")
        if graph.shape is not None and sample.node_types is None and layout.unary[0].energy.whole:
            unary = [Rows(slice(0, graph.n_variables), x.reshape(*graph.shape, -1))]
        factors = _split(edges, sample.factor_types, len(layout.factors), "factor")
        layout.check(graph, unary, factors)
        return unary, factors

    def _target(self, sample: Instance, graph: Graph, labels: np.ndarray) -> Target:
        labeling = as_labeling(graph, labels)
        observed = evidence(graph, sample.observed)
        weights = checked_weights(graph, sample.weights)
        if not isinstance(self.settings.params["class_weight"], str):
            return Target(labeling, observed, self._with_class_weight(graph, weights))
        sizes = self._sizes(graph, weights)
        return Target(labeling, observed, balanced(graph, sizes, labeling), sizes)

    def _sizes(self, graph: Graph, weights: np.ndarray | None) -> np.ndarray:
        """Return the sizes of the variables for balanced classes."""
        class_weight = self.settings.params["class_weight"]
        if class_weight != "balanced":
            raise InputError(f"class_weight must be None, 'balanced' or a dict, got {class_weight!r}.")
        if weights is not None and len(weights) != graph.n_variables:
            raise InputError("class_weight='balanced' takes weights per variable (n,), their sizes, not per label.")
        return np.ones(graph.n_variables) if weights is None else weights

    def _with_class_weight(self, graph: Graph, weights: np.ndarray | None) -> np.ndarray | None:
        class_weight = self.settings.params["class_weight"]
        if class_weight is None:
            return weights
        if not isinstance(class_weight, dict):
            raise InputError(f"class_weight must be None, 'balanced' or a dict {{class: weight}}, got {class_weight!r}.")
        per_class = np.array([float(class_weight.get(c, 1.0)) for c in self.learned.classes.values.tolist()])
        if not (per_class.min() >= 0 and per_class.max() > 0 and np.isfinite(per_class).all()):
            raise InputError(f"class_weight must hold finite numbers >= 0, not all zero; got {class_weight!r}.")
        each = np.tile(per_class, graph.n_variables)
        if weights is None:
            return each
        return each * (np.repeat(weights, len(per_class)) if len(weights) == graph.n_variables else weights)


def node_features(sample: Instance, dtype: Any) -> Any:
    """Return the features of the variables of an instance."""
    return checked_features(sample.node_features, sample.n_variables, dtype, "node")


def _split(features: Any, types: Any, count: int, kind: str) -> list[Rows | None]:
    """Return the rows of each type; one type, or types in contiguous runs, need no copy."""
    if types is None:
        return [Rows(slice(0, features.shape[0]), features)] + [None] * (count - 1) if count else []
    types = np.asarray(types)
    if len(types) and types.max() >= count:
        raise InputError(f"there are {kind}s of type {types.max()}, which was not seen in training.")
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
