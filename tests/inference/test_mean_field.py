"""Mean field: against a plain numpy version of the update, enumeration, and differences."""

import itertools
import warnings

import numpy as np
import pytest

import backfield as bf
from backfield.inference import MeanField
from backfield.inference.mean_field.general import GeneralEngine
from backfield.inference.mean_field.lattice import MeanFieldLattice
from tests.models import enumerate_model, random_graph, random_potentials


def cycle(n, labels):
    return bf.Graph.from_edges([(i, (i + 1) % n) for i in range(n)], labels=labels)


GRAPHS = {
    "grid": bf.Graph.grid(3, 4),
    "odd grid": bf.Graph.grid(5, 3),
    "grid of 3 labels": bf.Graph.grid(2, 3, labels=3),
    "cycle": cycle(5, 2),
    "mixed": bf.Graph([2, 3, 1, 2, 4], [(0, 1), (3, 1, 0), (4, 3), (2, 4), (1, 0), (4, 0, 2, 1)]),
}
METHODS = [
    MeanField(),
    MeanField(family="general"),
    MeanField(schedule="sequential"),
    MeanField(schedule="flooding"),
    MeanField(damping=0.3),
    MeanField(schedule="flooding", damping=0.3),
]


def reference(theta, orders, damping=0.0, flooding=False):
    """One sweep for each order: the update of D13 §3.2 with a plain loop over configurations."""
    graph = theta.graph
    factors = theta.factors
    mu = [np.full(count, 1 / count) for count in graph.labels]
    for order in orders:
        old = [m.copy() for m in mu]
        for j in order:
            source = old if flooding else mu
            a = np.array(theta.unary[j], dtype=float)
            for scope, table in zip(graph.factors, factors, strict=True):
                if j not in scope:
                    continue
                for x in itertools.product(*[range(graph.labels[i]) for i in scope]):
                    p = np.prod([source[i][y] for i, y in zip(scope, x, strict=True) if i != j])
                    if p != 0:
                        a[x[list(scope).index(j)]] += p * table[x]
            with np.errstate(divide="ignore"):
                if damping:
                    a = damping * np.log(source[j]) + (1 - damping) * a
            new = np.exp(a - a.max())
            mu[j] = new / new.sum()
    return np.concatenate(mu)


def orders(graph, schedule, n_iter):
    n = graph.n_variables
    if schedule == "lattice":
        colour = np.add(*np.divmod(np.arange(n), graph.shape[1])) % 2
        return [np.argsort(colour, kind="stable")] * n_iter
    forward = np.arange(n)
    return [forward[::-1] if t % 2 and schedule == "sequential" else forward for t in range(n_iter)]


def value_and_gradient(method, theta, c, alpha):
    """<c, mu> + alpha log Z after n_iter sweeps and its gradient, through the contract of the engine alone."""
    engine = method.engine(theta)
    state = engine.init()
    tape = []
    for t in range(method.n_iter):
        tape.append(state.copy())
        engine.sweep(state, t)
    mu = engine.marginals(state)
    value = (c * mu.vector()).sum() + alpha * engine.log_partition(mu)
    d_theta = engine.adjoint()
    d_mu = mu.like(c + engine.log_partition_vjp(mu, d_theta, alpha).vector())
    d_state = np.zeros_like(state)
    engine.marginals_vjp(state, d_mu, d_state, d_theta)
    for t in reversed(range(method.n_iter)):
        engine.sweep_vjp(tape[t], state, t, d_state, d_theta)
        state = tape[t]
    return value, d_theta


@pytest.mark.parametrize("n_iter", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("name", GRAPHS)
def test_equals_plain_update(name, method, n_iter):
    graph = GRAPHS[name]
    theta = random_potentials(graph, np.random.default_rng(0))
    schedule = method.schedule if method.schedule != "auto" else "lattice" if graph.shape else "sequential"
    expected = reference(theta, orders(graph, schedule, n_iter), method.damping, schedule == "flooding")
    run = method.replace(n_iter=n_iter).infer(theta)
    np.testing.assert_allclose(run.marginals.unary_flat, expected, rtol=1e-12)
    unary = run.marginals.unary
    for scope, table in zip(graph.factors, run.factors, strict=True):
        product = np.ones(())
        for i in scope:
            product = np.multiply.outer(product, unary[i])
        np.testing.assert_allclose(table, product, rtol=1e-14)


def test_own_order():
    graph = GRAPHS["mixed"]
    theta = random_potentials(graph, np.random.default_rng(1))
    order = [3, 0, 4, 2, 1]
    run = MeanField(n_iter=2, order=order).infer(theta)
    np.testing.assert_allclose(run.marginals.unary_flat, reference(theta, [order, order[::-1]]), rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_bound_and_monotone(seed):
    rng = np.random.default_rng(seed)
    theta = random_potentials(random_graph(rng), rng, scale=2.0)
    log_z, exact = enumerate_model(theta)
    for schedule in ("sequential", "flooding"):
        values = [MeanField(n_iter=n, schedule=schedule).infer(theta).log_partition for n in range(8)]
        assert max(values) <= log_z + 1e-10
        if schedule == "sequential":
            assert min(np.diff(values)) >= -1e-10
    if theta.graph.n_factors == 0:
        run = MeanField(n_iter=1).infer(theta)
        np.testing.assert_allclose(run.marginals.vector(), exact.vector(), rtol=1e-12)
        assert abs(run.log_partition - log_z) < 1e-12


def test_exact_without_factors():
    graph = bf.Graph([2, 3, 1, 5])
    theta = random_potentials(graph, np.random.default_rng(0), scale=3.0)
    log_z, exact = enumerate_model(theta)
    run = MeanField(n_iter=1).infer(theta)
    np.testing.assert_allclose(run.marginals.vector(), exact.vector(), rtol=1e-12)
    assert abs(run.log_partition - log_z) < 1e-12


@pytest.mark.parametrize("n_iter", [1, 3, 50])
@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("name", GRAPHS)
def test_gradient(name, method, n_iter):
    rng = np.random.default_rng(2)
    theta = random_potentials(GRAPHS[name], rng)
    method = method.replace(n_iter=n_iter)
    vector = theta.vector()
    c = rng.normal(size=len(vector))

    def value(v):
        engine = method.engine(theta.like(v))
        state = engine.init()
        engine.sweeps(state, 0, n_iter)
        mu = engine.marginals(state)
        return c @ mu.vector() + 0.7 * engine.log_partition(mu)

    at, d_theta = value_and_gradient(method, theta, c, 0.7)
    assert abs(at - value(vector)) < 1e-12
    found = d_theta.potentials(theta.graph).vector()
    h = 1e-5
    expected = [(value(vector + h * e) - value(vector - h * e)) / (2 * h) for e in np.eye(len(vector))]
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


def test_gradient_of_damping():
    rng = np.random.default_rng(3)
    theta = random_potentials(GRAPHS["mixed"], rng)
    c = rng.normal(size=len(theta.vector()))
    for schedule in ("sequential", "flooding"):
        method = MeanField(4, damping=0.3, schedule=schedule)
        high, low = (value_and_gradient(method.replace(damping=d), theta, c, 1.0)[0] for d in (0.30001, 0.29999))
        found = value_and_gradient(method, theta, c, 1.0)[1]
        assert found.parameters["damping"][0] == pytest.approx((high - low) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("name", ["grid", "mixed"])
def test_complex_step(name, method):
    rng = np.random.default_rng(4)
    theta = random_potentials(GRAPHS[name], rng)
    if method.schedule != "flooding":  # which would jump between the two ends of a forbidden pair
        theta.factors_flat[5] = -np.inf
    c, v = rng.normal(size=(2, len(theta.vector())))
    method = method.replace(n_iter=4)
    if method.schedule == "auto" and method.damping == 0:
        method = method.replace(family="general")

    def gradient(step):
        value, d_theta = value_and_gradient(method, theta.like(theta.vector() + step * v), c, 0.5)
        return value, d_theta.potentials(theta.graph).vector()

    value, found = gradient(1e-20j)
    assert value.imag / 1e-20 == pytest.approx(gradient(0)[1] @ v, rel=1e-10)
    expected = (gradient(1e-5)[1] - gradient(-1e-5)[1]) / 2e-5
    np.testing.assert_allclose(found.imag / 1e-20, expected, atol=1e-6 * np.abs(expected).max())
    assert np.isfinite(found).all()


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (5, 2), (3, 3), (6, 7), (7, 6), (90, 101)])
def test_lattice_equals_general(shape):
    rng = np.random.default_rng(5)
    theta = random_potentials(bf.Graph.grid(*shape), rng)
    c = rng.normal(size=len(theta.vector()))
    lattice, general = MeanField(7, family="lattice"), MeanField(7, family="general")
    assert isinstance(MeanField().engine(theta), MeanFieldLattice)
    assert isinstance(general.engine(theta), GeneralEngine)
    a, b = lattice.infer(theta), general.infer(theta)
    np.testing.assert_allclose(a.marginals.vector(), b.marginals.vector(), rtol=0, atol=1e-12)
    assert a.log_partition == pytest.approx(b.log_partition, rel=1e-12)
    (value_a, d_a), (value_b, d_b) = (value_and_gradient(method, theta, c, 0.3) for method in (lattice, general))
    assert value_a == pytest.approx(value_b, rel=1e-12)
    np.testing.assert_allclose(d_a.unary, d_b.unary, rtol=0, atol=1e-12 * np.abs(d_b.unary).max())
    np.testing.assert_allclose(d_a.factors, d_b.factors, rtol=0, atol=1e-12 * np.abs(d_b.factors).max())


def test_lattice_touches_no_scopes():
    graph = bf.Graph.grid(6, 5)
    theta = bf.Potentials(graph, np.zeros((30, 2)), np.zeros((graph.n_factors, 2, 2)))
    value_and_gradient(MeanField(2), theta, np.ones(len(theta.vector())), 1.0)
    assert not {"layout", "_scope", "factors", "_scope_ptr"} & set(vars(graph))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", GRAPHS)
def test_huge_potentials(name, dtype):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(6), scale=1e4).astype(dtype)
    for method in METHODS:
        run = method.infer(theta)
        mu = run.marginals
        assert np.isfinite(mu.vector()).all() and np.isfinite(run.log_partition)
        np.testing.assert_allclose([m.sum() for m in mu.unary], 1, rtol=1e-6)
        _, d_theta = value_and_gradient(method.replace(n_iter=5), theta, np.ones_like(theta.vector()), 1.0)
        assert np.isfinite(d_theta.unary).all() and np.isfinite(d_theta.factors).all()


@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_forbidden_entries(damping):
    rng = np.random.default_rng(7)
    graph = bf.Graph([3, 3, 3], [(0, 1), (1, 2), (0, 1, 2)])
    theta = random_potentials(graph, rng)
    theta.factors_flat[[1, 12, 20]] = -np.inf  # (0, 1) of the first two factors, (0, 0, 2) of the third
    theta.unary_flat[8] = -np.inf
    log_z, _ = enumerate_model(theta)
    run = MeanField(20, damping=damping).infer(theta)
    assert np.isfinite(run.log_partition) and run.log_partition < log_z
    assert run.marginals.unary_flat[8] == 0
    assert run.factors[0][0, 1] == 0
    _, d_theta = value_and_gradient(MeanField(5, damping=damping), theta, rng.normal(size=len(theta.vector())), 1.0)
    assert np.isfinite(d_theta.unary).all() and np.isfinite(d_theta.factors).all()
    assert d_theta.unary[8] == 0


def test_zero_times_minus_infinity():
    # Variable 0 goes first and drops label 0, so that the -inf it shares with label 0 of variable 1 no longer counts.
    graph = bf.Graph.from_edges([(0, 1)], labels=2)
    theta = bf.Potentials(graph, [[-np.inf, 0], [0, 0]], [[[-np.inf, 0], [0, 0]]])
    run = MeanField().infer(theta)
    np.testing.assert_allclose(run.unary, [[0, 1], [0.5, 0.5]])
    assert run.log_partition == pytest.approx(np.log(2))


def test_forbidden_start():
    graph = bf.Graph.chain(3)
    equal = [[0, -np.inf], [-np.inf, 0]]
    theta = bf.Potentials(graph, np.zeros((3, 2)), [equal, equal])
    with pytest.raises(bf.InputError, match=r"forbids every label of variable 0 .* loopy_bp or tree_reweighted"):
        MeanField().infer(theta)


@pytest.mark.parametrize("name", GRAPHS)
def test_float32(name):
    rng = np.random.default_rng(8)
    theta = random_potentials(GRAPHS[name], rng, scale=0.5)
    c = rng.normal(size=len(theta.vector()))
    for method in (MeanField(), MeanField(family="general"), MeanField(damping=0.3)):
        double, single = method.infer(theta), method.infer(theta.astype("float32"))
        assert single.marginals.dtype == np.float32 == single.marginals.factors_flat.dtype
        np.testing.assert_allclose(single.marginals.vector(), double.marginals.vector(), atol=1e-5)
        assert single.log_partition == pytest.approx(double.log_partition, rel=1e-5)
        _, a = value_and_gradient(method.replace(n_iter=5), theta, c, 1.0)
        _, b = value_and_gradient(method.replace(n_iter=5), theta.astype("float32"), c.astype("float32"), 1.0)
        assert b.unary.dtype == np.float32
        np.testing.assert_allclose(b.unary, a.unary, atol=1e-4)
        np.testing.assert_allclose(b.factors, a.factors, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lattice_keeps_both_tails(dtype):
    """log mu(0) stays right where mu(1) rounds to one: losses take its logarithm."""
    graph = bf.Graph.grid(3, 3)
    unary = np.stack([np.zeros(9), np.linspace(-60, 60, 9)], axis=1)
    theta = bf.Potentials(graph, unary, np.zeros((12, 2, 2))).astype(dtype)
    mu = MeanField(n_iter=1).infer(theta).unary
    np.testing.assert_allclose(np.log(mu[:, 1]) - np.log(mu[:, 0]), unary[:, 1], rtol=1e-6)


def test_tolerance():
    theta = random_potentials(GRAPHS["grid"], np.random.default_rng(9), scale=0.5)
    for method in METHODS:
        run = method.replace(n_iter=500, tol=1e-8).infer(theta)
        assert run.converged and run.n_iter < 500 and run.residual < 1e-8
    with pytest.warns(bf.ConvergenceWarning):
        assert not MeanField(n_iter=2, tol=1e-12).infer(theta).converged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert MeanField(n_iter=2).infer(theta).n_iter == 2


def test_observed():
    theta = random_potentials(GRAPHS["grid"], np.random.default_rng(12))
    observed = np.full(12, -1)
    observed[[0, 5]] = 1
    run = bf.infer(theta, "mean_field", observed=observed)
    np.testing.assert_array_equal(run.unary[[0, 5]], [[0, 1], [0, 1]])
    run = bf.infer(theta, MeanField(order=list(range(12))), observed=observed)  # an order of one's own stays valid
    np.testing.assert_array_equal(run.unary[[0, 5]], [[0, 1], [0, 1]])


def test_bad_settings():
    theta = random_potentials(GRAPHS["cycle"], np.random.default_rng(0))
    for bad in ({"schedule": "monotonic"}, {"family": "pairwise"}, {"damping": 1.0}, {"n_iter": -1}, {"tol": 0.0}):
        with pytest.raises(bf.InputError):
            MeanField(**bad)
    for bad in ({"schedule": "lattice"}, {"family": "lattice"}, {"order": [0, 1, 2, 3, 3]}, {"order": "0"}):
        with pytest.raises(bf.InputError):
            MeanField(**bad).infer(theta)
    with pytest.raises(bf.InputError, match="no damping"):
        MeanField(family="lattice", damping=0.1).infer(random_potentials(GRAPHS["grid"], np.random.default_rng(0)))
