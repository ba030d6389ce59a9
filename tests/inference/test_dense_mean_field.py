"""Mean field with Gaussian kernels against the general one on the written-out model, its bound and its adjoints."""

import itertools

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError
from backfield.inference.mean_field.dense import Coupling, DenseField
from backfield.kernels.gaussian import Exact, Normalised, Permutohedral

FULL = np.array([[1.0, -0.4, 0.1], [-0.4, 0.7, 0.3], [0.1, 0.3, -0.6]])


def field(n=8, compatibilities=(0.8, FULL), kind=Exact, self_terms=False, convergent=False, seed=0, sigma=(1.1, 0.9)):
    rng = np.random.default_rng(seed)
    unary, points = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    kernels = [Normalised(kind(points, s), self_terms=self_terms) for s in sigma[: len(compatibilities)]]
    pairs = zip(kernels, compatibilities, strict=True)
    return DenseField(unary, [Coupling(kernel, c) for kernel, c in pairs], convergent=convergent)


def written_out(dense):
    """Return the same model as potentials of a complete graph."""
    n, n_labels = dense.unary.shape
    edges = list(itertools.combinations(range(n), 2))
    matrices = [kernel.filter(np.eye(n)) for kernel in dense.kernels]
    terms = list(zip(matrices, dense.compatibilities, strict=True))
    tables = np.array([sum(K[i, j] * c for K, c in terms) for i, j in edges])
    return bf.Potentials(bf.Graph.from_edges(edges, n_variables=n, labels=n_labels), dense.unary, tables)


def run(dense, n_iter, state=None):
    state = dense.uniform() if state is None else state
    for _ in range(n_iter):
        state = dense.sweep(state)
    return state


@pytest.mark.parametrize("kind", [Exact, Permutohedral])
def test_equals_mean_field_of_the_written_out_model(kind):
    dense = field(kind=kind)
    theta = written_out(dense)
    other = bf.infer(theta, "mean_field(n_iter=7, schedule='flooding')")
    state = run(dense, 7)
    assert np.abs(np.exp(state) - other.unary).max() < 1e-10
    assert dense.bound(state) == pytest.approx(other.log_partition, abs=1e-10)
    assert dense.bound(state) < bf.infer(theta, "brute_force").log_partition


def test_damped_as_the_general_one():
    dense = field(convergent=True)
    assert 0.1 < dense.damping < 1
    other = bf.infer(written_out(dense), f"mean_field(n_iter=5, schedule='flooding', damping={float(dense.damping)})")
    assert np.abs(np.exp(run(dense, 5)) - other.unary).max() < 1e-10


@pytest.mark.parametrize("compatibilities", [(8.0, 5.0), (-9.0, -6.0), (6.0, 4 * FULL), ([9.0, -3.0, 2.0], 0.5)])
@pytest.mark.parametrize("kind", [Exact, Permutohedral])
def test_convergent_updates_never_lower_the_bound(kind, compatibilities):
    for seed in range(3):
        dense = field(20, compatibilities, kind, convergent=True, seed=seed)
        state, values = dense.from_unary(), []
        for _ in range(60):
            values.append(dense.bound(state))
            state = dense.sweep(state)
        assert np.diff(values).min() > -1e-10


def test_parallel_updates_may_lower_it():
    # What the damping is for: repulsive labels flip to and fro.
    dense = field(20, (-9.0, -6.0))
    values = [dense.bound(run(dense, k, dense.from_unary())) for k in range(8)]
    assert np.diff(values).min() < -1e-2


def test_self_terms_make_attractive_parallel_updates_converge():
    dense = field(20, (8.0, 5.0), self_terms=True)
    values = [dense.bound(run(dense, k, dense.from_unary())) for k in range(12)]
    assert np.diff(values).min() > -1e-10


@pytest.mark.parametrize("kind", [Exact, Permutohedral])
@pytest.mark.parametrize("convergent", [False, True])
def test_adjoints_against_differences(kind, convergent):
    rng = np.random.default_rng(1)
    d_state, step = rng.normal(size=(8, 3)), 1e-6

    def value(unary=0.0, c=0.0, sigma=(1.1, 0.9)):
        dense = field(kind=kind, compatibilities=(0.8 * np.eye(3) + c, FULL), sigma=sigma)
        dense.unary = dense.unary + unary
        dense.damping = at.damping  # the bound behind it is not differentiated
        return (run(dense, 4, dense.uniform()) * d_state).sum()

    at = field(kind=kind, convergent=convergent)
    states = list(itertools.accumulate(range(4), lambda state, _: at.sweep(state), initial=at.uniform()))
    d, back = at.adjoint(), d_state
    for before, after in zip(states[-2::-1], states[:0:-1], strict=True):
        back = at.sweep_vjp(before, after, back, d, bandwidths=True)
    d_sigma = [kernel.bandwidths_vjp(each).sum() for kernel, each in zip(at.kernels, d.kernels, strict=True)]
    e = step * (np.arange(24).reshape(8, 3) == 10)
    assert d.unary[3, 1] == pytest.approx((value(e) - value(-e)) / (2 * step), rel=1e-6, abs=1e-8)
    e = step * np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    wanted = d.compatibilities[0][0, 1] + d.compatibilities[0][1, 0]
    assert wanted == pytest.approx((value(c=e) - value(c=-e)) / (2 * step), rel=1e-6, abs=1e-8)
    for m, found in enumerate(d_sigma):
        ends = [value(sigma=np.array([1.1, 0.9]) + sign * step * (np.arange(2) == m)) for sign in (1, -1)]
        assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-7)


def test_without_bandwidths_the_rest_is_the_same():
    at = field(kind=Permutohedral)
    before = at.from_unary()
    after, d_after = at.sweep(before), np.random.default_rng(2).normal(size=before.shape)
    one, two = at.adjoint(), at.adjoint()
    assert at.sweep_vjp(before, after, d_after, one) == pytest.approx(
        at.sweep_vjp(before, after, d_after, two, bandwidths=True), abs=1e-12
    )
    assert one.unary == pytest.approx(two.unary)


def test_forbidden_labels():
    dense = field(convergent=True)
    dense.unary[2, 1] = -np.inf
    state = run(dense, 5)
    assert np.exp(state)[2, 1] == 0
    assert np.isfinite(dense.bound(state))
    assert not np.isnan(state).any()
    dense.unary[4] = -np.inf
    with pytest.raises(InputError, match="variable 4"):
        dense.sweep(state)


def test_bad_input():
    kernel = Normalised(Exact(np.zeros((4, 1))))
    with pytest.raises(InputError, match=r"symmetric, got 1 at \[0, 1\] and 2 at \[1, 0\]"):
        DenseField(np.zeros((4, 2)), [Coupling(kernel, [[0.0, 1.0], [2.0, 0.0]])])
    with pytest.raises(InputError, match=r"is \(2, 2\), got \(3, 3\)"):
        DenseField(np.zeros((4, 2)), [Coupling(kernel, np.eye(3))])
    with pytest.raises(InputError, match="finite"):
        DenseField(np.zeros((4, 2)), [Coupling(kernel, np.nan)])
    with pytest.raises(InputError, match=r"kernel 0 filters 4 points in float64, the unary terms are \(5, 2\)"):
        DenseField(np.zeros((5, 2)), [Coupling(kernel, 1.0)])
    with pytest.raises(InputError, match="normalised 'after'"):
        DenseField(np.zeros((4, 2)), [Coupling(Normalised(Exact(np.zeros((4, 1))), "after"), 1.0)], convergent=True)
