"""The biased logistic loss of [L13] eq. (11), as a mean over rows, with its gradients.

    loss = sum_k w_k [ log sum_y exp(f(x_k, y) + b_k(y)) - f(x_k, y_k) - b_k(y_k) ] / sum_k w_k

Gradients with respect to the scores f, to the weights of f = W x, and to the leaf values of trees. Soft targets t_k take
the place of the label: the last two terms become their mean under t_k. O(N K) time for the loss itself; each row is shifted
by its largest score, so biases of any finite size are fine.

The kernels take 128 rows at a time, classes first, so rows lie side by side in vector registers: measured at 4 classes
and 3 features, 25 instead of 52 ns for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from backfield.kernels.compile import inlined, kernel
from backfield.kernels.vector_math import vector_exp

#: Rows of one kernel call. Fixed, so sums do not depend on the number of threads.
BLOCK = 1 << 14
#: Rows side by side in a kernel.
LANES = 128

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class BiasedLogistic:
    """Labels or soft targets, biases and weights of N rows, in the layout of the kernels.

    Attributes
    ----------
    labels : (N,) int64
        Unused where there are soft targets.
    soft : (N, K) or (0, K) float64
        Soft targets; empty where there are labels.
    bias : (N, K) float64
    weight : (N,) float64
        Sums to 1, so losses are means.
    """

    labels: np.ndarray
    soft: np.ndarray
    bias: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray, bias: np.ndarray, weight: np.ndarray | None) -> Self:
        """Bring the arguments of ``Oracle.fit`` into the layout of the kernels."""
        bias = np.ascontiguousarray(bias, dtype=np.float64)
        n, k = bias.shape
        w = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
        if np.ndim(labels) == 2:
            hard, soft = np.zeros(n, dtype=np.int64), np.ascontiguousarray(labels, dtype=np.float64)
        else:
            hard, soft = np.ascontiguousarray(labels, dtype=np.int64), np.empty((0, k))
        return cls(hard, soft, bias, w / w.sum())

    @property
    def n_classes(self) -> int:
        """The number of classes K."""
        return self.bias.shape[1]

    def value(self, scores: np.ndarray) -> float:
        """Return the mean loss of ``scores`` (N, K), given without the bias."""
        return self.gradient(scores)[0]

    def gradient(self, scores: np.ndarray, pool: ThreadPoolExecutor | None = None) -> tuple[float, np.ndarray]:
        """Return the mean loss of ``scores`` and its derivative with respect to each of them."""
        scores = np.ascontiguousarray(scores, dtype=np.float64)
        d_scores = np.empty(self.bias.shape)

        def block(rows: slice) -> float:
            return _scores_gradient(scores[rows], *self._rows(rows), d_scores[rows])

        return float(sum(over_blocks(block, len(scores), pool))), d_scores

    def linear_gradient(
        self, x: np.ndarray, w: np.ndarray, pool: ThreadPoolExecutor | None = None
    ) -> tuple[float, np.ndarray]:
        """Return the mean loss of f = W x and its gradient; a column of ``w`` (K, F + 1) beyond ``x`` is constant."""

        def block(rows: slice) -> tuple[float, np.ndarray]:
            d_w = np.zeros(w.shape)
            return _linear_gradient(x[rows], w, *self._rows(rows), d_w), d_w

        return _added(over_blocks(block, len(x), pool))

    def leaf_gradient(
        self, leaves: np.ndarray, v: np.ndarray, pool: ThreadPoolExecutor | None = None
    ) -> tuple[float, np.ndarray]:
        """Return the mean loss of f(x_k, y) = v[leaves[k, y]] and its gradient.

        With two classes ``leaves`` is (N, 1), m = v[leaves[k]] and f = (-m/2, m/2).
        """

        def block(rows: slice) -> tuple[float, np.ndarray]:
            d_v = np.zeros(len(v))
            return _leaf_gradient(leaves[rows], v, *self._rows(rows), d_v), d_v

        return _added(over_blocks(block, len(leaves), pool))

    def _rows(self, rows: slice) -> tuple[np.ndarray, ...]:
        return self.bias[rows], self.labels[rows], self.soft[rows], self.weight[rows]


@dataclass(frozen=True, eq=False)
class RowSums:
    """Rows in one array, seen through sums: what :class:`backfield.oracles.Sums` asks for."""

    x: np.ndarray
    problem: BiasedLogistic
    pool: ThreadPoolExecutor | None = None

    @property
    def n_features(self) -> int:
        """Columns of the features."""
        return self.x.shape[1]

    def mean_squares(self) -> np.ndarray:
        """Return the weighted mean of the square of each feature."""
        return np.einsum("n,nf,nf->f", self.problem.weight, self.x, self.x)

    def linear_gradient(self, w: np.ndarray, n_features: int) -> tuple[float, np.ndarray]:
        """Return the mean loss of f = W x and its gradient; without features, f is constant."""
        x = self.x if n_features else np.empty((len(self.x), 0))
        return self.problem.linear_gradient(x, w, self.pool)


@contextmanager
def threads(n_jobs: int) -> Iterator[ThreadPoolExecutor | None]:
    """Give a pool of ``n_jobs`` threads, none for one, and hold BLAS to one thread.

    L-BFGS calls BLAS on matrices of a few numbers; waking its threads for them takes longer than a pass over the rows.
    """
    with threadpool_limits(1, user_api="blas"):
        if n_jobs <= 1:
            yield None
            return
        with ThreadPoolExecutor(n_jobs) as pool:
            yield pool


def over_blocks(block: Callable[[slice], T], n: int, pool: ThreadPoolExecutor | None) -> list[T]:
    """Call ``block`` on all blocks of rows; the results in their order."""
    blocks = [slice(i, min(i + BLOCK, n)) for i in range(0, n, BLOCK)]
    return list(pool.map(block, blocks) if pool is not None else map(block, blocks))


def _added(parts: list[tuple[float, np.ndarray]]) -> tuple[float, np.ndarray]:
    return float(sum(value for value, _ in parts)), np.sum([gradient for _, gradient in parts], axis=0)


@inlined
def _residual(labels, soft, weight, low, n, s, top, total):
    """Turn s (K, LANES), the scores with bias of rows low .. low + n - 1, into the gradient; return the loss."""
    n_classes, lanes = s.shape
    value = 0.0
    for i in range(lanes):
        top[i], total[i] = s[0, i], 0.0
    for c in range(1, n_classes):
        for i in range(lanes):
            top[i] = s[c, i] if s[c, i] > top[i] else top[i]
    for i in range(n):
        if len(soft) == 0:
            value += weight[low + i] * (top[i] - s[labels[low + i], i])
        else:
            for c in range(n_classes):
                value += weight[low + i] * soft[low + i, c] * (top[i] - s[c, i])
    for c in range(n_classes):
        for i in range(lanes):
            s[c, i] = vector_exp(s[c, i] - top[i])
            total[i] += s[c, i]
    for i in range(n):
        value += weight[low + i] * np.log(total[i])
        if len(soft) == 0:
            s[labels[low + i], i] -= total[i]
        else:
            for c in range(n_classes):
                s[c, i] -= total[i] * soft[low + i, c]
        total[i] = weight[low + i] / total[i]
    for c in range(n_classes):
        for i in range(lanes):
            s[c, i] *= total[i]
    return value


@kernel
def _scores_gradient(f, bias, labels, soft, weight, d_f):
    n_classes = f.shape[1]
    s, top, total = np.zeros((n_classes, LANES)), np.empty(LANES), np.empty(LANES)
    value = 0.0
    for low in range(0, len(f), LANES):
        n = min(LANES, len(f) - low)
        for i in range(n):
            for c in range(n_classes):
                s[c, i] = f[low + i, c] + bias[low + i, c]
        value += _residual(labels, soft, weight, low, n, s, top, total)
        for i in range(n):
            for c in range(n_classes):
                d_f[low + i, c] = s[c, i]
    return value


@kernel
def _linear_gradient(x, w, bias, labels, soft, weight, d_w):
    """Add the gradient with respect to w to d_w; return the loss."""
    n_classes, n_features = w.shape[0], x.shape[1]
    intercept = w.shape[1] > n_features
    s, top, total = np.empty((n_classes, LANES)), np.empty(LANES), np.empty(LANES)
    xt = np.zeros((n_features, LANES))
    value = 0.0
    for low in range(0, len(x), LANES):
        n = min(LANES, len(x) - low)
        for i in range(n):
            for j in range(n_features):
                xt[j, i] = x[low + i, j]
            for c in range(n_classes):
                s[c, i] = bias[low + i, c]
        for c in range(n_classes):
            a = w[c, n_features] if intercept else 0.0
            for i in range(n):
                s[c, i] += a
            for j in range(n_features):
                a = w[c, j]
                for i in range(n):
                    s[c, i] += a * xt[j, i]
        value += _residual(labels, soft, weight, low, n, s, top, total)
        for c in range(n_classes):
            for j in range(n_features):
                a = 0.0
                for i in range(n):
                    a += s[c, i] * xt[j, i]
                d_w[c, j] += a
            if intercept:
                for i in range(n):
                    d_w[c, n_features] += s[c, i]
    return value


@kernel
def _leaf_gradient(leaves, v, bias, labels, soft, weight, d_v):
    """Add the gradient with respect to v to d_v; return the loss."""
    n_classes = bias.shape[1]
    s, top, total = np.zeros((n_classes, LANES)), np.empty(LANES), np.empty(LANES)
    value = 0.0
    for low in range(0, len(leaves), LANES):
        n = min(LANES, len(leaves) - low)
        for i in range(n):
            if n_classes == 2:
                m = v[leaves[low + i, 0]] / 2
                s[0, i], s[1, i] = bias[low + i, 0] - m, bias[low + i, 1] + m
            else:
                for c in range(n_classes):
                    s[c, i] = bias[low + i, c] + v[leaves[low + i, c]]
        value += _residual(labels, soft, weight, low, n, s, top, total)
        for i in range(n):
            if n_classes == 2:
                d_v[leaves[low + i, 0]] += (s[1, i] - s[0, i]) / 2
            else:
                for c in range(n_classes):
                    d_v[leaves[low + i, c]] += s[c, i]
    return value
