"""Contracts of structures: entries of X and labels -> graphs with features, and back."""

from __future__ import annotations

import functools
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfield.data.packed import write_shards
from backfield.errors import InputError
from backfield.estimators.crf import estimator_for
from backfield.estimators.model_file import load
from backfield.graph import Graph
from backfield.structures.base import Instance, checked_features, checked_types
from backfield.testing.contract import GENERAL, Contract, check, close, refuses, require

#: How a checked model learns; few iterations are enough to see that everything fits together.
LEARNER = "lbfgs(max_iter=3)"


def check_structure(part: Any, X: Sequence[Any], y: Sequence[Any]) -> None:
    """Raise AssertionError unless a structure keeps to the contracts of its room.

    Parameters
    ----------
    part : Structure, class or str
        A structure, its class, or its spec.
    X, y : sequences
        A few small examples with labels, as for ``fit``: of two sizes or more, where sizes may differ, and some of one size.
    """
    if len(X) != len(y) or len(X) < 2:
        raise InputError(f"a structure is checked on two examples or more and their labels, received {len(X)} and {len(y)}.")
    check("structures", part, GENERAL)
    check("structures", part, CONTRACTS, list(X), [np.asarray(each) for each in y])


def instances(structure: Any, X: list[Any]) -> Iterator[Instance]:
    """Yield the instance of each entry."""
    names = structure.learn_names(X)
    for x in X:
        yield structure.sample(x, names)


def count_labels(structure: Any, sample: Instance) -> int:
    """Return how many labels the graph of an instance is asked for."""
    return structure.n_labels(sample) if structure.fixed_labels else 3


def samples(structure: Any, X: list[Any], y: list[Any]) -> None:
    """``sample`` returns an Instance: a shape, and finite features and types for each of its variables and factors."""
    for sample in instances(structure, X):
        require(isinstance(sample, Instance), f"a {type(sample).__name__}")
        sizes = isinstance(sample.shape, tuple) and all(isinstance(size, int) and size > 0 for size in sample.shape)
        require(sizes, f"the shape {sample.shape!r}, which is no tuple of ints >= 1")
        checked_features(sample.node_features, sample.n_variables, np.float64, "node")
        checked_types("node", sample.node_types, sample.n_variables)
        checked_types("factor", sample.factor_types, sample.n_factors)
        if sample.factor_features is not None:
            checked_features(sample.factor_features, sample.n_factors, np.float64, "factor")


def graphs(structure: Any, X: list[Any], y: list[Any]) -> None:
    """``graph`` has the variables, factors and labels of the instance; with ``chains`` it is a path, of order 1 or 2."""
    for sample in instances(structure, X):
        n_labels = count_labels(structure, sample)
        graph = structure.graph(sample, n_labels)
        require(isinstance(graph, Graph), f"a {type(graph).__name__}")
        found, wanted = (graph.n_variables, graph.n_factors), (sample.n_variables, sample.n_factors)
        require(found == wanted, f"{found} variables and factors in the graph, {wanted} in the instance")
        require(graph.labels.max() == n_labels, f"{graph.labels.max()} labels, where {n_labels} are asked for")
        require(structure.fixed_labels or graph.labels.min() == n_labels, "variables with fewer labels than are asked for")
        if structure.chains:
            path = [(t, t + 1) for t in range(graph.n_variables - 1)]
            scopes = [tuple(scope) for scope in graph.factors]
            order = 1 if len(scopes) == len(path) else 2
            require(graph == Graph.chain(graph.n_variables, labels=n_labels, order=order), "a graph that is no path")


def keys(structure: Any, X: list[Any], y: list[Any]) -> None:
    """Instances with equal keys have equal graphs: only the first of them is built."""
    known: dict[Any, Graph] = {}
    for sample in instances(structure, X):
        key, n_labels = structure.key(sample), count_labels(structure, sample)
        graph = structure.graph(sample, n_labels)
        require(graph == structure.graph(sample, n_labels), "two graphs of one instance that differ")
        if key is not None:
            require(graph == known.setdefault((key, n_labels), graph), f"different graphs for the key {key!r}")


def block_sizes(structure: Any, X: list[Any], y: list[Any]) -> None:
    """``blocks`` lists the types of variables and factors that occur, with their features and the sizes of their tables."""
    for sample in instances(structure, X):
        n_labels = count_labels(structure, sample)
        layout = structure.graph(sample, n_labels).layout
        nodes, factors = structure.blocks(sample)
        features = sample.node_features, sample.factor_features
        tables = np.diff(layout.var_ptr), np.diff(layout.table_ptr)
        types = sample.node_types, sample.factor_types
        for kind, blocks, x, kinds, sizes in zip(("node", "factor"), (nodes, factors), features, types, tables, strict=True):
            kinds = checked_types(kind, kinds, len(sizes))
            require(set(blocks) == set(kinds.tolist()), f"blocks of {kind} types {sorted(blocks)}, not {np.unique(kinds)}")
            for each, block in blocks.items():
                width = 0 if x is None else x.shape[1]
                require(block.n_features == width, f"{block.n_features} features of {kind} type {each}, which has {width}")
                size = n_labels**block.arity if block.n_outputs is None else block.n_outputs
                require((sizes[kinds == each] == size).all(), f"tables of {size} numbers for {kind} type {each}")


def labels_come_back(structure: Any, X: list[Any], y: list[Any]) -> None:
    """``flat`` gives one label per variable and ``shaped`` gives them, and rows of marginals, the shape of y back."""
    for sample, labels in zip(instances(structure, X), y, strict=True):
        flat = structure.flat(labels, sample)
        require(flat.shape == (sample.n_variables,), f"flat labels of shape {flat.shape} for {sample.n_variables} variables")
        back = structure.shaped(flat, sample)
        require(np.shape(back) == labels.shape and (back == labels).all(), f"labels {labels!r} come back as {back!r}")
        rows = structure.shaped(np.zeros((sample.n_variables, 3)), sample)
        require(np.shape(rows) == (*labels.shape, 3), f"marginals of shape {np.shape(rows)} for labels {labels.shape}")
        numbers = np.arange(sample.n_variables)
        again = structure.flat(structure.shaped(numbers, sample), sample)
        require((again == numbers).all(), "variables in another order when labels go to their shape and back")


def wrong_labels(structure: Any, X: list[Any], y: list[Any]) -> None:
    """Labels of the wrong shape or type raise a one-line InputError."""
    for sample, labels in zip(instances(structure, X), y, strict=True):
        longer = np.zeros((labels.shape[0] + 1, *labels.shape[1:]), dtype=int)
        wrong = {"labels that are too many": longer, "a single label": 0, "labels of 0.5": np.full(labels.shape, 0.5)}
        for what, value in wrong.items():
            refuses(what, functools.partial(structure.flat, value, sample))


def wrong_entries(structure: Any, X: list[Any], y: list[Any]) -> None:
    """An entry of X that is None, a text, a number, or an array with seven axes is refused by InputError in one line."""
    names = structure.learn_names(X)
    for value in (None, "text", np.float64(1.0), np.zeros((1,) * 7)):
        refuses(f"the entry {value!r}", functools.partial(structure.sample, value, names))


def packing(structure: Any, X: list[Any], y: list[Any]) -> None:
    """``codec`` can be pickled, and entries come back from a packed folder as the same instances; X is left as it was."""
    pickle.loads(pickle.dumps(structure.codec))
    before = [_arrays(sample) for sample in instances(structure, X)]
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(Path(folder) / "packed", X, y, structure=repr(structure))
        require(shards.kind == repr(structure), f"a packed folder of {shards.kind}")
        for k, sample in enumerate(instances(structure, list(shards.X))):
            _same(before[k], _arrays(sample), f"example {k} from a packed folder")
            require(np.array_equal(shards.y[k], y[k]), f"example {k} with other labels")
    for k, sample in enumerate(instances(structure, X)):
        _same(before[k], _arrays(sample), f"example {k} after packing")


def _arrays(sample: Instance) -> dict[str, Any]:
    """Return everything that an instance holds, copied."""
    found = {key: np.array(value.toarray() if hasattr(value, "toarray") else value) for key, value in vars(sample).items()
             if key not in ("shape", "graph", "kernels") and value is not None}  # fmt: skip
    found |= {f"kernel {k}": points.features.copy() for k, points in enumerate(sample.kernels)}
    return {"shape": sample.shape, "graph": sample.graph, **found}


def _same(one: dict[str, Any], other: dict[str, Any], what: str) -> None:
    require(set(one) == set(other), f"{what} with {sorted(other)}, not {sorted(one)}")
    for key, value in one.items():
        equal = np.array_equal(value, other[key]) if isinstance(value, np.ndarray) else value == other[key]
        require(equal, f"{what} with another {key}")


def fitting(structure: Any, X: list[Any], y: list[Any]) -> None:
    """The structure's estimator learns, also with a hidden label, and predicts known labels of the shape of y."""
    hidden = y[0].copy()
    hidden.flat[0] = "" if hidden.dtype.kind == "U" else -1
    crf = estimator_for(repr(structure), learner=LEARNER).fit([*X, X[0]], [*y, hidden])
    require(np.isfinite(crf.weights_).all(), "weights that are not finite")
    for labels, found, p in zip(y, crf.predict(X), crf.predict_proba(X), strict=True):
        require(np.shape(found) == labels.shape, f"predictions of shape {np.shape(found)} for labels {labels.shape}")
        require(np.isin(found, crf.classes_).all(), "predicted labels that are no classes")
        if isinstance(p, np.ndarray):
            require(p.shape == (*labels.shape, len(crf.classes_)), f"marginals of shape {p.shape} for labels {labels.shape}")
            close(p.sum(axis=-1), np.ones(labels.shape), 1e-5, "sums of marginals and 1")
    require(0 <= crf.score(X, y) <= 1, "a score that is no share")


def saving(structure: Any, X: list[Any], y: list[Any]) -> None:
    """A model that is saved and loaded has the structure and predicts the same; so does one that is pickled."""
    crf = estimator_for(repr(structure), learner=LEARNER).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        crf.save(Path(folder) / "model.bf")
        loaded = load(Path(folder) / "model.bf")
    for other in (loaded, pickle.loads(pickle.dumps(crf))):
        require(other.structure_ == structure, f"a model of {other.structure_!r}")
        for x, a, b in zip(X, crf.predict(X), other.predict(X), strict=True):
            require(np.array_equal(a, b), "other predictions")
            close(other.potentials(x).vector(), crf.potentials(x).vector(), 0.0, "potentials of the copy and the model")


#: What must hold for every structure, beside what holds for all parts, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (
    samples,
    graphs,
    keys,
    block_sizes,
    labels_come_back,
    wrong_labels,
    wrong_entries,
    packing,
    fitting,
    saving,
)
