"""Which columns are neighbours: Chow and Liu's tree, or node-wise logistic regression with a group lasso.

*Chow-Liu*: the spanning tree of largest mutual information, which maximises the likelihood among trees.

*Lasso*: each column is regressed on all others; of the weights between two columns the whole block is kept or dropped
(Jalali et al. 2011). An edge is one that either side keeps. Missing values are no evidence on either side.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree

#: Rows that regressions look at, and steps they take.
MAX_ROWS, STEPS = 4000, 150


def pair_counts(codes: np.ndarray, labels: list[int], i: int, j: int) -> np.ndarray:
    """Count pairs of states over the rows that have both."""
    both = (codes[:, i] >= 0) & (codes[:, j] >= 0)
    flat = np.bincount(codes[both, i] * labels[j] + codes[both, j], minlength=labels[i] * labels[j])
    return flat.reshape(labels[i], labels[j]).astype(np.float64)


def mutual_information(counts: np.ndarray) -> float:
    """Return the mutual information of a table of counts, in nats."""
    total = counts.sum()
    if total == 0:
        return 0.0
    p = counts / total
    outer = np.outer(p.sum(axis=1), p.sum(axis=0))
    used = p > 0
    return float((p[used] * np.log(p[used] / outer[used])).sum())


def chow_liu(codes: np.ndarray, labels: list[int]) -> list[tuple[int, int]]:
    """Return the edges of the tree of largest mutual information."""
    d = len(labels)
    pairs = list(combinations(range(d), 2))
    gain = np.array([mutual_information(pair_counts(codes, labels, i, j)) for i, j in pairs])
    rows, columns = (np.array([pair[k] for pair in pairs], dtype=np.int64) for k in (0, 1))
    # Weights must differ from zero, which means no edge.
    matrix = csr_array((gain.max(initial=0.0) + 1.0 - gain, (rows, columns)), shape=(d, d))
    tree = minimum_spanning_tree(matrix).tocoo()
    return sorted((int(min(a, b)), int(max(a, b))) for a, b in zip(tree.row, tree.col, strict=True))


def lasso(codes: np.ndarray, labels: list[int], alpha: float, seed: int) -> list[tuple[int, int]]:
    """Return the edges that node-wise regressions keep at penalty ``alpha``."""
    if len(codes) > MAX_ROWS:
        codes = codes[np.random.default_rng(seed).choice(len(codes), size=MAX_ROWS, replace=False)]
    group = np.repeat(np.arange(len(labels)), labels)
    hot = np.concatenate([codes[:, [k]] == np.arange(count) for k, count in enumerate(labels)], axis=1).astype(np.float64)
    edges: set[tuple[int, int]] = set()
    for i in range(len(labels)):
        known = codes[:, i] >= 0
        kept = _regress(hot[known][:, group != i], np.eye(labels[i])[codes[known, i]], group[group != i], alpha)
        edges |= {(min(i, j), max(i, j)) for j in kept}
    return sorted(edges)


def _regress(x: np.ndarray, y: np.ndarray, group: np.ndarray, alpha: float) -> list[int]:
    """Return the groups of columns with weights that are not zero, by accelerated proximal gradient (FISTA)."""
    n = len(x)
    groups, place = np.unique(group, return_inverse=True)
    size = np.sqrt(np.bincount(place) * y.shape[1])
    step = 1.0 / (0.5 * np.linalg.norm(x.T @ x / n, 2) + 0.5)
    w, bias = np.zeros((x.shape[1], y.shape[1])), np.zeros(y.shape[1])
    ahead, ahead_bias, t = w, bias, 1.0
    for _ in range(STEPS):
        logits = x @ ahead + ahead_bias
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = (p / p.sum(axis=1, keepdims=True) - y) / n
        new = ahead - step * (x.T @ error)
        norm = np.sqrt(np.bincount(place, weights=(new**2).sum(axis=1)))
        shrink = np.maximum(1 - step * alpha * size / np.maximum(norm, 1e-300), 0)
        new, new_bias = new * shrink[place][:, None], ahead_bias - step * error.sum(axis=0)
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        pull = (before - 1) / t
        ahead, ahead_bias = new + pull * (new - w), new_bias + pull * (new_bias - bias)
        w, bias = new, new_bias
    norm = np.bincount(place, weights=(w**2).sum(axis=1))
    return groups[norm > 0].tolist()
