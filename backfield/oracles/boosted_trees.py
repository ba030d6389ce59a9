"""Boosted regression trees on the biased logistic loss, grown by LightGBM ([L13] §8; Friedman 1999).

Each round fits a least-squares tree to the negative gradient of the loss on a random part of the rows (one tree for each
class; one for two classes, whose gradients are opposite), with a least share of the rows in each leaf:

    r_k(y) = 1[y = y_k] - p_k(y),    p_k = softmax(f(x_k, .) + b_k)

Then the leaf values of all trees of the round are optimised together for the logistic loss on all rows (L-BFGS, a small
ridge), multiplied by the learning rate and added. The loss is convex in the leaf values, so no round raises it.

LightGBM's own leaf values are one Newton step from f. Where the bias is large, p (1 - p) vanishes and that step is far too
long: with the margin of [L13], 1 / eps = 10, the first would be e^10. So LightGBM grows the trees on our gradients, with
unit second derivatives, and the values are ours. Biases need not go through ``init_score``, soft targets work, and a class
that never occurs has its tree like all others.

A round costs O(N F) for the tree and O(N K) for each step on the values. Scores of large arrays are kept (by content),
so only the trees of the last rounds are new work when an ensemble goes on growing.
"""

from __future__ import annotations

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from backfield.errors import InputError
from backfield.oracles._softmax import BiasedLogistic, threads
from backfield.oracles._trees import Trees, read_trees, write_trees
from backfield.oracles.base import (
    Oracle,
    OracleFunction,
    OracleTask,
    check_columns,
    check_parameter,
    check_start,
    mixed_seed,
    require,
)

#: Arrays of at least so many rows have their sums kept, so many numbers for each function.
KEPT_ROWS, KEPT_NUMBERS = 256, 1 << 24


class BoostedTreesFunction(OracleFunction):
    """A sum of trees for each class; with two classes one sum m, and f = (-m/2, m/2)."""

    n_features: int

    def __init__(self, trees: Trees, n_classes: int, n_features: int) -> None:
        self.trees = trees
        self.n_classes = n_classes
        self.n_features = n_features
        # Digest of features -> (number of trees added up, their sums); the binned rows of the last fit.
        self._kept: dict[bytes, tuple[int, np.ndarray]] = {}
        self._binned: tuple[Any, Any] | None = None

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the sums of the trees, (N, K)."""
        sums = self.sums(features)
        return _spread(sums, 2) if self.n_classes == 2 else sums.copy()

    def sums(self, features: np.ndarray) -> np.ndarray:
        """Return the sums of the trees of each class, (N, K), or (N, 1) for two classes; read-only."""
        features = _contiguous(check_columns("boosted_trees", features, self.n_features))
        key = _digest(features) if len(features) >= KEPT_ROWS else None
        done, sums = self._kept.get(key, (0, None)) if key is not None else (0, None)
        if sums is None:
            sums = np.zeros((len(features), _per_round(self.n_classes)))
        if done < self.trees.n_trees:
            sums = sums.copy()
            self.trees.add(features, done, sums)
            self._keep(key, sums)
        return sums

    def _keep(self, key: bytes | None, sums: np.ndarray) -> None:
        sums.flags.writeable = False
        if key is None:
            return
        # A new dictionary: other threads may be looking at the old one.
        kept = {k: entry for k, entry in self._kept.items() if k != key}
        kept[key] = (self.trees.n_trees, sums)
        excess = sum(s.size for _, s in kept.values()) - KEPT_NUMBERS
        while excess > 0:
            excess -= kept.pop(next(iter(kept)))[1].size
        self._kept = kept

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}, "_binned": None}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return LightGBM's text model as bytes; ``lightgbm.Booster(model_str=...)`` reads it too."""
        text = write_trees(self.trees, _per_round(self.n_classes), self.n_features)
        return {"model": np.frombuffer(text.encode("ascii"), dtype=np.uint8).copy()}

    def meta(self) -> dict[str, Any]:
        """Return the numbers of classes and features."""
        return {"n_classes": self.n_classes, "n_features": self.n_features}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """Make the function again; needs no LightGBM."""
        n_classes, n_features = int(meta["n_classes"]), int(meta["n_features"])
        trees = read_trees(np.asarray(arrays["model"], dtype=np.uint8).tobytes().decode("ascii"), n_features)
        if trees.n_trees % _per_round(n_classes):
            raise InputError(f"boosted_trees: {trees.n_trees} trees do not go with {n_classes} classes.")
        return cls(trees, n_classes, n_features)


@dataclass(frozen=True, repr=False)
class BoostedTrees(Oracle, name="boosted_trees"):
    """Gradient boosted trees with leaf values optimised for the logistic loss; needs LightGBM.

    A fit adds ``n_rounds`` rounds to the trees of ``start``.

    Parameters
    ----------
    n_rounds : int
        Rounds (one tree for each class) that a fit adds.
    max_leaves : int
        Leaves of a tree at the most.
    learning_rate : float
        What leaf values are multiplied by.
    min_fraction : float
        Least share of the rows in each leaf.
    subsample : float
        Share of the rows, drawn for each round, that the splits are chosen on.
    max_bin : int
        Thresholds considered for each feature.
    l2 : float
        Ridge on the mean loss per row, ``l2 * |v|^2`` over the leaf values; keeps those of pure leaves finite.
    """

    supports_soft_targets: ClassVar[bool] = True
    needs_extra: ClassVar[str | None] = "boost"
    function_class: ClassVar[type[OracleFunction]] = BoostedTreesFunction

    n_rounds: int = 1
    max_leaves: int = 20
    learning_rate: float = 0.25
    min_fraction: float = 0.05
    subsample: float = 0.5
    max_bin: int = 255
    l2: float = 1e-5

    def __post_init__(self) -> None:
        for key, least in (("n_rounds", 1), ("max_leaves", 2), ("max_bin", 2)):
            check_parameter("boosted_trees", key, getattr(self, key), least, whole=True)
        for key, low, high in (("learning_rate", 1e-6, 1.0), ("min_fraction", 0.0, 0.5), ("subsample", 1e-6, 1.0)):
            check_parameter("boosted_trees", key, getattr(self, key), low, high)
        check_parameter("boosted_trees", "l2", self.l2, 0)

    def fit(self, task: OracleTask) -> BoostedTreesFunction:
        """Return the trees of ``start`` and those of ``n_rounds`` more rounds."""
        start, n_classes = task.start, task.n_classes
        if task.n_features == 0:
            raise InputError("boosted_trees: the rows have no features; one at least is needed.")
        check_start("boosted_trees", start, BoostedTreesFunction, n_classes, task.n_features)
        features, problem = _contiguous(task.features), task.problem()
        trees = Trees.empty() if start is None else start.trees
        sums = np.zeros((len(features), _per_round(n_classes))) if start is None else start.sums(features).copy()
        grower = _Grower(self, replace(task, features=features, seed=mixed_seed(task.seed, trees.n_trees)))
        with threads(task.n_jobs) as pool:
            for _ in range(self.n_rounds):
                scores = _spread(sums, n_classes)
                grown = grower.round(problem, scores)
                if grown is None:
                    break
                leaves = grown.leaves(features, pool)
                values = _leaf_values(leaves, len(grown.value), problem, scores, self.l2, pool)
                grown = grown._replace(value=self.learning_rate * values)
                sums += grown.value[leaves]
                trees = trees.followed_by(grown)
        function = BoostedTreesFunction(trees, n_classes, features.shape[1])
        function._binned = grower.binned
        function._kept = {} if start is None else start._kept
        function._keep(grower.digest if len(features) >= KEPT_ROWS else None, sums)
        return function


class _Grower:
    """LightGBM's part: the shapes of the trees of one round after another."""

    def __init__(self, part: BoostedTrees, task: OracleTask) -> None:
        lightgbm = require("lightgbm", "boost", "boosted_trees")
        n, start = len(task.features), task.start
        self.n_rounds = 0
        self.n_features = task.n_features
        self.digest = _digest(task.features)
        params: dict[str, Any] = {"max_bin": part.max_bin, "feature_pre_filter": False}
        params |= {"verbosity": -1, "num_threads": task.n_jobs}
        key = (self.digest, part.max_bin)
        if start is not None and start._binned is not None and start._binned[0] == key:
            self.binned = start._binned
        else:
            dataset = lightgbm.Dataset(task.features, label=np.zeros(n), params=dict(params))
            self.binned = (key, dataset.construct())
        params |= {
            "objective": "none",
            "num_class": _per_round(task.n_classes),
            "num_leaves": part.max_leaves,
            "min_data_in_leaf": max(1, math.ceil(part.min_fraction * part.subsample * n)),
            "min_sum_hessian_in_leaf": 0.0,
            "learning_rate": 1.0,
            "bagging_fraction": part.subsample,
            "bagging_freq": int(part.subsample < 1 and part.subsample * n >= 10),
            "bagging_seed": task.seed,
            "deterministic": True,
            "force_row_wise": True,
        }
        self.booster = lightgbm.Booster(params, self.binned[1])

    def round(self, problem: BiasedLogistic, scores: np.ndarray) -> Trees | None:
        """Return the trees of the next round, fitted to the gradient at ``scores``; None if none has a split.

        In the first round trees without a split are returned as well: their one leaf is a constant.
        """
        n, k = scores.shape
        d_scores = n * problem.gradient(scores)[1]
        gradient = d_scores[:, 1] if k == 2 else d_scores
        second = np.broadcast_to(n * problem.weight[:, None], d_scores.shape)
        self.booster.update(fobj=lambda *_: (gradient, second[:, 0] if k == 2 else second))
        if self.booster.current_iteration() == self.n_rounds:
            return None
        text = self.booster.model_to_string(start_iteration=self.n_rounds, num_iteration=1)
        self.n_rounds += 1
        return read_trees(text, self.n_features)


def _leaf_values(
    leaves: np.ndarray,
    n_values: int,
    problem: BiasedLogistic,
    scores: np.ndarray,
    l2: float,
    pool: ThreadPoolExecutor | None,
) -> np.ndarray:
    """Return the leaf values of one round, to be added to ``scores``, that minimise the mean loss + l2 |v|^2."""
    rest = replace(problem, bias=problem.bias + scores)

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        value, d_v = rest.leaf_gradient(leaves, v, pool)
        return value + l2 * float(v @ v), d_v + 2 * l2 * v

    # Values are multiplied by the learning rate and other trees follow: the last digits are not worth their passes.
    options = {"maxiter": 30, "gtol": 1e-5, "ftol": 1e-5, "maxcor": 20}
    from scipy.optimize import minimize

    return minimize(loss, np.zeros(n_values), jac=True, method="L-BFGS-B", options=options).x


def _per_round(n_classes: int) -> int:
    return 1 if n_classes == 2 else n_classes


def _spread(sums: np.ndarray, n_classes: int) -> np.ndarray:
    """Return scores (N, K): the sums, or (-m/2, m/2) for two classes."""
    return np.concatenate([-sums / 2, sums / 2], axis=1) if n_classes == 2 else sums


def _contiguous(features: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(features, dtype=np.float32 if features.dtype == np.float32 else np.float64)


def _digest(features: np.ndarray) -> bytes:
    """A fingerprint of the numbers: what is kept for an array must not outlive a change of it."""
    return hashlib.blake2b(features.data, digest_size=16, key=str((features.shape, features.dtype)).encode()).digest()
