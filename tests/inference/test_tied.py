"""Tied groups in exact inference and MAP: the same as their tables written out."""

import itertools

import numpy as np
import pytest

from backfield import Graph, InputError, Potentials, Tied, batch, find_map
from backfield.inference import Chain, Exact
from backfield.inference.exact.tied_chains import chain_likelihood, linear_chain_likelihoods, padded, tied_chains
from backfield.map_solvers import Viterbi


def chains(rng, lengths=(4, 1, 6), labels=3, dtype=np.float64, scale=1.0):
    table = (scale * rng.normal(size=(labels, labels))).astype(dtype)
    unary = [(scale * rng.normal(size=(n, labels))).astype(dtype) for n in lengths]
    return batch([Potentials(Graph.chain(n, labels), u, groups=[Tied(table)]) for n, u in zip(lengths, unary, strict=True)])


def plain_chain(unary, table):
    """Return log Z, marginals and summed pairs of one chain in the log domain, by the textbook."""
    n, count = unary.shape
    forward, backward = np.array(unary, dtype=float), np.zeros((n, count))
    for t in range(1, n):
        forward[t] += np.logaddexp.reduce(forward[t - 1][:, None] + table, axis=0)
    for t in range(n - 2, -1, -1):
        backward[t] = np.logaddexp.reduce(table + (unary[t + 1] + backward[t + 1])[None], axis=1)
    log_z = np.logaddexp.reduce(forward[-1])
    pairs = np.zeros((count, count))
    for t in range(1, n):
        pairs += np.exp(forward[t - 1][:, None] + table + (unary[t] + backward[t])[None] - log_z)
    return log_z, np.exp(forward + backward - log_z), pairs


@pytest.mark.parametrize("method", [Chain(), Exact()])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_log_partition_and_gradient_equal_those_of_tables(method, dtype, scale):
    theta = chains(np.random.default_rng(0), dtype=dtype, scale=scale)
    value, d_theta = method.log_partition_and_gradient(theta)
    wanted, mu = method.marginals(theta.written_out())
    tolerance = 1e-11 if dtype == np.float64 else 2e-4
    assert value == pytest.approx(wanted, rel=tolerance)
    assert [group.kind for group in d_theta.groups] == ["tied"] and d_theta.dtype == dtype
    np.testing.assert_allclose(d_theta.vector(), theta.contract(mu).vector(), atol=10 * tolerance)
    assert theta._tables is not None  # by written_out here; the method itself must not need them:
    fresh = chains(np.random.default_rng(0), dtype=dtype, scale=scale)
    method.log_partition_and_gradient(fresh)
    assert fresh._tables is None


def test_other_groups_are_written_out_and_contracted():
    rng = np.random.default_rng(1)
    graph = Graph.grid(2, 3, labels=2)
    groups = [Tied(rng.normal(size=(2, 2))), Tied(rng.normal(size=(2, 2, 2)), rng.normal(size=(3, 2)))]
    theta = Potentials(graph, rng.normal(size=(6, 2)), groups=groups)
    value, d_theta = Exact().log_partition_and_gradient(theta)
    step, direction = 1e-6, rng.normal(size=len(theta.vector()))
    there, back = (Exact().log_partition_and_gradient(theta.like(theta.vector() + s * step * direction))[0] for s in (1, -1))
    assert d_theta.vector() @ direction == pytest.approx((there - back) / (2 * step), rel=1e-7)
    assert value == pytest.approx(Exact().infer(theta.written_out()).log_partition, rel=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_forbidden_labels_and_transitions(dtype):
    rng = np.random.default_rng(2)
    lengths, count = [5, 40, 1, 30], 4
    unary, table = rng.normal(size=(sum(lengths), count)), rng.normal(size=(count, count))
    unary[3, 1:] = -np.inf  # one label
    unary[7, 2] = -np.inf
    for forbid in (False, True):
        if forbid:
            # Labels {0, 1} and {2, 3} never mix, and the second two fall behind by e^-30 a step, until the last says 2.
            table[:2, 2:] = table[2:, :2] = -np.inf
            table[2:, 2:] -= 15
            unary[5 + 40 + 1 :, :2] += 4
            unary[-1, :2] = -np.inf
        u, t = unary.astype(dtype), table.astype(dtype)
        ptr = np.cumsum([0, *lengths])
        log_z, mu, pairs = tied_chains(u, ptr, t)
        wanted = [plain_chain(u[a:b].astype(float), t.astype(float)) for a, b in itertools.pairwise(ptr)]
        tolerance = 1e-11 if dtype == np.float64 else 2e-4
        np.testing.assert_allclose(log_z, [each[0] for each in wanted], rtol=tolerance)
        np.testing.assert_allclose(mu, np.concatenate([each[1] for each in wanted]), atol=tolerance)
        np.testing.assert_allclose(pairs, sum(each[2] for each in wanted), atol=100 * tolerance)


def test_impossible_chains_are_refused():
    unary = np.zeros((3, 2))
    unary[1] = -np.inf
    with pytest.raises(InputError, match="no configuration is possible"):
        tied_chains(unary, np.array([0, 3]), np.zeros((2, 2)))


def test_complex_chains_are_differentiated():
    theta = chains(np.random.default_rng(3))
    direction = np.random.default_rng(4).normal(size=len(theta.vector()))
    moved = theta.like(theta.vector() + 1e-100j * direction)
    value, d_theta = Chain().log_partition_and_gradient(moved)
    plain, gradient = Chain().log_partition_and_gradient(theta)
    assert value.imag / 1e-100 == pytest.approx(gradient.vector() @ direction, rel=1e-12)
    step = 1e-6
    there, back = (Chain().log_partition_and_gradient(theta.like(theta.vector() + s * step * direction))[1] for s in (1, -1))
    np.testing.assert_allclose(d_theta.vector().imag / 1e-100, (there.vector() - back.vector()) / (2 * step), atol=1e-8)


@pytest.mark.parametrize("solver", ["viterbi", "max_product", "icm"])
def test_map_of_tied_chains(solver):
    rng = np.random.default_rng(5)
    for _ in range(10):
        theta = chains(rng, lengths=rng.integers(1, 7, size=3))
        theta.unary[0, 1] = -np.inf
        found, wanted = find_map(theta, solver), find_map(theta.written_out(), solver)
        np.testing.assert_array_equal(found.labels, wanted.labels)
        assert found.value == pytest.approx(wanted.value, rel=1e-13)


def test_viterbi_writes_no_tables():
    theta = chains(np.random.default_rng(6))
    Viterbi().solve(theta)
    assert theta._tables is None


@pytest.mark.parametrize("n_labels", [2, 3, 9])
def test_rows_times_weights_in_the_kernel_have_the_likelihood_of_scores_and_its_gradient(n_labels):
    rng, width = np.random.default_rng(n_labels), padded(n_labels)
    ptr, rows = np.array([0, 1, 5, 12]), rng.normal(size=(12, 6))
    ptr.flags.writeable = False
    labels, table = rng.integers(0, n_labels, 12), rng.normal(size=(n_labels, n_labels))
    weights = np.zeros((7, width))
    weights[:, :n_labels], weights[-1, n_labels:] = rng.normal(size=(7, n_labels)), -np.inf

    def likelihood(weights):
        d_weights = np.empty((1, *weights.shape))
        (found,) = linear_chain_likelihoods(rows, weights, d_weights, np.array([[0, 3]]), ptr, 7, labels, table)
        return found, d_weights[0]

    found, d_weights = likelihood(weights)
    plain = chain_likelihood(rows @ weights[:-1], weights[-1], ptr, 7, labels, table, False)
    assert found.value == pytest.approx(plain.value, rel=1e-13) and found.wrong == plain.wrong
    np.testing.assert_allclose(found.pairs, plain.pairs, atol=1e-13)
    assert not d_weights[:, n_labels:].any()
    step = 1e-6
    for place in [(0, 0), (3, n_labels - 1), (6, 1)]:
        up, down = weights.copy(), weights.copy()
        up[place] += step
        down[place] -= step
        slope = (likelihood(up)[0].value - likelihood(down)[0].value) / (2 * step)
        assert d_weights[place] == pytest.approx(slope, abs=1e-7)
