"""The smoothed LP: against a plain numpy version of L13 eq. (8)-(10), L-BFGS, scipy's LP, and differences."""

import itertools
import warnings

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp

import backfield as bf
from backfield.inference import SmoothedLP
from backfield.inference.smoothed_lp.general import GeneralEngine
from backfield.inference.smoothed_lp.lattice import SmoothedLattice
from backfield.inference.smoothed_lp.method import biases
from backfield.inference.smoothed_lp.pairwise import PairwiseEngine
from tests.models import enumerate_model, random_graph, random_potentials


def cycle(n, labels):
    return bf.Graph.from_edges([(i, (i + 1) % n) for i in range(n)], labels=labels)


GRAPHS = {
    "grid": bf.Graph.grid(3, 4),
    "odd grid": bf.Graph.grid(5, 3),
    "grid of 3 labels": bf.Graph.grid(2, 3, labels=3),
    "cycle": cycle(5, 2),
    "doubled": bf.Graph.from_edges([(0, 1), (1, 0), (2, 1), (0, 1)], n_variables=4, labels=3),
    "mixed": bf.Graph([2, 3, 1, 2, 4], [(0, 1), (3, 1, 0), (4, 3), (2, 4), (1, 0), (4, 0, 2, 1)]),
}
METHODS = [
    SmoothedLP(),
    SmoothedLP(family="general"),
    SmoothedLP(schedule="sequential"),
    SmoothedLP(choice="random", seed=3),
    SmoothedLP(choice="random", seed=3, family="general"),
    SmoothedLP(choice="greedy"),
]


class Reference:
    """Eq. (8)-(10) with plain numpy; lambda[c][j] is the message of factor c to its j-th variable."""

    def __init__(self, theta, eps):
        self.theta, self.eps, self.graph = theta, eps, theta.graph
        self.scopes = [[int(i) for i in scope] for scope in self.graph.factors]
        self.lam = [[np.zeros(self.graph.labels[i]) for i in scope] for scope in self.scopes]

    def load(self, flat):
        for scope, lam in zip(self.scopes, self.lam, strict=True):
            for j, i in enumerate(scope):
                lam[j], flat = flat[: self.graph.labels[i]], flat[self.graph.labels[i] :]
        return self

    def flat(self):
        return np.concatenate([np.zeros(0)] + [x for lam in self.lam for x in lam])

    def energies(self):
        unary = [np.array(u, dtype=float) for u in self.theta.unary]
        tables = []
        for scope, lam, table in zip(self.scopes, self.lam, self.theta.factors, strict=True):
            total = np.array(table, dtype=float)
            for j, i in enumerate(scope):
                shape = np.ones(len(scope), dtype=int)
                shape[j] = -1
                total = total + lam[j].reshape(shape)
                unary[i] = unary[i] - lam[j]
            tables.append(total)
        return unary, tables

    def regions(self):
        unary, tables = self.energies()
        return [x / self.eps for x in unary + tables]

    def dual(self):
        return self.eps * sum(logsumexp(x) for x in self.regions())

    def marginals(self):
        mu = [np.exp(x - logsumexp(x)) for x in self.regions()]
        return mu[: self.graph.n_variables], mu[self.graph.n_variables :]

    def seen(self, c, j, mu):
        return mu.sum(axis=tuple(a for a in range(mu.ndim) if a != j))

    def gradient(self):
        unary, tables = self.marginals()
        parts = [self.seen(c, j, tables[c]) - unary[i] for c, scope in enumerate(self.scopes) for j, i in enumerate(scope)]
        return np.concatenate([np.zeros(0)] + parts)

    def star(self, v):
        unary, tables = self.marginals()
        around = [(c, scope.index(v)) for c, scope in enumerate(self.scopes) if v in scope]
        logs = [np.log(self.seen(c, j, tables[c])) for c, j in around]
        mean = (np.log(unary[v]) + sum(logs)) / (1 + len(around))
        for (c, j), log in zip(around, logs, strict=True):
            self.lam[c][j] = self.lam[c][j] + self.eps * mean - self.eps * log

    def vector(self):
        unary, tables = self.marginals()
        return np.concatenate([x.ravel() for x in unary + tables])


def orders(graph, method, n_iter):
    n = graph.n_variables
    if method.choice == "random":
        return [np.random.default_rng([method.seed, t]).permutation(n) for t in range(n_iter)]
    if graph.shape and method.schedule != "sequential":
        return [np.argsort(np.add(*np.divmod(np.arange(n), graph.shape[1])) % 2, kind="stable")] * n_iter
    return [np.arange(n)[:: 1 - 2 * (t % 2)] for t in range(n_iter)]


def centred(graph, messages):
    """Messages with mean zero: constants count for nothing."""
    ptr = graph.layout.msg_ptr
    return np.concatenate([np.zeros(0)] + [messages[a:b] - messages[a:b].mean() for a, b in itertools.pairwise(ptr)])


def value_and_gradient(method, theta, c, alpha, beta=0.0):
    """<c, mu> + alpha dual + beta primal after n_iter sweeps and its gradient, through the contract of the engine."""
    engine = method.engine(theta)
    state = engine.init()
    tape = []
    for t in range(method.n_iter):
        tape.append(state.copy())
        engine.sweep(state, t)
    mu = engine.marginals(state)
    value = (c * mu.vector()).sum() + alpha * engine.value(state, mu) + beta * engine.log_partition(mu)
    d_theta = engine.adjoint()
    d_mu = mu.like(c + engine.log_partition_vjp(mu, d_theta, beta).vector())
    d_state = np.zeros_like(state)
    engine.marginals_vjp(state, d_mu, d_state, d_theta)
    engine.value_vjp(state, mu, d_state, d_theta, alpha)
    for t in reversed(range(method.n_iter)):
        engine.sweep_vjp(tape[t], state, t, d_state, d_theta)
        state = tape[t]
    return value, d_theta.potentials(theta.graph).vector()


@pytest.mark.parametrize("n_iter", [0, 1, 2, 3])
@pytest.mark.parametrize("method", METHODS[:-1], ids=repr)
@pytest.mark.parametrize("name", GRAPHS)
def test_equals_plain_update(name, method, n_iter):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(0), scale=0.5)
    plain = Reference(theta, 0.3)
    for order in orders(theta.graph, method, n_iter):
        for v in order:
            plain.star(v)
    method = method.replace(n_iter=n_iter, eps=0.3)
    run = method.infer(theta)
    np.testing.assert_allclose(run.marginals.vector(), plain.vector(), rtol=1e-10)
    assert run.log_partition == pytest.approx(plain.dual(), rel=1e-13)
    engine = method.engine(theta)
    state = engine.init()
    engine.sweeps(state, 0, n_iter)
    np.testing.assert_allclose(engine.messages(state), centred(theta.graph, plain.flat()), atol=1e-12)
    assert engine.dual(state) == run.log_partition


@pytest.mark.parametrize("name", GRAPHS)
def test_greedy_takes_the_largest_fall(name):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(1))
    plain = Reference(theta, 0.2)
    for _ in range(theta.graph.n_variables):
        start, values = plain.flat(), []
        for v in range(theta.graph.n_variables):
            plain.load(start).star(v)
            values.append(plain.dual())
        plain.load(start).star(int(np.argmin(values)))
    run = SmoothedLP(1, eps=0.2, choice="greedy").infer(theta)
    assert run.log_partition == pytest.approx(plain.dual(), rel=1e-13)
    np.testing.assert_allclose(run.marginals.vector(), plain.vector(), rtol=1e-9)


@pytest.mark.parametrize("seed", range(200))
def test_dual_never_rises(seed):
    rng = np.random.default_rng(seed)
    theta = random_potentials(random_graph(rng, n_max=8, labels_max=4, arity_max=4, factors_max=10), rng, scale=2.0)
    eps = float(rng.choice([0.05, 0.1, 0.5, 2.0]))
    method = SmoothedLP(eps=eps, choice=["cyclic", "random", "greedy"][seed % 3], seed=seed)
    engine = method.engine(theta)
    state = engine.init()
    values = [engine.dual(state)]
    for t in range(25):
        engine.sweep(state, t)
        values.append(engine.dual(state))
    assert max(np.diff(values)) <= 1e-12 * abs(values[-1])
    log_z, _ = enumerate_model(theta.like(theta.vector() / eps))
    assert values[-1] >= eps * log_z - 1e-10
    if eps >= 1:
        assert values[-1] >= enumerate_model(theta)[0] - 1e-10
    assert method.infer(theta).bound == ("upper" if eps >= 1 else "none")


def feasible(plain):
    """A point of the local polytope near the marginals: means over regions, to which tables are then scaled."""
    unary, tables = plain.marginals()
    views = [[u] for u in unary]
    for c, scope in enumerate(plain.scopes):
        for j, i in enumerate(scope):
            views[i].append(plain.seen(c, j, tables[c]))
    unary = [np.mean(v, axis=0) for v in views]
    for c, scope in enumerate(plain.scopes):
        for _ in range(200):
            for j, i in enumerate(scope):
                shape = np.ones(len(scope), dtype=int)
                shape[j] = -1
                tables[c] = tables[c] * (unary[i] / plain.seen(c, j, tables[c])).reshape(shape)
    return unary, tables


@pytest.mark.parametrize("seed", range(6))
def test_equals_lbfgs_with_a_primal_point(seed):
    rng = np.random.default_rng(seed)
    theta = random_potentials(random_graph(rng, n_max=10, labels_max=3, arity_max=3, factors_max=12), rng)
    eps = [0.1, 0.3, 1.0][seed % 3]
    plain = Reference(theta, eps)
    engine = SmoothedLP(eps=eps).engine(theta)
    state = engine.init()
    engine.sweeps(state, 0, 20000)
    found = engine.dual(state)
    if theta.graph.n_factors:
        best = minimize(
            lambda x: (plain.load(x).dual(), plain.gradient()),
            plain.flat(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-10},
        )
        assert found == pytest.approx(best.fun, abs=1e-6)
    unary, tables = feasible(plain.load(engine.messages(state)))
    for c, scope in enumerate(plain.scopes):
        for j, i in enumerate(scope):
            np.testing.assert_allclose(plain.seen(c, j, tables[c]), unary[i], atol=1e-10)
    primal = sum(x @ y for x, y in zip(theta.unary, unary, strict=True))
    primal += sum((x * y).sum() for x, y in zip(theta.factors, tables, strict=True))
    primal -= eps * sum((p[p > 0] * np.log(p[p > 0])).sum() for p in unary + tables)
    assert -1e-9 <= found - primal < 1e-6
    assert engine.log_partition(engine.marginals(state)) == pytest.approx(found, abs=1e-5)


def local_lp(theta):
    """Max theta·mu over the local polytope by scipy's LP."""
    graph, layout = theta.graph, theta.graph.layout
    n_unary, size = len(theta.unary_flat), len(theta.vector())
    rows, right = [], []
    for i in range(graph.n_variables):
        row = np.zeros(size)
        row[layout.var_ptr[i] : layout.var_ptr[i + 1]] = 1
        rows.append(row)
        right.append(1)
    for k, (i, c) in enumerate(zip(layout.scope, layout.slot_factor, strict=True)):
        entry = np.arange(layout.table_ptr[c + 1] - layout.table_ptr[c])
        for x in range(graph.labels[i]):
            row = np.zeros(size)
            row[n_unary + layout.table_ptr[c] + entry[entry // layout.stride[k] % graph.labels[i] == x]] = 1
            row[layout.var_ptr[i] + x] = -1
            rows.append(row)
            right.append(0)
    return -linprog(-theta.vector(), A_eq=np.array(rows), b_eq=right, bounds=(0, None)).fun


@pytest.mark.parametrize("seed", range(20))
def test_theorem_1(seed):
    rng = np.random.default_rng(seed)
    theta = random_potentials(random_graph(rng, n_max=8, factors_max=10), rng)
    best = local_lp(theta)
    h_max = np.log(theta.graph.labels).sum() + np.log(np.diff(theta.graph.layout.table_ptr)).sum()
    for eps in (0.1, 1.0):
        values = [SmoothedLP(n, eps=eps).infer(theta).log_partition for n in (0, 1, 5)]
        assert min(values) >= best - 1e-9
        assert SmoothedLP(2000, eps=eps).infer(theta).log_partition <= best + eps * h_max + 1e-9


@pytest.mark.parametrize("name", GRAPHS)
def test_theorem_4(name):
    """-F(y) + A(lambda, F + Delta) = eps · (sum over regions of logistic losses of f = F / eps, bias b) + Delta(y, y)."""
    rng = np.random.default_rng(2)
    graph, eps = GRAPHS[name], 0.1
    energy, delta = random_potentials(graph, rng), random_potentials(graph, rng)
    y = np.array([rng.integers(count) for count in graph.labels])
    theta = energy.like(energy.vector() + delta.vector())
    engine = SmoothedLP(eps=eps).engine(theta)
    state = engine.init()
    engine.sweeps(state, 0, 2)  # any messages
    messages = engine.messages(state)
    b = biases(graph, messages, eps, delta)
    structured = -energy.score(y) + engine.dual(state)
    f = energy.like(energy.vector() / eps)
    scores = f.like(f.vector() + b.vector())
    tables = [*scores.unary, *scores.factors]
    logistic = sum(logsumexp(table) for table in tables) - scores.score(y)
    assert structured == pytest.approx(eps * logistic + delta.score(y), rel=1e-12)
    assert eps * b.score(y) == pytest.approx(delta.score(y), rel=1e-9)  # messages cancel at any labeling
    softmax = np.concatenate([np.exp(table - logsumexp(table)).ravel() for table in tables])
    np.testing.assert_allclose(engine.marginals(state).vector(), softmax, rtol=1e-9)

    # The same messages under another F: only the losses change.
    other = random_potentials(graph, rng)
    engine = SmoothedLP(eps=eps).engine(other.like(other.vector() + delta.vector()))
    structured = -other.score(y) + engine.dual(engine.state_of(messages))
    scores = other.like(other.vector() / eps + b.vector())
    logistic = sum(logsumexp(table) for table in [*scores.unary, *scores.factors]) - scores.score(y)
    assert structured == pytest.approx(eps * logistic + delta.score(y), rel=1e-12)


@pytest.mark.parametrize("n_iter", [1, 3, 10])
@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("name", GRAPHS)
def test_gradient(name, method, n_iter):
    if method.choice == "greedy" and n_iter > 3:
        pytest.skip("near the optimum a difference crosses from one choice of stars to another")
    rng = np.random.default_rng(3)
    theta = random_potentials(GRAPHS[name], rng)
    method = method.replace(n_iter=n_iter, eps=0.5)
    vector = theta.vector()
    c = rng.normal(size=len(vector))
    value, found = value_and_gradient(method, theta, c, 0.7, -0.4)

    def at(v):
        engine = method.engine(theta.like(v))
        state = engine.init()
        engine.sweeps(state, 0, n_iter)
        mu = engine.marginals(state)
        return c @ mu.vector() + 0.7 * engine.dual(state) - 0.4 * engine.log_partition(mu)

    assert value == pytest.approx(at(vector), rel=1e-12)
    h = 1e-5
    expected = [(at(vector + h * e) - at(vector - h * e)) / (2 * h) for e in np.eye(len(vector))]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", GRAPHS)
def test_gradient_of_the_dual_at_fixed_messages(name):
    """dA / d theta = mu and dA / d lambda = mu_alpha(y_v) - mu_v(y_v)."""
    theta = random_potentials(GRAPHS[name], np.random.default_rng(4))
    for family in ("auto", "general"):
        engine = SmoothedLP(eps=0.2, family=family).engine(theta)
        state = engine.init()
        engine.sweep(state, 0)
        mu = engine.marginals(state)
        d_state, d_theta = np.zeros_like(state), engine.adjoint()
        engine.value_vjp(state, mu, d_state, d_theta)
        np.testing.assert_array_equal(d_theta.potentials(theta.graph).vector(), mu.vector())
        direction = np.random.default_rng(5).normal(size=state.shape)
        h = 1e-5
        expected = (engine.dual(state + h * direction) - engine.dual(state - h * direction)) / (2 * h)
        assert (d_state * direction).sum() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("choice", ["cyclic", "random", "greedy"])
@pytest.mark.parametrize("name", ["grid", "doubled", "mixed"])
def test_complex_step(name, choice):
    rng = np.random.default_rng(6)
    theta = random_potentials(GRAPHS[name], rng)
    theta.factors_flat[5] = -np.inf
    c, v = rng.normal(size=(2, len(theta.vector())))
    method = SmoothedLP(4, eps=0.5, choice=choice)

    def gradient(step):
        return value_and_gradient(method, theta.like(theta.vector() + step * v), c, 0.5, 0.2)

    value, found = gradient(1e-20j)
    assert value.imag / 1e-20 == pytest.approx(gradient(0)[1] @ v, rel=1e-10)
    expected = (gradient(1e-5)[1] - gradient(-1e-5)[1]) / 2e-5
    np.testing.assert_allclose(found.imag / 1e-20, expected, atol=1e-6 * np.abs(expected).max())
    assert np.isfinite(found).all()


def compare(theta, first, second):
    """Marginals, messages, dual and gradients of two families."""
    c = np.random.default_rng(7).normal(size=len(theta.vector()))
    engines = [method.engine(theta) for method in (first, second)]
    states = [engine.init() for engine in engines]
    for engine, state, method in zip(engines, states, (first, second), strict=True):
        engine.sweeps(state, 0, method.n_iter)
    a, b = (engine.marginals(state).vector() for engine, state in zip(engines, states, strict=True))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    a, b = (engine.messages(state) for engine, state in zip(engines, states, strict=True))
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())
    a, b = (engine.dual(state) for engine, state in zip(engines, states, strict=True))
    assert a == pytest.approx(b, rel=1e-12)
    (value_a, d_a), (value_b, d_b) = (value_and_gradient(method, theta, c, 0.3, 0.1) for method in (first, second))
    assert value_a == pytest.approx(value_b, rel=1e-12)
    np.testing.assert_allclose(d_a, d_b, rtol=0, atol=1e-12 * np.abs(d_b).max())


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (5, 2), (3, 3), (6, 7), (7, 6), (60, 71)])
def test_lattice_equals_general(shape):
    theta = random_potentials(bf.Graph.grid(*shape), np.random.default_rng(8))
    lattice = SmoothedLP(7)
    assert isinstance(lattice.engine(theta), SmoothedLattice)
    compare(theta, lattice, lattice.replace(family="general"))
    compare(theta, lattice, lattice.replace(family="pairwise"))


@pytest.mark.parametrize("choice", ["cyclic", "random"])
@pytest.mark.parametrize("seed", range(8))
def test_pairwise_equals_general(seed, choice):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n_max=12, labels_max=3, factors_max=20, pairwise=True)
    theta = random_potentials(graph, rng)
    method = SmoothedLP(6, choice=choice)
    if graph.n_factors:
        assert isinstance(method.engine(theta), PairwiseEngine)
        compare(theta, method, method.replace(family="general"))


def test_lattice_touches_no_scopes():
    graph = bf.Graph.grid(6, 5)
    theta = bf.Potentials(graph, np.zeros((30, 2)), np.zeros((graph.n_factors, 2, 2)))
    value_and_gradient(SmoothedLP(2), theta, np.ones(len(theta.vector())), 1.0, 1.0)
    assert not {"layout", "_scope", "factors", "_scope_ptr"} & set(vars(graph))


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("name", GRAPHS)
def test_warm_start(name, method):
    """Kept messages go on where they were, also under another theta."""
    rng = np.random.default_rng(9)
    theta = random_potentials(GRAPHS[name], rng)
    engine = method.engine(theta)
    whole = engine.init()
    engine.sweeps(whole, 0, 6)
    part = engine.init()
    engine.sweeps(part, 0, 2)
    messages = engine.messages(part)
    again = method.engine(theta)
    state = again.state_of(messages)
    assert again.dual(state) == pytest.approx(engine.dual(part), rel=1e-13)
    again.sweeps(state, 2, 6)
    np.testing.assert_allclose(again.messages(state), engine.messages(whole), atol=1e-12)
    near = method.engine(theta.like(theta.vector() + 0.01 * rng.normal(size=len(theta.vector()))))
    warm, cold = near.state_of(engine.messages(whole)), near.init()
    near.sweep(warm, 0)
    near.sweep(cold, 0)
    assert near.dual(warm) < near.dual(cold) or name == "doubled"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", GRAPHS)
def test_huge_potentials(name, dtype):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(10), scale=1e4).astype(dtype)
    for method in METHODS:
        engine = method.engine(theta)
        state = engine.init()
        values = [engine.dual(state)]
        for t in range(10):
            engine.sweep(state, t)
            values.append(engine.dual(state))
        assert max(np.diff(values)) <= (1e-12 if dtype == "float64" else 1e-5) * abs(values[-1])
        run = method.infer(theta)
        assert np.isfinite(run.marginals.vector()).all() and np.isfinite(run.log_partition)
        np.testing.assert_allclose([m.sum() for m in run.marginals.unary], 1, rtol=1e-6)
        np.testing.assert_allclose([m.sum() for m in run.marginals.factors], 1, rtol=1e-6)
        value, d_theta = value_and_gradient(method.replace(n_iter=5), theta, np.ones_like(theta.vector()), 1.0, 1.0)
        assert np.isfinite(value) and np.isfinite(d_theta).all()


@pytest.mark.parametrize("scale", [30.0, 100.0, 1000.0])
def test_families_agree_where_exponentials_underflow(scale):
    theta = random_potentials(bf.Graph.grid(4, 5), np.random.default_rng(11), scale=scale)
    general = SmoothedLP(5, family="general")
    a = general.infer(theta)
    for family in ("lattice", "pairwise"):
        b = general.replace(family=family).infer(theta)
        np.testing.assert_allclose(b.marginals.vector(), a.marginals.vector(), rtol=0, atol=1e-10)
        assert b.log_partition == pytest.approx(a.log_partition, rel=1e-13)
    c = np.random.default_rng(12).normal(size=len(theta.vector()))
    found = [value_and_gradient(general.replace(family=f), theta, c, 1.0)[1] for f in ("general", "pairwise", "lattice")]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-9 * np.abs(found[0]).max())


@pytest.mark.parametrize("choice", ["cyclic", "random", "greedy"])
def test_forbidden_entries(choice):
    """-inf is the limit of very negative numbers; labels that die do so in all regions."""
    rng = np.random.default_rng(13)
    graph = bf.Graph([3, 3, 3], [(0, 1), (1, 2), (0, 1, 2)])
    theta = random_potentials(graph, rng)
    theta.factors_flat[[1, 12, 20]] = -np.inf
    theta.factors_flat[6:9] = -np.inf  # label 2 of variable 0
    theta.unary_flat[8] = -np.inf
    method = SmoothedLP(400, eps=0.5, choice=choice)
    run = method.infer(theta)
    assert run.marginals.unary_flat[8] == 0 == run.marginals.unary_flat[2]
    assert run.factors[0][0, 1] == 0 and run.factors[1][:, 2].sum() == 0 and run.factors[2][2].sum() == 0
    low = theta.like(np.maximum(theta.vector(), -1e3))
    limit = method.infer(low)
    assert run.log_partition == pytest.approx(limit.log_partition, abs=1e-6)
    np.testing.assert_allclose(run.marginals.vector(), limit.marginals.vector(), atol=1e-5)
    c = rng.normal(size=len(theta.vector()))
    for n_iter in (0, 1, 5):
        value, d_theta = value_and_gradient(method.replace(n_iter=n_iter), theta, c, 1.0, 0.5)
        assert np.isfinite(value) and np.isfinite(d_theta).all()
        assert (d_theta[theta.vector() == -np.inf] == 0).all()
    engine = method.engine(theta)
    state = engine.init()
    values = [engine.dual(state)]
    for t in range(10):
        engine.sweep(state, t)
        values.append(engine.dual(state))
    assert max(np.diff(values)) <= 1e-12 * abs(values[-1])
    b = biases(graph, engine.messages(state), 0.5)
    assert not np.isnan(b.vector()).any() and b.unary_flat[8] == -np.inf


def test_no_configuration():
    graph = bf.Graph.chain(3)
    equal, other = [[0, -np.inf], [-np.inf, 0]], [[-np.inf, 0], [0, -np.inf]]
    theta = bf.Potentials(graph, [[0, -np.inf], [0, 0], [0, -np.inf]], [equal, other])
    for choice in ("cyclic", "random", "greedy"):
        with pytest.raises(bf.InputError, match="variable 1 has no allowed label"):
            SmoothedLP(choice=choice).infer(theta)
    theta = bf.Potentials(graph, [[0, 0], [0, 0], [0, -np.inf]], [equal, other])
    np.testing.assert_array_equal(SmoothedLP().infer(theta).unary, [[0, 1], [0, 1], [1, 0]])


@pytest.mark.parametrize("name", GRAPHS)
def test_float32(name):
    rng = np.random.default_rng(14)
    theta = random_potentials(GRAPHS[name], rng, scale=0.5)
    c = rng.normal(size=len(theta.vector()))
    for method in METHODS[:-1]:
        method = method.replace(eps=0.5, n_iter=10)
        double, single = method.infer(theta), method.infer(theta.astype("float32"))
        assert single.marginals.dtype == np.float32 == single.marginals.factors_flat.dtype
        np.testing.assert_allclose(single.marginals.vector(), double.marginals.vector(), atol=1e-5)
        assert single.log_partition == pytest.approx(double.log_partition, rel=1e-5)
        _, a = value_and_gradient(method, theta, c, 1.0, 0.5)
        _, b = value_and_gradient(method, theta.astype("float32"), c.astype("float32"), 1.0, 0.5)
        assert b.dtype == method.engine(theta.astype("float32")).theta.dtype
        np.testing.assert_allclose(b, a, atol=1e-4)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_tolerance(method):
    theta = random_potentials(GRAPHS["grid"], np.random.default_rng(15), scale=0.5)
    run = method.replace(n_iter=5000, eps=0.5, tol=1e-8).infer(theta)
    assert run.converged and run.n_iter < 5000 and run.residual < 1e-8
    with pytest.warns(bf.ConvergenceWarning):
        assert not method.replace(n_iter=2, tol=1e-12).infer(theta).converged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert method.replace(n_iter=2).infer(theta).n_iter == 2


def test_without_factors():
    theta = random_potentials(bf.Graph([2, 3, 1, 5]), np.random.default_rng(20), scale=3.0)
    log_z, exact = enumerate_model(theta)
    for choice in ("cyclic", "random", "greedy"):
        run = SmoothedLP(eps=1.0, choice=choice).infer(theta)
        np.testing.assert_allclose(run.marginals.vector(), exact.vector(), rtol=1e-12)
        assert run.log_partition == pytest.approx(log_z, rel=1e-12)


def test_observed():
    theta = random_potentials(GRAPHS["grid"], np.random.default_rng(21))
    observed = np.full(12, -1)
    observed[[0, 5]] = 1
    for spec in ("smoothed_lp", "smoothed_lp(schedule='lattice', family='lattice')"):
        run = bf.infer(theta, spec, observed=observed)
        np.testing.assert_array_equal(run.unary[[0, 5]], [[0, 1], [0, 1]])


def test_random_orders_follow_the_seed():
    theta = random_potentials(GRAPHS["mixed"], np.random.default_rng(22))
    a, b, c = (SmoothedLP(2, choice="random", seed=seed).infer(theta).marginals.vector() for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-6


def test_bad_settings():
    theta = random_potentials(GRAPHS["cycle"], np.random.default_rng(0))
    for bad in (
        {"eps": 0.0},
        {"eps": np.inf},
        {"eps": "small"},
        {"choice": "best"},
        {"seed": -1},
        {"schedule": "flooding"},
        {"family": "log"},
        {"n_iter": -1},
        {"tol": 0.0},
    ):
        with pytest.raises(bf.InputError):
            SmoothedLP(**bad)
    for bad in ({"schedule": "lattice"}, {"family": "lattice"}, {"family": "pairwise", "choice": "greedy"}):
        with pytest.raises(bf.InputError):
            SmoothedLP(**bad).infer(theta)
    with pytest.raises(bf.InputError, match="two variables"):
        SmoothedLP(family="pairwise").infer(random_potentials(GRAPHS["mixed"], np.random.default_rng(0)))
    with pytest.raises(bf.InputError, match="are 20 numbers"):
        biases(GRAPHS["cycle"], np.zeros(3), 0.1)
    for method in METHODS:
        with pytest.raises(bf.InputError, match=r"are 68 numbers .* received shape \(4,\)"):
            method.engine(random_potentials(GRAPHS["grid"], np.random.default_rng(0))).state_of(np.zeros(4))
    for graph, engine in ((GRAPHS["grid"], GeneralEngine), (GRAPHS["mixed"], GeneralEngine)):
        method = SmoothedLP(choice="greedy")
        assert isinstance(method.engine(random_potentials(graph, np.random.default_rng(0))), engine)
