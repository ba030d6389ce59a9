"""Which variables to call positive for a good F-measure, from their probabilities b of being so.

F = 2 |Y & O| / (|Y| + |O|) of the true positives Y and the chosen ones O; F = 1 if both are empty. The best choice of k
variables is that of the k most probable ones where these are independent, so a rule is a number k:

    balanced   half of the variables ([S11] §5.1)
    sampled    the k whose mean F over samples of the posterior is largest ([S11] footnote 4)
    expected   the k of largest expected F for independent variables

E F(k) = 2 sum_{i <= k} b_i E 1/(k + 1 + S_-i), S_-i the number of other positives. With E 1/(c + S)
= int_0^1 t^(c-1) E t^S dt,

    E F(k) = 2 int_0^1 t^k prod_j (1 - b_j + b_j t)  sum_{i <= k} b_i / (1 - b_i + b_i t)  dt

for all k at once, by Gauss-Legendre quadrature: the integrand is a polynomial of degree < 2n, so n nodes are exact.
Cost O(n^2); beyond ``_NODES`` variables O(n _NODES), with an error below 1e-9 (t^(k+m) is smooth), and beyond ``_LARGE`` the
expansion of E 1/(c + S) around the mean of S, O(n), with an error of O(1/n^2).
"""

from __future__ import annotations

import functools

import numpy as np

_NODES = 512
_LARGE = 4096


def ranking(b: np.ndarray) -> np.ndarray:
    """Return the variables from the most probable one on; ties in their order."""
    return np.argsort(-b.real, kind="stable")


def balanced_count(b: np.ndarray) -> int:
    """Return how many variables the balanced threshold calls positive: half, rounded down."""
    return len(b) // 2


def expected_count(b: np.ndarray) -> int:
    """Return the number of positives with the largest expected F."""
    return int(np.argmax(expected_f(b)))


def expected_f(b: np.ndarray) -> np.ndarray:
    """Return the expected F-measure (n + 1,) of choosing the k most probable variables, for k = 0 .. n."""
    p = np.clip(np.sort(b.real.astype(np.float64))[::-1], 0.0, 1.0)
    inner = _by_expansion(p) if len(p) > _LARGE else _by_quadrature(p)
    return np.concatenate([[float(np.prod(1 - p))], inner])


def _by_quadrature(p: np.ndarray) -> np.ndarray:
    t, weight = _nodes(min(len(p), _NODES))
    out = np.zeros(len(p))
    k = np.arange(1, len(p) + 1)
    for at in range(0, len(t), 64):  # bounds the memory
        nodes = t[at : at + 64, None]
        each = 1 - p + p * nodes
        log_all = np.log(each).sum(axis=1, keepdims=True)
        terms = np.cumsum(p / each, axis=1) * np.exp(log_all + k * np.log(nodes))
        out += 2 * weight[at : at + 64] @ terms
    return out


@functools.lru_cache(maxsize=8)
def _nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Legendre nodes and weights on (0, 1)."""
    x, w = np.polynomial.legendre.leggauss(count)
    return (x + 1) / 2, w / 2


def _by_expansion(p: np.ndarray) -> np.ndarray:
    centre = np.arange(1, len(p) + 1) + 1 + p.sum()  # of k + 1 + S; that of S_-i is p_i lower
    variance = (p * (1 - p)).sum()
    return 2 * (np.cumsum(p) * (1 / centre + variance / centre**3) + np.cumsum(p**2) / centre**2)


def sampled_count(b: np.ndarray, samples: np.ndarray) -> int:
    """Return the number of positives with the largest mean F over samples (S, n) of the labels."""
    y = samples[:, ranking(b)]
    hits = np.concatenate([np.zeros((len(y), 1)), np.cumsum(y, axis=1)], axis=1)
    total = y.sum(axis=1, keepdims=True) + np.arange(y.shape[1] + 1)
    f = np.divide(2 * hits, total, out=np.ones_like(hits), where=total > 0)
    return int(np.argmax(f.mean(axis=0)))


def independent_samples(b: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
    """Return samples (S, n) of independent variables."""
    return (np.random.default_rng(seed).random((n_samples, len(b))) < b.real).astype(np.int64)


def threshold_elements(b: np.ndarray, k: int) -> np.ndarray:
    """Return the two variables between whose probabilities a threshold for k positives lies; one twice at either end."""
    order = ranking(b)
    return order[[max(k - 1, 0), min(k, len(b) - 1)]]
