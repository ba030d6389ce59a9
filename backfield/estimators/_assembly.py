"""From entries of X and y to examples: what learners and inference see.

Reading (:class:`Reader`), one pass that learns what there is before there are weights (:class:`Survey`: types, widths,
labels that occur), the classes of a model, and the examples made of them (:class:`Assembler`). A survey of some
examples and one of the next ones add up, and the pass is cut into chunks like any other.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from backfield.data.label_sets import LabelSets
from backfield.data.sequences import Joined, is_lazy, mapped
from backfield.decoders import Decoder
from backfield.errors import InputError
from backfield.estimators._settings import Settings
from backfield.graph import Graph
from backfield.graph.conditioning import evidence
from backfield.graph.labeling import as_labeling, checked_weights, is_known
from backfield.objectives import Objective, Target
from backfield.objectives.base import balanced
from backfield.structures import BlockSize, Instance, Structure
from backfield.structures.base import checked_features
from backfield.structures.constraints import Rules
from backfield.training.examples import Example, Rows
from backfield.training.execution import active, sum_over_chunks
from backfield.training.weights import WeightLayout

#: Variables of the graphs that are kept when no example holds them.
KEPT_VARIABLES = 2**18
#: Fewer labels of an example than this are made unique together with those of the next ones.
_FEW = 1000
#: Type -> {what it needs weights for: first example that has it}; one entry each, if all is well.
Types = dict[int, dict[BlockSize, int]]


@contextmanager
def located(number: int) -> Iterator[None]:
    """Put the number of the example in front of what is wrong with it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"example {number}: {error}") from error


@dataclass(frozen=True)
class Reader:
    """Entries of X and y as instances and flat labels."""

    structure: Structure
    names: dict[str, int] | None = None

    def sample(self, x: Any, number: int) -> Instance:
        """Return the instance of an entry of X."""
        with located(number):
            return self.structure.sample(x, self.names)

    def pair(self, x: Any, y: Any, number: int) -> tuple[Instance, np.ndarray | LabelSets]:
        """Return the instance and the flat labels of an example."""
        with located(number):
            sample = self.structure.sample(x, self.names)
            return sample, self.structure.flat(y, sample)

    def pairs(self, X: Any, y: Any) -> Sequence[tuple[Instance, np.ndarray | LabelSets]]:
        """Return instances and flat labels: a list where X is in memory, read many at a time where the structure can."""
        if is_lazy(X):
            return mapped(self.pair, X, y)
        samples = None
        with suppress(InputError):  # one by one, the error says where it is
            joined = None if is_lazy(y) else self._joined(X, y)
            if joined is not None:
                return joined
            samples = self.structure.samples(X, self.names)
        return mapped(self.pair, X, y) if samples is None else mapped(self._flat, samples, y)

    def _joined(self, X: Any, y: Any) -> Joined | None:
        """Return arrays end to end, where every variable has one known label; None of others."""
        sample = None if self.names is not None else self.structure.join(X)
        labels = None if sample is None else _end_to_end(y, sample.parts or sample.shape, self.structure.label_kinds)
        if sample is None or labels is None:
            return None
        return Joined(partial(self._part, sample, labels), len(X))

    def _part(self, sample: Instance, labels: np.ndarray, first: int, last: int) -> tuple[Instance, np.ndarray]:
        return self.structure.part(sample, first, last), labels[sample.starts[first] : sample.starts[last]]

    def _flat(self, sample: Instance, y: Any, number: int) -> tuple[Instance, np.ndarray | LabelSets]:
        with located(number):
            return sample, self.structure.flat(y, sample)


@dataclass
class Survey:
    """What was seen in some examples."""

    nodes: Types = field(default_factory=dict)
    factors: Types = field(default_factory=dict)
    #: Labels that occur, sorted, hidden ones included; empty where all examples have masks.
    seen: list[np.ndarray] = field(default_factory=list)
    #: Labelled variables of each example; where it has sets, their sizes, as a set of all classes says nothing.
    labelled: list[int | np.ndarray] = field(default_factory=list)
    #: The largest label count of a variable, where X fixes it.
    largest: int = 0
    #: No graph has a cycle.
    acyclic: bool = True

    @classmethod
    def of(
        cls, structure: Structure, pairs: Sequence[tuple[Instance, np.ndarray | LabelSets]], numbers: np.ndarray
    ) -> Survey:
        """Survey some examples."""
        survey, seen = cls(), []
        for number in numbers.tolist():
            sample, labels = pairs[number]
            with located(number):
                for mine, found in zip((survey.nodes, survey.factors), structure.blocks(sample), strict=True):
                    for each, block in found.items():
                        mine.setdefault(each, {}).setdefault(block, number)
            seen.append(_seen(labels))
            survey.labelled.append(_n_labelled(sample, labels))
            survey.acyclic = survey.acyclic and structure.acyclic(sample)
            if structure.fixed_labels:
                survey.largest = max(survey.largest, structure.n_labels(sample))
        survey.seen = _merged(seen)
        return survey

    @classmethod
    def of_joined(cls, structure: Structure, pairs: Joined) -> Survey:
        """Survey examples that lie end to end, each variable with a known label."""
        sample, labels = pairs.whole
        survey = cls(
            seen=[np.unique(labels)], labelled=list(sample.parts or sample.shape), acyclic=structure.acyclic(sample)
        )
        for mine, found in zip((survey.nodes, survey.factors), structure.blocks(sample), strict=True):
            mine.update({each: {block: 0} for each, block in found.items()})
        return survey

    def __add__(self, other: Survey) -> Survey:
        for mine, theirs in ((self.nodes, other.nodes), (self.factors, other.factors)):
            for each, variants in theirs.items():
                mine[each] = variants | mine.get(each, {})  # of one variant, the earlier example
        self.labelled += other.labelled
        self.largest = max(self.largest, other.largest)
        self.acyclic &= other.acyclic
        self.seen = _merged(self.seen + other.seen)
        return self

    def n_labelled(self, n_classes: int) -> list[int]:
        """Return the number of variables of each example about which something is known."""
        return [each if isinstance(each, int) else int(((each > 0) & (each < n_classes)).sum()) for each in self.labelled]

    def types(self, kind: str) -> list[BlockSize]:
        """Return what each type of node or factor needs weights for, in the order of the types."""
        found = self.nodes if kind == "node" else self.factors
        for each, variants in sorted(found.items()):
            if len(variants) > 1:
                before, now = sorted(variants, key=lambda variant: variants[variant])[:2]
                here = f"example {variants[now]}: {kind}s of type {each} have {_words(now)}"
                raise InputError(f"{here}; earlier ones have {_words(before)}.")
        count = max(found, default=-1) + 1
        if kind == "node" and sorted(found) != list(range(count)):
            raise InputError(f"{kind} types must be numbered 0 .. {count - 1} without gaps, received {sorted(found)}.")
        first = [next(iter(found[each])) if each in found else None for each in range(count)]
        return [block if block is not None else _absent(first) for block in first]


@dataclass
class Surveyor:
    """Surveys examples by their numbers."""

    structure: Structure
    pairs: Sequence[tuple[Instance, np.ndarray | LabelSets]]

    def survey(self, n_jobs: int) -> Survey:
        """Go through the examples once: on the workers of a cluster where they are lazy, else in threads."""
        if isinstance(self.pairs, Joined):
            return Survey.of_joined(self.structure, self.pairs)
        cluster = active()
        if cluster is not None and is_lazy(self.pairs):
            return cluster.share(self, np.ones(len(self.pairs))).sum(None)

        def part(first: int, last: int) -> Survey:
            return self.chunk(np.arange(first, last))

        return sum_over_chunks(part, len(self.pairs), n_jobs, operator.add)

    def chunk(self, numbers: np.ndarray) -> Survey:
        """Survey some examples."""
        return Survey.of(self.structure, self.pairs, numbers)

    @staticmethod
    def add(a: Survey, b: Survey) -> Survey:
        """Join two surveys."""
        return a + b


def _end_to_end(y: Any, sizes: Sequence[int], kinds: str) -> np.ndarray | None:
    """Return the labels of all examples in one array, where all are known and of one kind; None of others."""
    try:
        parts = [np.asarray(labels) for labels in y]
    except ValueError:  # sets of labels
        return None
    kind = parts[0].dtype.kind
    if kind not in kinds or any(
        part.shape != (size,) or part.dtype.kind != kind for part, size in zip(parts, sizes, strict=True)
    ):
        return None
    labels = np.concatenate(parts)
    labels = labels if kind == "U" else labels.astype(np.int64, copy=False)
    return labels if is_known(labels).all() else None


def _merged(seen: list[np.ndarray]) -> list[np.ndarray]:
    """Return all labels that occur in one array, and the widest mask in another."""
    flat = [each for each in seen if each.ndim == 1 and len(each)] or [each for each in seen if each.ndim == 1]
    masks = [each for each in seen if each.ndim == 2]
    widest = sorted(masks, key=lambda mask: mask.shape[1])[-1:]
    return ([np.unique(np.concatenate(flat))] if flat else []) + widest


def _absent(blocks: list[BlockSize | None]) -> BlockSize:
    """Return the block of a type that does not occur: without features and, where X says how many, without outputs."""
    other = next(block for block in blocks if block is not None)
    return BlockSize(0, other.arity, None if other.n_outputs is None else 0)


def _words(block: BlockSize) -> str:
    return f"{block.n_features} features" + ("" if block.n_outputs is None else f" and {block.n_outputs} outputs")


def _seen(labels: np.ndarray | LabelSets) -> np.ndarray:
    """Return the labels that occur; few are returned as they are, for :func:`_merged` to make them unique."""
    if isinstance(labels, LabelSets):
        return np.unique(labels.members)
    if labels.ndim == 2:
        return labels[:0]
    return labels if len(labels) < _FEW else np.unique(labels)


def _n_labelled(sample: Instance, labels: np.ndarray | LabelSets) -> int | np.ndarray:
    """Return the number of variables about which something is known, or the sizes of their sets."""
    if isinstance(labels, LabelSets):
        return labels.sizes
    if labels.ndim == 1:
        return int(is_known(labels).sum())
    graph: Any = sample.graph
    same = graph is None or graph.n_labels is not None
    return int((labels.sum(axis=1) < (labels.shape[1] if same else graph.labels)).sum())


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes in order; ``fixed`` where the graphs of X say which labels a variable has, and labels are positions."""

    values: np.ndarray
    fixed: bool = False

    @classmethod
    def learn(cls, labels: list[np.ndarray]) -> Classes:
        """Return the classes that occur in labels; a mask counts them."""
        masks = [each.shape[1] for each in labels if each.ndim == 2]
        if masks:
            return cls(np.arange(max(masks)))
        seen = np.unique(np.concatenate([np.unique(each) for each in labels]))
        seen = seen[seen >= 0] if seen.dtype.kind in "iu" else seen[seen != ""]
        if len(seen) == 0:
            raise InputError("there is nothing to learn from: all labels are hidden (-1).")
        return cls(seen if len(seen) > 1 else np.union1d(seen, seen + 1 if seen.dtype.kind in "iu" else seen))

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self.values)  # models of other programs have their own order

    @cached_property
    def _sorted(self) -> np.ndarray:
        return self.values[self._order]

    @cached_property
    def _are_positions(self) -> bool:
        return self.values.dtype.kind == "i" and np.array_equal(self.values, np.arange(len(self)))

    def encode(self, labels: np.ndarray | LabelSets) -> np.ndarray:
        """Return labels as positions, -1 = hidden, sets as a mask (n, L); masks pass."""
        if isinstance(labels, LabelSets):
            return self._encode_sets(labels)
        if labels.ndim == 2 or self.fixed:
            return labels
        if self._are_positions and labels.min(initial=0) >= -1 and labels.max(initial=0) < len(self):
            return labels
        hidden = ~is_known(labels)
        place = np.searchsorted(self._sorted, labels)
        position = self._order[np.minimum(place, len(self.values) - 1)]
        unknown = np.flatnonzero((self.values[position] != labels) & ~hidden)
        if len(unknown):
            shown = ", ".join(str(c) for c in self.values[:10]) + (", ..." if len(self.values) > 10 else "")
            raise InputError(
                f"the label {labels[unknown[0]].item()!r} is not among the classes {shown}; -1 means don't care."
            )
        return np.where(hidden, -1, position)

    def _encode_sets(self, sets: LabelSets) -> np.ndarray:
        sizes = sets.sizes
        members = self.encode(sets.members) if len(sets.members) else np.empty(0, dtype=np.int64)
        owner = np.repeat(np.arange(len(sets)), sizes)
        if sizes.max(initial=0) <= 1:
            labels = np.full(len(sets), -1, dtype=np.int64)
            labels[owner] = members
            return labels
        mask = np.repeat((sizes == 0)[:, None], len(self), axis=1)
        mask[owner, members] = True
        return mask

    def known(self, labels: np.ndarray) -> np.ndarray:
        """Return the labels that are classes; others are refused with their example."""
        return labels[np.isin(labels, self.values)] if labels.ndim == 1 else labels


class GraphCache:
    """Graphs that are in use somewhere, and the latest ones; many sizes, seen once each, are not all kept."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, Graph] = WeakValueDictionary()
        self._latest: deque[Graph] = deque()
        self._size = 0
        self._lock = Lock()

    def __reduce__(self) -> Any:
        """Pickle an empty cache: whoever unpickles it builds the graphs it needs."""
        return GraphCache, ()

    def get(self, key: Hashable, make: Callable[[], Graph]) -> Graph:
        """Return the graph of a key."""
        graph = self._known.get(key)
        if graph is not None:
            return graph
        graph = make()
        with self._lock:
            self._known[key] = graph
            self._latest.append(graph)
            self._size += graph.n_variables
            while self._size > KEPT_VARIABLES and len(self._latest) > 1:
                self._size -= self._latest.popleft().n_variables
        return graph


@dataclass(frozen=True, eq=False)
class Learned:
    """What a fit knows about the data before there are weights: how to read them, their classes, the blocks of weights."""

    reader: Reader
    classes: Classes
    layout: WeightLayout
    classifier: Any = None
    graphs: GraphCache = field(default_factory=GraphCache)
    #: Spec of the inference that the fit has chosen, where it was left open.
    inference: str | None = None

    @property
    def rules(self) -> Rules | None:
        """Return which labels cannot follow each other, if there are such."""
        return self.reader.structure.rules(self.classes.values)

    def check_decoder(self, decoder: Decoder) -> None:
        """Refuse a decoder whose labels may break the rules."""
        if self.rules is not None and not decoder.keeps_constraints:
            raise InputError(f"the decoder {decoder!r} does not keep constraints; use 'map' or 'max_marginal'.")

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

    @cached_property
    def _objective(self) -> Objective:
        return self.settings.objective

    @cached_property
    def _dtype(self) -> str:
        return self.settings.dtype

    def examples(
        self, pairs: Sequence[tuple[Instance, np.ndarray | LabelSets]], features: Any, weight: np.ndarray
    ) -> Sequence[Example]:
        """Return examples to learn from: end to end where the pairs are and no example counts more than another."""
        plain = features is None and self.settings.params["class_weight"] is None and bool((weight == 1).all())
        if isinstance(pairs, Joined) and plain:
            joined = Joined(partial(self._consecutive, pairs), len(pairs))
            with suppress(InputError):  # one by one, the error says where it is
                _ = joined.whole
                return joined
        found: Sequence[Example] = mapped(self.labelled, pairs, features, weight)
        return found

    def _consecutive(self, pairs: Joined, first: int, last: int) -> Example:
        return self.labelled(pairs.together(first, last), None, 1.0, first)

    def labelled(self, pair: tuple[Instance, np.ndarray | LabelSets], x: Any, weight: float, number: int) -> Example:
        """Return an example to learn from; ``x`` are its node features where they are not those of the instance."""
        sample, labels = pair
        example = self.example(sample, number, x)
        with located(number):
            target = self._target(sample, example.graph, self.learned.classes.encode(labels))
            if self.learned.rules is not None:
                self.learned.rules.check(target.labeling, self.learned.classes.values)
        self._objective.admit(target)
        example.target, example.weight = target, float(weight)
        return example

    def example(self, sample: Instance, number: int, x: Any = None) -> Example:
        """Return an example without labels."""
        graph = self.learned.graph(sample)
        with located(number):
            if x is None:
                x = self._features(sample)
            rules = self.learned.rules
            forbidden = None if rules is None else rules.of(*(sample.parts or (sample.n_variables,)))
            return Example(graph, *self._rows(sample, graph, x), forbidden=forbidden, kernels=sample.kernels)

    def _features(self, sample: Instance) -> Any:
        x = node_features(sample, self._dtype)
        classifier = self.settings.classifier
        if classifier is None:
            return x
        classes = len(self.learned.classes)
        return classifier.log_probabilities(self.learned.classifier, x, classes).astype(self.settings.dtype)

    def _rows(self, sample: Instance, graph: Graph, x: Any) -> tuple[list[Rows | None], list[Rows | None]]:
        layout = self.learned.layout
        edges: Any = np.empty((graph.n_factors, 0), self._dtype)
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
        observed = None if sample.observed is None else evidence(graph, sample.observed)
        weights = checked_weights(graph, sample.weights)
        if not isinstance(self.settings.params["class_weight"], str):
            return Target(labeling, observed, self._with_class_weight(graph, weights))
        sizes = self._sizes(graph, weights)
        return Target(labeling, observed, balanced(graph, sizes, labeling), sizes)

    def _sizes(self, graph: Graph, weights: np.ndarray | None) -> np.ndarray:
        """Return the sizes of the variables for balanced classes."""
        class_weight = self.settings.params["class_weight"]
        if class_weight != "balanced":
            raise InputError(f"class_weight must be None, 'balanced' or a dict, received {class_weight!r}.")
        if weights is not None and len(weights) != graph.n_variables:
            raise InputError("class_weight='balanced' takes weights per variable (n,), their sizes, not per label.")
        return np.ones(graph.n_variables) if weights is None else weights

    def _with_class_weight(self, graph: Graph, weights: np.ndarray | None) -> np.ndarray | None:
        class_weight = self.settings.params["class_weight"]
        if class_weight is None:
            return weights
        if not isinstance(class_weight, dict):
            raise InputError(
                f"class_weight must be None, 'balanced' or a dict {{class: weight}}, received {class_weight!r}."
            )
        per_class = np.array([float(class_weight.get(c, 1.0)) for c in self.learned.classes.values.tolist()])
        if not (per_class.min() >= 0 and per_class.max() > 0 and np.isfinite(per_class).all()):
            raise InputError(f"class_weight must hold finite numbers >= 0, not all zero; received {class_weight!r}.")
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
