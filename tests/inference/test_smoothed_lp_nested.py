"""Nested regions of the smoothed LP: against plain numpy, Newton's method on the polytope, L-BFGS, and differences."""

import itertools

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.optimize import minimize
from scipy.special import logsumexp

import backfield as bf
from backfield.graph.graph import union
from backfield.inference import SmoothedLP
from backfield.inference.smoothed_lp.method import REGIONS
from backfield.inference.smoothed_lp.nested import NestedEngine
from backfield.inference.smoothed_lp.regions import nesting
from backfield.registry import get
from backfield.testing import inference as contracts
from backfield.testing.contract import keep
from backfield.testing.models import best_score
from tests.models import enumerate_model, random_potentials

NESTED = SmoothedLP(regions="nested")
GRAPHS = {
    "pair": bf.Graph([2, 3, 2], [(0, 1), (2, 1, 0)]),
    "triangle": bf.Graph([2, 2, 2], [(0, 1), (1, 2), (0, 2), (0, 1, 2)]),
    "doubled": bf.Graph([2, 3, 2, 2], [(1, 0), (0, 1), (2, 0, 1), (1, 2, 0), (3, 0)]),
    "four deep": bf.Graph([2, 3, 1, 2, 2], [(3, 0), (0, 1), (3, 1, 0), (1, 3, 2, 0), (1, 0), (2, 1), (0, 3, 2)]),
}
#: No factor contains another one.
FLAT = {
    "none": bf.Graph([2, 3]),
    "grid": bf.Graph.grid(3, 4),
    "cycle of 3 labels": bf.Graph.from_edges([(0, 1), (1, 2), (2, 0), (1, 0)], labels=3),
    "mixed": bf.Graph([2, 3, 1, 2], [(0, 1), (1, 2, 3), (3, 1, 2), (0, 3)]),
}


def random_nested_graph(rng):
    """Variables with 1 to 3 labels, and a quadruple and a triple with some of the factors in them, in any order."""
    labels = rng.integers(1, 4, size=6)
    scopes = [tuple(rng.permutation(4)), tuple(rng.choice(6, 3, replace=False))]
    for scope in [*scopes, scopes[0], scopes[0]]:
        for size in range(2, len(scope)):
            scopes += [tuple(rng.permutation(scope)[:size]) for _ in range(rng.integers(1, 3))]
    return bf.Graph(labels.tolist(), [scopes[c] for c in rng.permutation(len(scopes))])


class Reference:
    """Eq. (7)-(10) with plain numpy, a region being a tuple of variables; lam[a, b] is the message of a to b in it."""

    def __init__(self, theta, eps):
        graph = theta.graph
        self.eps, self.n = eps, graph.n_variables
        self.scopes = [(i,) for i in range(self.n)] + [tuple(int(i) for i in scope) for scope in graph.factors]
        self.theta = [np.array(x, dtype=float) for x in (*theta.unary, *theta.factors)]
        pairs = itertools.product(range(len(self.scopes)), repeat=2)
        inside = [(a, b) for a, b in pairs if set(self.scopes[b]) < set(self.scopes[a])]
        # Messages to variables first, slot by slot, then those to factors.
        inside.sort(key=lambda ab: (len(self.scopes[ab[1]]) > 1, ab[0], self.place(*ab), ab[1]))
        self.lam = {(a, b): np.zeros(self.theta[b].shape) for a, b in inside}
        contained = sorted({b for _, b in inside})
        self.stars = sorted(contained, key=lambda b: (len(self.scopes[b]), b))

    def place(self, a, b):
        return self.scopes[a].index(self.scopes[b][0]) if len(self.scopes[b]) == 1 else 0

    def load(self, flat):
        for key, old in self.lam.items():
            self.lam[key], flat = flat[: old.size].reshape(old.shape), flat[old.size :]
        return self

    def flat(self):
        return np.concatenate([x.ravel() for x in self.lam.values()])

    def lift(self, a, b, table):
        """A table over the variables of b, spread over the axes of a."""
        axes = [self.scopes[a].index(i) for i in self.scopes[b]]
        full = table.transpose(np.argsort(axes))
        return full.reshape([size if axis in axes else 1 for axis, size in enumerate(self.theta[a].shape)])

    def seen(self, a, b, mu):
        """Marginals of a over the variables of b, in the order of b."""
        return np.einsum(mu, list(self.scopes[a]), list(self.scopes[b]))

    def scores(self):
        out = [x.copy() for x in self.theta]
        for (a, b), lam in self.lam.items():
            out[a] += self.lift(a, b, lam)
            out[b] -= lam
        return [x / self.eps for x in out]

    def dual(self):
        return self.eps * sum(logsumexp(x) for x in self.scores())

    def marginals(self):
        return [np.exp(x - logsumexp(x)) for x in self.scores()]

    def gradient(self):
        mu = self.marginals()
        return np.concatenate([(self.seen(a, b, mu[a]) - mu[b]).ravel() for a, b in self.lam])

    def star(self, b):
        mu = self.marginals()
        around = [a for a, c in self.lam if c == b]
        logs = [np.log(self.seen(a, b, mu[a])) for a in around]
        mean = (np.log(mu[b]) + sum(logs)) / (1 + len(around))
        for a, log in zip(around, logs, strict=True):
            self.lam[a, b] = self.lam[a, b] + self.eps * (mean - log)

    def sweep(self, method, t):
        order = self.stars[:: 1 - 2 * (t % 2)]
        if method.choice == "random":
            order = np.random.default_rng([method.seed, t]).permutation(self.stars)
        for b in order:
            self.star(b)

    def maximum(self):
        """A(theta) and its mu by Newton's method in the affine hull of the polytope, from the uniform marginals."""
        at = np.cumsum([0] + [x.size for x in self.theta])
        entries = [np.arange(x.size).reshape(x.shape) + start for x, start in zip(self.theta, at, strict=False)]
        rows = []
        for entry in entries:
            rows.append(np.isin(np.arange(at[-1]), entry).astype(float))
        for a, b in self.lam:
            for y in np.ndindex(self.theta[b].shape):
                at_y = np.zeros(self.theta[b].shape)
                at_y[y] = 1
                row = np.zeros(at[-1])
                row[entries[a]] = np.broadcast_to(self.lift(a, b, at_y), self.theta[a].shape)
                row[entries[b][y]] = -1
                rows.append(row)
        free = null_space(np.array(rows))
        theta = np.concatenate([x.ravel() for x in self.theta])
        mu = np.concatenate([np.full(x.size, 1 / x.size) for x in self.theta])
        value = theta @ mu - self.eps * mu @ np.log(mu)
        for _ in range(200):
            gradient = free.T @ (theta - self.eps * (np.log(mu) + 1))
            step = free @ np.linalg.solve(free.T @ (self.eps / mu[:, None] * free), gradient)
            size = 1.0
            while size > 1e-12:
                new = mu + size * step
                if new.min() > 0:
                    next_value = theta @ new - self.eps * new @ np.log(new)
                    if next_value >= value:
                        break
                size /= 2
            mu, gain, value = new, next_value - value, next_value
            if gain < 1e-14:
                break
        return value, mu

    def vector(self, mu):
        return np.concatenate([x.ravel() for x in mu])


def tables(potentials):
    return [*potentials.unary, *potentials.factors]


def centred(plain):
    return np.concatenate([(x - x.mean()).ravel() for x in plain.lam.values()])


def converge(method, theta, sweeps=20000):
    """Return the engine and the state after so many sweeps."""
    engine = method.engine(theta)
    state = engine.init()
    engine.sweeps(state, 0, sweeps)
    return engine, state


def check_gradient(theta, labels, h=1e-5, **setting):
    vector = theta.vector()
    finite = np.flatnonzero(np.isfinite(vector))
    _, found = bf.value_and_gradient(theta, labels, gradient="truncated", **setting)
    found = found.vector()

    def at(entry, step):
        moved = vector.copy()
        moved[entry] += step
        return bf.value_and_gradient(theta.like(moved), labels, gradient="truncated", **setting)[0]

    expected = np.zeros(len(vector))
    expected[finite] = [(at(e, h) - at(e, -h)) / (2 * h) for e in finite]
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_regions_of_a_graph():
    graph = GRAPHS["four deep"]
    found = nesting(graph)
    plain = Reference(random_potentials(graph, np.random.default_rng(0)), 1.0)
    links = found.links
    assert list(zip(links.upper, links.lower, strict=True)) == list(plain.lam)
    assert found.stars[0].tolist() == plain.stars == found.stars[1][::-1].tolist()
    for k, (a, b) in enumerate(plain.lam):
        entry = np.arange(plain.theta[b].size, dtype=float).reshape(plain.theta[b].shape)
        lifted = np.broadcast_to(plain.lift(a, b, entry), plain.theta[a].shape).ravel()
        start = links.map_start[k]
        np.testing.assert_array_equal(links.maps[start : start + lifted.size], lifted)
    assert not any(nesting(graph) for graph in FLAT.values())


@pytest.mark.parametrize("seed", range(20))
def test_contained_factors_are_found(seed):
    graph = random_nested_graph(np.random.default_rng(seed))
    links = nesting(graph).links
    assert list(zip(links.upper, links.lower, strict=True)) == list(
        Reference(random_potentials(graph, np.random.default_rng(0)), 1.0).lam
    )


@pytest.mark.parametrize("choice", ["cyclic", "random"])
@pytest.mark.parametrize("name", GRAPHS)
def test_equals_plain_update(name, choice):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(0))
    for n_iter in range(4):
        method = NESTED.replace(n_iter=n_iter, eps=0.4, choice=choice, seed=5)
        plain = Reference(theta, 0.4)
        for t in range(n_iter):
            plain.sweep(method, t)
        run = method.infer(theta)
        np.testing.assert_allclose(run.marginals.vector(), plain.vector(plain.marginals()), rtol=1e-10)
        assert run.log_partition == pytest.approx(plain.dual(), rel=1e-13)
        engine = method.engine(theta)
        state = engine.init()
        engine.sweeps(state, 0, n_iter)
        np.testing.assert_allclose(engine.messages(state), centred(plain), atol=1e-12)
        np.testing.assert_allclose(engine.state_of(engine.messages(state)), state, atol=1e-14)


@pytest.mark.parametrize("seed", range(60))
def test_dual_never_rises(seed):
    rng = np.random.default_rng(seed)
    graph = random_nested_graph(rng)
    theta = random_potentials(graph, rng, scale=float(rng.choice([1.0, 5.0])))
    if seed % 3 == 0:  # at labels that are not this labeling's
        y = np.array([rng.integers(count) for count in graph.labels])
        likely = theta.indicators(y).vector() == 1
        theta = theta.like(np.where((rng.random(len(likely)) < 0.15) & ~likely, -np.inf, theta.vector()))
    eps = float(rng.choice([0.05, 0.3, 1.0, 2.0]))
    method = NESTED.replace(eps=eps, choice=["cyclic", "random"][seed % 2], seed=seed)
    engine = method.engine(theta)
    assert isinstance(engine, NestedEngine)
    state = engine.init()
    values = [engine.dual(state)]
    for t in range(20):
        engine.sweep(state, t)
        values.append(engine.dual(state))
    assert max(np.diff(values)) <= 1e-12 * np.abs(values).max()
    assert values[-1] < values[0] - 1e-3
    assert values[-1] >= best_score(theta) - 1e-10
    bound = method.infer(theta).bound
    assert bound == ("upper" if eps >= 1 else "none")
    if bound == "upper":
        assert values[-1] >= enumerate_model(theta)[0] - 1e-10


@pytest.mark.parametrize("eps", [1.0, 0.1])
@pytest.mark.parametrize("name", GRAPHS)
def test_converges_to_the_maximum_over_the_nested_polytope(name, eps):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(1), scale=0.5)
    engine, state = converge(NESTED.replace(eps=eps), theta)
    found, mu = engine.dual(state), engine.marginals(state)
    plain = Reference(theta, eps)
    value, best = plain.maximum()
    assert found == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(mu.vector(), best, atol=1e-5)
    for a, b in plain.lam:
        np.testing.assert_allclose(plain.seen(a, b, tables(mu)[a]), tables(mu)[b], atol=1e-6)
    dual = minimize(
        lambda x: (plain.load(x).dual(), plain.gradient()),
        plain.flat(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-10},
    )
    assert found == pytest.approx(dual.fun, abs=1e-6)
    flat_engine, flat_state = converge(NESTED.replace(eps=eps, regions="variables"), theta, 3000)
    assert found < flat_engine.dual(flat_state) - 1e-6


def test_frustrated_triangle():
    """Three pairs that want to differ: one cannot. Marginals of variables alone do not see it, a triple with pairs does."""
    graph, differ = GRAPHS["triangle"], [[-1.0, 0.0], [0.0, -1.0]]
    theta = bf.Potentials(graph, np.zeros((3, 2)), [differ, differ, differ, np.zeros((2, 2, 2))])
    eps, entropy = 1e-3, 12 * np.log(2)
    values = {}
    for regions in REGIONS:
        engine, state = converge(SmoothedLP(eps=eps, regions=regions), theta)
        values[regions] = engine.dual(state)
    assert best_score(theta) == -1
    assert values["variables"] == pytest.approx(0, abs=eps * entropy)
    assert -1 <= values["nested"] <= -1 + eps * entropy


@pytest.mark.parametrize("seed", range(5))
def test_a_triple_with_its_pairs_is_exact(seed):
    theta = random_potentials(GRAPHS["triangle"], np.random.default_rng(seed))
    engine, state = converge(NESTED.replace(eps=0.005), theta)
    assert 0 <= engine.dual(state) - best_score(theta) <= 0.005 * 12 * np.log(2)


@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_logistic"])
@pytest.mark.parametrize("n_iter", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_truncated_gradient(name, n_iter, loss):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(2))
    labels = np.minimum(np.arange(theta.graph.n_variables) % 2, theta.graph.labels - 1)
    for choice in ("cyclic", "random"):
        method = NESTED.replace(n_iter=n_iter, eps=0.5, choice=choice, seed=1)
        check_gradient(theta, labels, loss=loss, inference=repr(method))


def test_truncated_gradient_with_forbidden_entries_and_of_the_dual():
    theta = random_potentials(GRAPHS["four deep"], np.random.default_rng(3))
    theta.unary_flat[4] = theta.factors_flat[3] = theta.factors_flat[14] = -np.inf
    for loss in ("clique_logistic", "surrogate_likelihood"):
        check_gradient(theta, np.array([1, 1, 0, 0, 1]), loss=loss, inference=NESTED.replace(n_iter=3, eps=0.5))


@pytest.mark.parametrize("loss", ["univariate_logistic", "clique_logistic", "surrogate_likelihood"])
def test_hessian_vector(loss):
    rng = np.random.default_rng(4)
    theta = random_potentials(GRAPHS["four deep"], rng)
    theta.factors_flat[14] = -np.inf
    direction = random_potentials(theta.graph, rng)
    labels = np.array([1, 1, 0, 0, 1])
    method = NESTED.replace(n_iter=3, eps=0.5)

    def gradient(step):
        moved = theta.like(theta.vector() + step * direction.vector())
        return bf.value_and_gradient(moved, labels, loss=loss, inference=method, gradient="truncated")[1].vector()

    found = bf.hessian_vector(theta, labels, direction, loss=loss, inference=method).vector()
    expected = (gradient(1e-5) - gradient(-1e-5)) / 2e-5
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_gradient_of_the_dual_at_fixed_messages():
    theta = random_potentials(GRAPHS["four deep"], np.random.default_rng(5))
    engine, state = converge(NESTED.replace(eps=0.3), theta, 1)
    d_state, d_theta, mu = np.zeros_like(state), engine.adjoint(), engine.marginals(state)
    engine.value_vjp(state, mu, d_state, d_theta)
    plain = Reference(theta, 0.3).load(engine.messages(state))
    np.testing.assert_allclose(d_state, 0.3 * plain.gradient(), atol=1e-12)
    np.testing.assert_array_equal(d_theta.potentials(theta.graph).vector(), mu.vector())


@pytest.mark.parametrize("choice", ["cyclic", "random", "greedy"])
@pytest.mark.parametrize("name", FLAT)
def test_without_nesting_nothing_changes(name, choice):
    theta = random_potentials(FLAT[name], np.random.default_rng(6))
    engines, runs = [], []
    for regions in REGIONS:
        method = SmoothedLP(4, choice=choice, regions=regions)
        engines.append(method.engine(theta))
        runs.append(method.infer(theta))
    assert type(engines[0]) is type(engines[1])
    assert runs[0].marginals.vector().tobytes() == runs[1].marginals.vector().tobytes()
    assert runs[0].log_partition == runs[1].log_partition


def test_lattice_touches_no_scopes():
    graph = bf.Graph.grid(6, 5)
    NESTED.infer(bf.Potentials(graph, np.zeros((30, 2)), np.zeros((graph.n_factors, 2, 2))))
    assert not {"layout", "_scope", "factors", "_scope_ptr"} & set(vars(graph))


@pytest.mark.parametrize("name", ["triangle", "four deep"])
def test_observed(name):
    """Given labels are -inf elsewhere: at convergence the numbers of an engine that sees them so, and of large numbers."""
    theta = random_potentials(GRAPHS[name], np.random.default_rng(7))
    for observed in ([1, -1, -1, -1, -1], [-1, 1, -1, -1, 0], [0, -1, -1, 1, -1]):
        known = np.array(observed[: theta.graph.n_variables])
        allowed = [(np.arange(count) == label) | (label < 0) for label, count in zip(known, theta.graph.labels, strict=True)]
        rows = [np.where(keep, row, -np.inf) for keep, row in zip(allowed, theta.unary, strict=True)]
        forbidden = bf.Potentials(theta.graph, rows, tables(theta)[theta.graph.n_variables :])
        method = NESTED.replace(n_iter=3000, eps=0.5)
        run = bf.infer(theta, repr(method), observed=known)
        other = bf.infer(forbidden, repr(method))
        assert run.log_partition == other.log_partition
        np.testing.assert_array_equal(run.marginals.vector(), other.marginals.vector())
        engine, state = converge(method, forbidden, 3000)  # without setting variables apart
        assert run.log_partition == pytest.approx(engine.dual(state), abs=1e-8)
        np.testing.assert_allclose(run.marginals.vector(), engine.marginals(state).vector(), atol=1e-7)
        engine, state = converge(method, theta.like(np.maximum(forbidden.vector(), -1e3)), 3000)
        assert run.log_partition == pytest.approx(engine.dual(state), abs=1e-6)
        labels = np.where(known < 0, np.minimum(1, theta.graph.labels - 1), known)
        check_gradient(theta, labels, loss="clique_logistic", inference=method.replace(n_iter=2), observed=known)


def test_forbidden_entries():
    """-inf is the limit of very negative numbers; what dies in one region does so in all that agree with it."""
    theta = random_potentials(GRAPHS["doubled"], np.random.default_rng(8))
    theta.factors[0][1, 0] = -np.inf  # (x_1, x_0)
    theta.factors[2][1, 1, :] = -np.inf  # (x_2, x_0, x_1)
    method = NESTED.replace(n_iter=2000, eps=0.5)
    run, limit = method.infer(theta), method.infer(theta.like(np.maximum(theta.vector(), -1e3)))
    assert run.factors[1][0, 1] == 0 == run.factors[2][:, 0, 1].sum() == run.factors[3][1, :, 0].sum()
    # The triples have one scope and contain nothing of x_2 and x_0 together: what one forbids them the other may have.
    assert run.factors[2][1, 1].sum() == 0 < run.factors[3][:, 1, 1].sum()
    assert run.log_partition == pytest.approx(limit.log_partition, abs=1e-6)
    np.testing.assert_allclose(run.marginals.vector(), limit.marginals.vector(), atol=1e-5)


def test_no_configuration():
    theta = bf.Potentials(
        GRAPHS["pair"], [np.zeros(2), np.zeros(3), np.zeros(2)], [np.full((2, 3), -np.inf), np.zeros((2, 3, 2))]
    )
    engine = NESTED.engine(theta)
    with pytest.raises(bf.InputError, match="variable 0"):
        engine.sweep(engine.init(), 0)
    with pytest.raises(bf.InputError, match="factor 0"):
        engine.sweep(engine.init(), 1)  # backward: the star of the pair comes first
    with pytest.raises(bf.InputError, match="factor 0"):
        engine.dual(engine.init())


def test_biases():
    """[L13] Theorem 4: the dual is the sum of logistic losses with these biases, in every region."""
    rng = np.random.default_rng(9)
    graph, eps = GRAPHS["four deep"], 0.2
    energy, delta = random_potentials(graph, rng), random_potentials(graph, rng)
    method = NESTED.replace(eps=eps)
    engine, state = converge(method, energy.like(energy.vector() + delta.vector()), 2)
    messages = engine.messages(state)
    assert method.n_messages(graph) == len(messages) > SmoothedLP().n_messages(graph)
    b = method.biases(graph, messages, delta)
    y = np.array([rng.integers(count) for count in graph.labels])
    assert eps * b.score(y) == pytest.approx(delta.score(y), rel=1e-9)
    scores = tables(energy.like(energy.vector() / eps + b.vector()))
    assert engine.dual(state) == pytest.approx(eps * sum(logsumexp(x) for x in scores), rel=1e-12)
    softmax = np.concatenate([np.exp(x - logsumexp(x)).ravel() for x in scores])
    np.testing.assert_allclose(engine.marginals(state).vector(), softmax, rtol=1e-9)


def test_oracle_descent():
    """The value never rises, is that of nested regions, and is below that of variables alone."""
    rng = np.random.default_rng(10)
    graph = bf.Graph([2, 2, 2, 2], [(0, 1), (1, 2), (0, 2), (0, 2, 1), (2, 3)])
    types = {"factor_types": [0, 0, 0, 1, 0]}
    X, Y = [], []
    for _ in range(10):
        y = rng.integers(0, 2, size=4)
        X.append(bf.Sample(graph, (y + 0.8 * rng.normal(size=4))[:, None], rng.random((5, 1)), **types))
        Y.append(y)
    last = {}
    for regions in REGIONS:
        learner = f"oracle_descent(n_rounds=4, sweeps=200, eps=0.5, tol=0.0, regions='{regions}')"
        crf = bf.GraphCRF(unary="linear", pairwise="linear", learner=learner, dtype="float64").fit(X, Y)
        values = [row["objective"] for row in crf.trace_]
        assert all(b <= a + 1e-12 * abs(a) for a, b in itertools.pairwise(values))
        last[regions] = values[-1]
    assert last["nested"] < last["variables"] - 1e-3
    with pytest.raises(bf.InputError, match="regions must be one of variables, nested"):
        get("learners", "oracle_descent(regions='all')")


@pytest.mark.parametrize("contract", contracts.CONTRACTS, ids=lambda contract: contract.__name__)
def test_contract(contract):
    keep(contract, NESTED)


def test_parts_of_a_union_are_alone():
    rng = np.random.default_rng(12)
    parts = [random_potentials(graph, rng) for graph in (GRAPHS["four deep"], FLAT["mixed"], GRAPHS["triangle"])]
    graph = union([theta.graph for theta in parts])
    whole = bf.Potentials(graph, [x for theta in parts for x in theta.unary], [x for theta in parts for x in theta.factors])
    method = NESTED.replace(n_iter=3)
    assert method.separable
    runs = [method.infer(theta) for theta in parts]
    run = method.infer(whole)
    assert run.log_partition == pytest.approx(sum(each.log_partition for each in runs), rel=1e-13)
    alone = np.concatenate([each.marginals.unary_flat for each in runs])
    np.testing.assert_allclose(run.marginals.unary_flat, alone, rtol=1e-12)


def test_float32():
    theta = random_potentials(GRAPHS["four deep"], np.random.default_rng(11))
    single, double = (NESTED.infer(theta.astype(dtype)) for dtype in ("float32", "float64"))
    assert single.marginals.dtype == np.float32
    np.testing.assert_allclose(single.marginals.vector(), double.marginals.vector(), atol=1e-5)


def test_spec():
    method = SmoothedLP(n_iter=7, eps=0.3, regions="nested")
    assert repr(method) == "smoothed_lp(n_iter=7, eps=0.3, regions='nested')"
    assert get("inference", repr(method)) == method
    assert repr(SmoothedLP()) == "smoothed_lp" and SmoothedLP().regions == "variables"


def test_refusals():
    with pytest.raises(bf.InputError, match="regions must be one of variables, nested; received 'all'"):
        SmoothedLP(regions="all")
    theta = random_potentials(GRAPHS["pair"], np.random.default_rng(0))
    for family in ("lattice", "pairwise"):
        with pytest.raises(bf.InputError, match=rf"family='{family}' .* factors of this graph contain others"):
            NESTED.replace(family=family).infer(theta)
    with pytest.raises(bf.InputError, match=r"choice='greedy' .* factors of this graph contain others"):
        NESTED.replace(choice="greedy").infer(theta)
    with pytest.raises(bf.InputError, match="schedule='lattice' needs"):
        NESTED.replace(schedule="lattice").infer(theta)
    assert isinstance(NESTED.replace(family="general").engine(theta), NestedEngine)
    with pytest.raises(bf.InputError, match=r"are 18 numbers .* received shape \(4,\)"):
        NESTED.engine(theta).state_of(np.zeros(4))
    with pytest.raises(bf.InputError, match=r"are 18 numbers .* received shape \(12,\)"):
        NESTED.biases(theta.graph, np.zeros(SmoothedLP().n_messages(theta.graph)))


def test_the_smoothed_hinge():
    """[L13] eq. (6) over the nested polytope is no larger than over the plain one, and falls as its gradient says."""
    rng = np.random.default_rng(12)
    theta, labels = random_potentials(GRAPHS["triangle"], rng), [0, 1, 1]
    plain, _ = bf.value_and_gradient(theta, labels, loss="smoothed_max_margin(eps=0.1)")
    loss = "smoothed_max_margin(eps=0.1, regions='nested')"
    value, d_theta = bf.value_and_gradient(theta, labels, loss=loss)
    assert 0 <= value < plain - 1e-3
    direction = rng.normal(size=theta.vector().size)
    ends = [bf.value_and_gradient(theta.like(theta.vector() + h * direction), labels, loss=loss)[0] for h in (1e-5, -1e-5)]
    assert d_theta.vector() @ direction == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)
