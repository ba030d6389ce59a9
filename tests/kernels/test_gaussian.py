"""Gaussian filters against the written-out one, their adjoints against transposes and differences."""

from collections import Counter
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from backfield.errors import InputError
from backfield.kernels.gaussian import Exact, Normalised, Permutohedral, Separable

NORMALISATIONS = ["none", "symmetric", "before", "after"]


def matrix(base, transpose=False):
    one, out = np.ones(base.n, base.dtype), np.zeros((base.n, base.n), base.dtype)
    (base.transpose if transpose else base.apply)(np.eye(base.n, dtype=base.dtype), one, one, out)
    return out


def points(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def picture(height=40, width=60, seed=0):
    """Return positions and colours of an image with two regions, a ramp and noise: (n, 5)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    region = (x - 30) ** 2 + (y - 20) ** 2 < 150
    colour = np.stack([90 + 70 * region + x, 60 + 2 * y, 140 - 60 * region], axis=-1) + rng.normal(0, 8, (height, width, 3))
    return np.concatenate([np.stack([x, y], axis=-1), colour], axis=-1).reshape(-1, 5)


def plain_lattice(f, bridges):
    """Return K of the permutohedral lattice with dictionaries, blurred in the order of [A10]."""
    n, d = f.shape
    splat, rows = {}, []
    for point in f:
        y = np.array(
            [sum(point[k] / np.sqrt((k + 1) * (k + 2)) for k in range(d))]
            + [
                sum(point[k] / np.sqrt((k + 1) * (k + 2)) for k in range(j, d)) - j * point[j - 1] / np.sqrt(j * (j + 1))
                for j in range(1, d + 1)
            ]
        ) * ((d + 1) * np.sqrt(2 / 3))
        # The vertex of remainder 0: floor to multiples of d + 1, then lift the largest rests onto the plane.
        base = np.floor(y / (d + 1)) * (d + 1)
        for j in np.argsort(-(y - base), kind="stable")[: round(-base.sum() / (d + 1))]:
            base[j] += d + 1
        rest = (y - base) / (d + 1)
        order = np.argsort(-rest, kind="stable")
        row, vertex = {}, base.copy()
        weights = [1 + rest[order[d]] - rest[order[0]]] + [
            rest[order[d - k]] - rest[order[d + 1 - k]] for k in range(1, d + 1)
        ]
        for k, weight in enumerate(weights):
            if k:
                vertex = vertex + 1
                vertex[order[d + 1 - k]] -= d + 1
            row[splat.setdefault(tuple(vertex.astype(int)), len(splat))] = weight
        rows.append(row)

    def around(vertex):
        for j in range(d + 1):
            for sign in (1, -1):
                yield j, tuple(c + sign * (1 - (d + 1) * (k == j)) for k, c in enumerate(vertex))

    if bridges:
        ring = Counter(other for vertex in splat for _, other in around(vertex))
        for vertex in [vertex for vertex, hits in ring.items() if hits > 1]:
            splat.setdefault(vertex, len(splat))
    S = np.zeros((len(splat), n))
    for i, row in enumerate(rows):
        for v, weight in row.items():
            S[v, i] = weight
    steps = np.tile(np.eye(len(splat)) / 2, (d + 1, 1, 1))
    for vertex, v in splat.items():
        for j, other in around(vertex):
            if other in splat:
                steps[j, v, splat[other]] = 0.25
    B = reduce(lambda before, step: step @ before, steps)
    return np.sqrt(d + 1) * (4 * np.pi / 3) ** (d / 2) * S.T @ B @ S


# Matrices of 32 columns, or of several times as many: kernels are compiled for blocks of 32, and for what is left.


@pytest.mark.parametrize("d", [1, 2, 5])
def test_lattice_equals_the_plain_one(d):
    f = points(32, d)
    assert np.abs(matrix(Permutohedral(f, published=True)) - plain_lattice(f, bridges=False)).max() < 1e-12
    plain = plain_lattice(f, bridges=True)
    assert np.abs(matrix(Permutohedral(f)) - (plain + plain.T) / 2).max() < 1e-12


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("published", [True, False])
def test_diagonal_is_that_of_the_lattice(d, published):
    # Few points leave holes, many leave none.
    for f in (points(32, d), points(416, min(d, 2), seed=1) / 2):
        base = Permutohedral(f, published=published)
        assert np.abs(base.diagonal() - np.diag(matrix(base))).max() < 1e-12


def test_constant_on_a_lattice_without_holes():
    # Far from the border the filter of a constant is the integral of the Gaussian.
    y, x = np.mgrid[:80, :80]
    base = Permutohedral(np.stack([x, y], axis=-1).reshape(-1, 2), 4.0)
    out = Normalised(base, "none").filter(np.ones((6400, 1))).reshape(80, 80)
    assert out[40, 40] == pytest.approx(2 * np.pi * 16, rel=0.02)


@pytest.mark.parametrize(
    ("columns", "bandwidths", "mean", "worst"),
    [([0, 1], 3.0, 0.01, 0.05), ([0, 1, 2, 3, 4], [60, 60, 10, 10, 10], 0.02, 0.2)],
)
def test_lattice_near_the_exact_filter(columns, bandwidths, mean, worst):
    f = picture()[:, columns]
    q = np.random.default_rng(1).dirichlet(np.ones(3), len(f))
    exact = Normalised(Exact(f, bandwidths)).filter(q)
    error = np.abs(Normalised(Permutohedral(f, bandwidths)).filter(q) - exact) / exact
    assert error.mean() < mean
    assert error.max() < worst


@pytest.mark.parametrize("d", [2, 5])
def test_nearer_than_published(d):
    f = points(64, d)
    exact = Exact(f).matrix()
    one, two = (np.linalg.norm(matrix(Permutohedral(f, published=published)) - exact) for published in (True, False))
    assert two < one


@pytest.mark.parametrize("shape", [(31,), (17, 23), (7, 9, 11)])
@pytest.mark.parametrize(("cut", "error"), [(4.0, 2e-4), (9.0, 1e-13)])
def test_separable_near_the_exact_filter(shape, cut, error):
    sigma = np.array([2.0, 3.0, 1.5])[: len(shape)]
    f = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, len(shape))
    q = np.random.default_rng(0).random((len(f), 3))
    exact = Normalised(Exact(f, sigma), "none").filter(q)
    out = Normalised(Separable(shape, sigma, cut=cut), "none").filter(q)
    assert (np.abs(out - exact) / exact).max() < error


def test_separable_wider_than_the_grid():
    out = Normalised(Separable((2, 3), 50.0), "none").filter(np.ones((6, 1)))
    assert out == pytest.approx(np.full((6, 1), 6.0), rel=2e-3)


def bases(dtype=np.float64):
    f = points(36, 3)
    return [Exact(f, dtype=dtype), Permutohedral(f, dtype=dtype), Permutohedral(f, dtype=dtype, published=True)] + [
        Separable((6, 6), (1.3, 2.1), dtype)
    ]


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("self_terms", [True, False])
@pytest.mark.parametrize("kind", range(4))
def test_transpose(kind, normalise, self_terms):
    kernel = Normalised(bases()[kind], normalise, self_terms=self_terms)
    rng = np.random.default_rng(2)
    q, d_out = rng.normal(size=(2, 36, 4))
    d_q, also = np.zeros((2, 36, 4))
    kernel.transpose(d_out, d_q)
    kernel.vjp(q, d_out, also, kernel.collector())
    left, right = (kernel.filter(q) * d_out).sum(), (q * d_q).sum()
    assert abs(left - right) < 1e-12 * np.abs(q * d_q).sum()
    assert np.abs(d_q - also).max() < 1e-12


@pytest.mark.parametrize("kind", range(4))
def test_normalisations(kind):
    base = bases()[kind]
    K = matrix(base)
    s = K.sum(axis=1)
    written = {"none": K, "symmetric": K / np.sqrt(s[:, None] * s), "before": K / s, "after": K / s[:, None]}
    for normalise, expected in written.items():
        out = Normalised(base, normalise).filter(np.eye(base.n))
        assert np.abs(out - expected).max() < 1e-12
        out = Normalised(base, normalise, self_terms=False).filter(np.eye(base.n))
        assert np.abs(out - expected + np.diag(np.diag(expected))).max() < 1e-12


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("self_terms", [True, False])
@pytest.mark.parametrize("kind", ["exact", "lattice", "one order", "separable"])
def test_bandwidths_against_differences(kind, normalise, self_terms):
    f, rng = points(25, 3), np.random.default_rng(3)
    q, d_out = rng.normal(size=(2, 25, 2))

    def kernel(sigma):
        base = {
            "exact": lambda: Exact(f, sigma),
            "lattice": lambda: Permutohedral(f, sigma),
            "one order": lambda: Permutohedral(f, sigma, published=True),
            "separable": lambda: Separable((5, 5), sigma[:2]),
        }[kind]()
        return Normalised(base, normalise, self_terms=self_terms)

    sigma = np.array([0.9, 1.23, 1.07])
    at = kernel(sigma)
    d = at.collector()
    for part in (slice(0, 1), slice(1, 2)):  # collected over two calls
        at.vjp(q[:, part].copy(), d_out[:, part].copy(), np.zeros((25, 1)), d)
    found = at.bandwidths_vjp(d)
    h = 1e-6
    for k in range(len(found)):
        step = h * (np.arange(3) == k)
        difference = ((kernel(sigma + step).filter(q) - kernel(sigma - step).filter(q)) * d_out).sum() / (2 * h)
        assert found[k] == pytest.approx(difference, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("kind", [Exact, Permutohedral])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_features_against_differences(kind, d):
    f, rng = points(15, d), np.random.default_rng(4)
    q, d_out = rng.normal(size=(2, 15, 3))
    at = Normalised(kind(f), self_terms=False)
    collector = at.collector()
    at.vjp(q, d_out, np.zeros_like(q), collector)
    at.settle(collector)
    found = at.base.features_vjp(collector)
    h = 1e-6
    for i, k in [(0, 0), (7, d - 1), (14, d // 2)]:
        ends = []
        for sign in (1, -1):
            moved = f.copy()
            moved[i, k] += sign * h
            ends.append((Normalised(kind(moved), self_terms=False).filter(q) * d_out).sum())
        assert found[i, k] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("columns", [1, 21, 33, 70])
def test_columns_do_not_depend_on_each_other(columns):
    base = Permutohedral(points(50, 3))
    kernel = Normalised(base)
    q, d_out = np.random.default_rng(5).normal(size=(2, 50, columns))
    out = kernel.filter(q)
    for a in (0, columns - 1):
        assert np.abs(out[:, [a]] - kernel.filter(q[:, [a]])).max() < 1e-13
    d, d_q, expected = kernel.collector(), np.zeros_like(q), np.zeros_like(q)
    kernel.vjp(q, d_out, d_q, d)
    kernel.transpose(d_out, expected)
    assert np.abs(d_q - expected).max() < 1e-13


@pytest.mark.parametrize("kind", range(4))
def test_float32_and_determinism(kind):
    q = np.random.default_rng(6).random((36, 3))
    wide, narrow = (Normalised(bases(dtype)[kind], self_terms=False) for dtype in (np.float64, np.float32))
    out = narrow.filter(q)
    assert out.dtype == np.float32
    assert np.abs(out - wide.filter(q)).max() < 2e-6
    again = Normalised(bases(np.float32)[kind], self_terms=False).filter(q)
    assert (out == again).all()
    d, d_wide, d_q = narrow.collector(), wide.collector(), np.zeros_like(q)
    narrow.vjp(q.astype(np.float32), q.astype(np.float32), d_q.astype(np.float32), d)
    wide.vjp(q, q, d_q, d_wide)
    assert narrow.bandwidths_vjp(d) == pytest.approx(wide.bandwidths_vjp(d_wide), rel=1e-4, abs=1e-4)


def test_vertices_are_numbered_as_they_are_touched():
    lattice = Permutohedral(picture(20, 30), [20, 20, 30, 30, 30]).lattice
    seen = np.maximum.accumulate(lattice.vertices.ravel())
    assert lattice.vertices[0].tolist() == list(range(6))
    assert all(b - a in (0, 1) for a, b in pairwise(seen))
    assert lattice.weights.min() > -1e-12
    assert np.abs(lattice.weights.sum(axis=1) - 1).max() < 1e-12


def test_many_vertices():
    # More than the first table holds: it grows, and keys stay unique.
    f = np.random.default_rng(7).uniform(0, 1000, (20_000, 2))
    lattice = Permutohedral(f).lattice
    assert lattice.neighbours.shape[1] > 40_000
    low, high = lattice.neighbours[1, :, 0], lattice.neighbours[1, :, 1]
    there = np.flatnonzero(high < len(high))
    assert (low[high[there]] == there).all()


def test_points_in_one_place():
    out = Normalised(Permutohedral(np.zeros((4, 5))), "after").filter(np.arange(8.0).reshape(4, 2))
    assert out == pytest.approx(np.tile([3.0, 4.0], (4, 1)))
    assert Normalised(Permutohedral([[3.0]])).filter([[2.0]]).shape == (1, 1)


@pytest.mark.parametrize("kind", [Exact, Permutohedral])
@pytest.mark.parametrize(
    ("features", "bandwidths", "words"),
    [
        (np.array([[0.0, 1.0], [np.nan, 2.0]]), 1.0, "feature 0 of point 1 is nan"),
        (np.array([[0.0, 1.0], [1.0, np.inf]]), 1.0, "feature 1 of point 1 is inf"),
        (np.full((2, 2), 1e30), 1.0, "below"),
        (np.zeros((3, 2)), 0.0, "bandwidths must be positive numbers, received 0 for feature 0"),
        (np.zeros((3, 2)), [1.0, -2.0], "received -2 for feature 1"),
        (np.zeros((3, 2)), [1.0, np.nan], "received nan for feature 1"),
        (np.zeros((3, 2)), [1.0, 1.0, 1.0], "need one bandwidth or 2"),
        (np.zeros((0, 2)), 1.0, "at least 1"),
        (np.zeros((2, 0)), 1.0, "at least 1"),
        (np.zeros(3), 1.0, "shape"),
        (np.array([["a"]]), 1.0, "real numbers"),
    ],
)
def test_bad_features(kind, features, bandwidths, words):
    with pytest.raises(InputError, match=words):
        kind(features, bandwidths)


def test_other_bad_input():
    with pytest.raises(InputError, match="at most 16 features, received 17"):
        Permutohedral(np.zeros((3, 17)))
    Permutohedral(points(5, 16))
    with pytest.raises(InputError, match="more vertices than a permutohedral lattice can number"):
        Permutohedral(points(5, 16), 1e-9)
    with pytest.raises(InputError, match="float32 or float64, received int64"):
        Exact(np.zeros((3, 2)), dtype=int)
    with pytest.raises(InputError, match="one of none, symmetric, before, after, received 'rows'"):
        Normalised(Exact(np.zeros((3, 2))), "rows")
    with pytest.raises(InputError, match=r"must have shape \(3, C\)"):
        Normalised(Exact(np.zeros((3, 2)))).filter(np.zeros((4, 2)))
    with pytest.raises(InputError, match="axes of length 1 or more"):
        Separable((0, 3), 1.0)
    with pytest.raises(InputError, match="cut must be a positive number"):
        Separable((2, 3), 1.0, cut=0.0)
    with pytest.raises(InputError, match="bandwidths must be positive"):
        Separable((2, 3), (1.0, 0.0))
