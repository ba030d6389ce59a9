"""Loopy and tree-reweighted belief propagation: against a plain version of eq. (18), enumeration, and differences."""

import itertools
import re
import warnings

import numpy as np
import pytest

import backfield as bf
from backfield import Graph
from backfield.data.formats import read_fg
from backfield.graph.conditioning import Restriction
from backfield.graph.graph import union
from backfield.graph.labeling import as_labeling
from backfield.graph.stacking import by_factor, stack
from backfield.inference import BruteForce, LoopyBP, TreeReweighted
from backfield.inference import schedule as schedules
from backfield.inference.message_passing.copies import CopiesEngine
from backfield.inference.message_passing.lattice import MessageLattice
from backfield.inference.message_passing.log import LogEngine
from backfield.inference.message_passing.pairwise import PairwiseEngine
from tests.data.files.data import folder
from tests.models import enumerate_model, random_potentials, random_tree

MIXED = Graph([2, 3, 1, 2, 4], [(0, 1), (3, 1, 0), (4, 3), (2, 4), (1, 0), (4, 0, 2, 1)])
CYCLE = Graph.from_edges([(0, 1), (2, 1), (2, 3), (4, 3), (4, 0), (0, 1)], n_variables=6, labels=3)
#: Eight copies of a triangle with a parallel edge and a lone variable.
COPIES = union([Graph.from_edges([(0, 1), (2, 1), (2, 0), (1, 0)], n_variables=4, labels=2)] * 8)
GRAPHS = {
    "grid": Graph.grid(3, 4),
    "3 labels": Graph.grid(2, 3, labels=3),
    "cycle": CYCLE,
    "mixed": MIXED,
    "copies": COPIES,
}
FAMILIES = {
    "grid": ("lattice", "pairwise", "log"),  # general: as with 3 labels, and in test_all_families_agree_on_grids
    "3 labels": ("pairwise", "general", "log"),
    "cycle": ("pairwise", "log"),
    "mixed": ("general", "log"),
    "copies": ("copies",),
}
#: Every family with the graphs that it can run on.
RUNS = [(name, family) for name, families in FAMILIES.items() for family in families]


def refused(family, wanted, kind):
    """Whether a family has no kernels for such settings; see test_errors."""
    if family == "copies":
        return wanted != {"schedule": "flooding"} or kind != 1
    return family == "lattice" and (bool(wanted) or kind == "array")


#: Damping and a rho for each factor are compiled apart; both at once here, and on the other graphs one at a time.
BOTH = {("cycle", "pairwise"), ("mixed", "general")}


def repeats(name, family, wanted, kind):
    """Whether such settings would only compile kernels for another label count that ``BOTH`` tests."""
    return family in ("pairwise", "general") and (name, family) not in BOTH and "damping" in wanted and kind == "array"


def some_rho(graph, kind):
    return np.random.default_rng(7).uniform(0.3, 1, graph.n_factors) if kind == "array" else kind


def vector(run):
    return np.append(run.marginals.vector(), run.log_partition)


def reference(theta, rho, orders, damping=0.0, flooding=False):
    """Return all marginals after one sweep for each order: [D13] eq. (18) by a plain loop over configurations."""
    graph, layout = theta.graph, theta.graph.layout
    unary, factors = theta.unary, theta.factors
    slots = [(c, i) for c, scope in enumerate(graph.factors) for i in scope]
    log_m = [np.full(graph.labels[i], -np.log(graph.labels[i])) for _, i in slots]

    def belief(i, source):
        return unary[i] + sum((rho[c] * source[k] for k, (c, j) in enumerate(slots) if j == i), np.zeros(1))

    def joint(c, source, skip=None):
        scope = graph.factors[c]
        out = factors[c] / rho[c]
        for axis, i in enumerate(scope):
            k = layout.scope_ptr[c] + axis
            if k != skip:
                shape = [-1 if a == axis else 1 for a in range(len(scope))]
                out = out + (belief(i, source) - source[k]).reshape(shape)
        return out

    for order in orders:
        source = [m.copy() for m in log_m] if flooding else log_m
        for k in order:
            c, _ = slots[k]
            axis = int(k - layout.scope_ptr[c])
            table = np.moveaxis(joint(c, source, k), axis, 0).reshape(graph.labels[slots[k][1]], -1)
            new = damping * source[k] + (1 - damping) * np.logaddexp.reduce(table, axis=1)
            log_m[k] = new - np.logaddexp.reduce(new)
    tables = [belief(i, log_m) for i in range(graph.n_variables)]
    tables += [joint(c, log_m).ravel() for c in range(graph.n_factors)]
    return np.concatenate([np.exp(table - np.logaddexp.reduce(table)) for table in tables])


def orders_of(graph, method, n_iter):
    schedule = method._order(graph)
    return [schedule.order[::-1] if schedule.backward(t) else schedule.order for t in range(n_iter)]


SETTINGS = [
    {},
    {"damping": 0.3},
    {"schedule": "sequential"},
    {"schedule": "monotonic"},
    {"schedule": "flooding"},
    {"schedule": "flooding", "damping": 0.3},
]


def cases(settings, kinds):
    """Mark a test with every run, setting and rho for which the family has kernels."""
    found = [
        (name, family, wanted, kind)
        for (name, family), wanted, kind in itertools.product(RUNS, settings, kinds)
        if not refused(family, wanted, kind) and not repeats(name, family, wanted, kind)
    ]
    return pytest.mark.parametrize(("name", "family", "wanted", "kind"), found, ids=["-".join(map(str, f)) for f in found])


@cases(SETTINGS, [1.0, 0.5, 0.7, 1.5, "array"])
def test_equals_plain_update(name, family, wanted, kind):
    graph = GRAPHS[name]
    theta = random_potentials(graph, np.random.default_rng(0))
    for n_iter in (1, 3):
        method = TreeReweighted(n_iter=n_iter, rho=some_rho(graph, kind), family=family, **wanted)
        rho = method.counting_numbers(graph)
        orders = orders_of(graph, method, n_iter)
        expected = reference(theta, rho, orders, method.damping, method.schedule == "flooding")
        np.testing.assert_allclose(method.infer(theta).marginals.vector(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rho", [1.0, 0.5, 0.7])
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2), (3, 4), (5, 5), (2, 9), (9, 2), (7, 6)], ids=str)
def test_all_families_agree_on_grids(shape, rho):
    worst = 0.0
    for scale, n_iter in itertools.product([0.5, 3.0], [0, 1, 2, 7]):
        theta = random_potentials(Graph.grid(*shape), np.random.default_rng(3), scale)
        expected = vector(TreeReweighted(n_iter=n_iter, rho=rho, family="log").infer(theta))
        for family in ("general", "pairwise", "lattice"):
            got = vector(TreeReweighted(n_iter=n_iter, rho=rho, family=family).infer(theta))
            worst = max(worst, np.max(np.abs(got - expected) / np.maximum(1, np.abs(expected))))
    assert worst < 1e-12


@pytest.mark.parametrize("labels", [2, 3, 5, 8])
@pytest.mark.parametrize("schedule", ["auto", "sequential", "monotonic", "flooding"])
def test_all_families_agree_on_pairwise_graphs(labels, schedule):
    rng = np.random.default_rng(labels)
    graph = Graph.from_edges([rng.choice(12, 2, replace=False) for _ in range(25)], n_variables=13, labels=labels)
    theta = random_potentials(graph, rng, 2.0)
    # Messages of 8 labels go through "pairwise" four by four, of 5 labels with one left; "general" does not tell them apart,
    # nor does a rho for each factor.
    families = ("log", "general", "pairwise") if labels < 5 else ("log", "pairwise")
    for rho in (1, 0.5, 0.7, rng.uniform(0.2, 1, graph.n_factors))[: 4 if labels < 5 else 3]:
        runs = [
            vector(TreeReweighted(n_iter=5, rho=rho, schedule=schedule, family=family).infer(theta)) for family in families
        ]
        for run in runs[1:]:
            np.testing.assert_allclose(run, runs[0], rtol=1e-12, atol=1e-12)


def test_auto_takes_the_fastest_family_that_is_safe():
    rng = np.random.default_rng(0)
    grid, chain = random_potentials(Graph.grid(4, 4), rng), random_potentials(Graph.chain(5), rng)
    assert isinstance(LoopyBP().engine(grid), MessageLattice)
    assert isinstance(LoopyBP(damping=0.1).engine(grid), PairwiseEngine)
    assert isinstance(LoopyBP().engine(chain), PairwiseEngine)
    many, flooding = random_potentials(COPIES, rng), LoopyBP(schedule="flooding")
    assert isinstance(flooding.engine(many), CopiesEngine)
    assert isinstance(flooding.engine(many.like(300 * many.vector())), LogEngine)
    assert isinstance(LoopyBP().engine(many), PairwiseEngine)
    assert isinstance(flooding.engine(random_potentials(union([grid.graph] * 7), rng)), PairwiseEngine)
    assert isinstance(flooding.engine(random_potentials(union([grid.graph, chain.graph] * 8), rng)), PairwiseEngine)
    assert isinstance(LoopyBP().engine(grid.like(1000 * grid.vector())), LogEngine)
    wide = LoopyBP().engine(grid.like(20 * grid.vector()).astype(np.float32))
    assert isinstance(wide, MessageLattice) and wide.theta.dtype == np.float64
    run = LoopyBP().infer(grid.like(20 * grid.vector()).astype(np.float32))
    assert run.marginals.dtype == np.float32


def test_own_order():
    rng = np.random.default_rng(0)
    for name, graph in GRAPHS.items():
        theta = random_potentials(graph, rng)
        order = rng.permutation(graph.n_slots)
        expected = reference(theta, np.full(graph.n_factors, 0.6), [order, order[::-1], order])
        for family in ("general", "log"):
            for given_ in (order, order.tolist()):
                run = TreeReweighted(n_iter=3, rho=0.6, order=given_, family=family).infer(theta)
                np.testing.assert_allclose(run.marginals.vector(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("schedule", ["sequential", "monotonic", "flooding"])
def test_every_message_once_in_an_iteration(name, schedule):
    built = schedules.build(GRAPHS[name], schedule)
    np.testing.assert_array_equal(np.sort(built.order), np.arange(GRAPHS[name].n_slots))
    assert built.backward(1) == (schedule == "sequential") and not built.backward(2)


def test_lattice_order_is_red_then_black():
    graph = Graph.grid(3, 4)
    built = schedules.build(graph, "lattice")
    row, column = np.divmod(graph.layout.scope[built.order ^ 1], 4)
    colour = (row + column) % 2
    assert (colour[:17] == 0).all() and (colour[17:] == 1).all()
    assert not built.alternate


@pytest.mark.parametrize("method", [LoopyBP(n_iter=2), TreeReweighted(n_iter=2)], ids=repr)
def test_two_iterations_are_exact_on_trees(method):
    worst = 0.0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        theta = random_potentials(random_tree(rng, arity_max=4), rng, rng.choice([0.1, 1, 10]))
        log_z, mu = enumerate_model(theta)
        run = method.infer(theta)
        worst = max(worst, np.abs(run.marginals.vector() - mu.vector()).max(), abs(run.log_partition / log_z - 1))
    assert worst < 1e-11


@pytest.mark.parametrize("shape", [(1, 9), (9, 1), (1, 2), (1, 1)])
@pytest.mark.parametrize("schedule", ["auto", "lattice"])
def test_a_grid_of_one_row_is_a_chain(shape, schedule):
    theta = random_potentials(Graph.grid(*shape), np.random.default_rng(0), 2.0)
    log_z, mu = enumerate_model(theta)
    run = LoopyBP(n_iter=2, schedule=schedule).infer(theta)
    np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-12)
    assert run.log_partition == pytest.approx(log_z, abs=1e-12)


def test_flooding_is_exact_on_trees_after_their_diameter():
    theta = random_potentials(Graph.chain(8, 3), np.random.default_rng(0))
    log_z, mu = enumerate_model(theta)
    early, late = (LoopyBP(n_iter=n, schedule="flooding").infer(theta) for n in (6, 7))
    assert np.abs(early.marginals.vector() - mu.vector()).max() > 1e-6
    np.testing.assert_allclose(late.marginals.vector(), mu.vector(), rtol=0, atol=1e-12)


def test_monotonic_order():
    """One rising and one falling pass: exact on a monotonic chain in one iteration, and convergent on grids."""
    theta = random_potentials(Graph.chain(9, 3), np.random.default_rng(0), 3.0)
    log_z, mu = enumerate_model(theta)
    run = LoopyBP(n_iter=1, schedule="monotonic").infer(theta)
    np.testing.assert_allclose(run.marginals.vector(), mu.vector(), rtol=0, atol=1e-12)
    # Rows and columns of a grid are monotonic chains: rho = 1/2 converges without damping, however strong theta is.
    for seed in range(5):
        theta = random_potentials(Graph.grid(4, 5), np.random.default_rng(seed), 4.0)
        run = TreeReweighted(n_iter=20000, tol=1e-8, rho=0.5, schedule="monotonic").infer(theta)
        other = TreeReweighted(n_iter=20000, tol=1e-8, rho=0.5, damping=0.3).infer(theta)
        assert run.converged and run.bound == "upper"
        assert run.log_partition == pytest.approx(other.log_partition, abs=1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_fixed_point_is_locally_consistent_and_damping_does_not_move_it(name):
    theta = random_potentials(GRAPHS[name], np.random.default_rng(1), 0.7)
    runs = []
    for wanted in SETTINGS:
        run = TreeReweighted(n_iter=5000, tol=1e-12, **wanted).infer(theta)
        assert run.converged
        for scope, table in zip(theta.graph.factors, run.factors, strict=True):
            for axis, i in enumerate(scope):
                others = tuple(a for a in range(len(scope)) if a != axis)
                np.testing.assert_allclose(table.sum(axis=others), run.unary[i], rtol=0, atol=1e-10)
        runs.append(vector(run))
    np.testing.assert_allclose(runs, np.broadcast_to(runs[0], np.shape(runs)), rtol=0, atol=1e-9)


def test_zero_iterations():
    theta = random_potentials(MIXED, np.random.default_rng(0))
    expected = reference(theta, np.ones(MIXED.n_factors), [])
    run = LoopyBP(n_iter=0).infer(theta)
    np.testing.assert_allclose(run.marginals.vector(), expected, rtol=0, atol=1e-13)
    assert run.n_iter == 0 and run.residuals == [] and not run.converged
    with pytest.warns(bf.ConvergenceWarning):
        run = LoopyBP(n_iter=0, tol=1e-3).infer(theta)
    np.testing.assert_allclose(run.marginals.vector(), expected, rtol=0, atol=1e-13)


def test_tolerance():
    theta = random_potentials(Graph.grid(4, 4), np.random.default_rng(0))
    run = LoopyBP(n_iter=500, tol=1e-7).infer(theta)
    assert run.converged and run.residual < 1e-7 <= run.residuals[-2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed = LoopyBP(n_iter=run.n_iter).infer(theta)  # without a tolerance nothing is promised, so nothing said
    np.testing.assert_array_equal(vector(run), vector(fixed))
    assert fixed.residual <= run.residual  # a tolerance watches the messages, too
    with pytest.warns(bf.ConvergenceWarning, match=r"loopy_bp\(n_iter=2, tol=1e-07\) stopped"):
        run = LoopyBP(n_iter=2, tol=1e-7).infer(theta)
    assert not run.converged and run.n_iter == 2


# derivatives


def value_and_adjoint(engine, n_iter, c, alpha, state=None):
    """<c, mu> + alpha log Z after n_iter sweeps and its adjoints, through the contract of the engine alone."""
    state = engine.init() if state is None else state.copy()
    tape = []
    for t in range(n_iter):
        tape.append(state.copy())
        engine.sweep(state, t)
    mu = engine.marginals(state)
    value = (c * mu.vector()).sum() + alpha * engine.log_partition(mu)
    d_theta = engine.adjoint()
    d_mu = mu.like(c + engine.log_partition_vjp(mu, d_theta, alpha).vector())
    d_state = np.zeros_like(state)
    engine.marginals_vjp(state, d_mu, d_state, d_theta)
    for t in reversed(range(n_iter)):
        engine.sweep_vjp(tape[t], state, t, d_state, d_theta)
        state = tape[t]
    return value, d_theta, d_state


def difference(function, x, step=1e-6):
    out = np.zeros(x.size)
    for i in range(x.size):
        moved = [x.copy(), x.copy()]
        moved[0].flat[i] += step
        moved[1].flat[i] -= step
        out[i] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return out.reshape(x.shape)


@cases([SETTINGS[0], SETTINGS[1], SETTINGS[2], SETTINGS[5]], [1.0, 0.5, 0.7, "array"])
def test_adjoints(name, family, wanted, kind):
    graph, n_iter = GRAPHS[name], 3
    rng = np.random.default_rng(2)
    theta = random_potentials(graph, rng)
    c, alpha = rng.normal(size=len(theta.vector())), 0.7
    method = TreeReweighted(rho=some_rho(graph, kind), family=family, **wanted)
    engine = method.engine(theta)

    def value(**changes):
        part = changes.pop("theta", theta)
        return value_and_adjoint(method.replace(**changes).engine(part), n_iter, c, alpha)[0]

    _, adjoint, d_init = value_and_adjoint(engine, n_iter, c, alpha)
    d_theta = adjoint.potentials(graph).vector()
    np.testing.assert_allclose(d_theta, difference(lambda x: value(theta=theta.like(x)), theta.vector()), atol=1e-7)

    # Adjoints of messages are those of their logs.
    logs = engine.init() if family == "log" else np.log(engine.init())
    state = (lambda x: x) if family == "log" else np.exp
    by_init = difference(lambda x: value_and_adjoint(engine, n_iter, c, alpha, state(x))[0], logs)
    np.testing.assert_allclose(d_init, by_init, atol=1e-7)

    if family == "log":
        by_rho = difference(lambda x: value(rho=x), np.array(method.counting_numbers(graph)))
        np.testing.assert_allclose(adjoint.parameters["rho"], by_rho, atol=1e-7)
        if method.damping:
            by_damping = difference(lambda x: value(damping=float(x[0])), np.array([method.damping]))
            np.testing.assert_allclose(adjoint.parameters["damping"], by_damping, atol=1e-7)


@pytest.mark.parametrize("copies", [8, 50, 300])
def test_copies_equal_pairwise(copies):
    """Values and adjoints, of factors' marginals or of variables' alone; also where inputs were observed."""
    rng = np.random.default_rng(copies)
    edges = [rng.choice(9, 2, replace=False) for _ in range(14)]
    full = union([Graph.from_edges(edges, n_variables=10, labels=2)] * copies)
    observed = np.where(np.arange(10) % 3 == 0, rng.integers(0, 2, (copies, 10)), -1)
    reduced = Restriction(full, as_labeling(full, observed.ravel()).allowed).reduce(random_potentials(full, rng))[0]
    for theta in (random_potentials(full, rng, 2.0), reduced):
        n_unary = len(theta.unary_flat)
        for cliques in (True, False):
            c = rng.normal(size=len(theta.vector()))
            c[n_unary:] *= cliques
            found = []
            for family in ("pairwise", "copies"):
                engine = LoopyBP(schedule="flooding", family=family).engine(theta)
                value, adjoint, d_init = value_and_adjoint(engine, 6, c, 0.7 if cliques else 0.0)
                found.append(np.concatenate([[value], adjoint.potentials(theta.graph).vector()]))
            np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-10)
            assert isinstance(engine, CopiesEngine) and d_init.shape == (theta.graph.n_slots // copies, copies)


def test_flooding_of_copies_against_differences():
    rng = np.random.default_rng(2)
    theta = random_potentials(COPIES, rng)
    c = rng.normal(size=len(theta.vector()))
    method = LoopyBP(schedule="flooding", family="copies")
    _, adjoint, d_init = value_and_adjoint(method.engine(theta), 3, c, 0.7)
    by_theta = difference(lambda x: value_and_adjoint(method.engine(theta.like(x)), 3, c, 0.7)[0], theta.vector())
    np.testing.assert_allclose(adjoint.potentials(COPIES).vector(), by_theta, atol=1e-7)
    engine = method.engine(theta)
    by_init = difference(lambda x: value_and_adjoint(engine, 3, c, 0.7, np.exp(x))[0], np.log(engine.init()))
    np.testing.assert_allclose(d_init, by_init, atol=1e-7)


def test_adjoints_with_forbidden_configurations():
    """On entries that are possible; forbidden ones have no derivative."""
    rng = np.random.default_rng(3)
    values = random_potentials(MIXED, rng).vector()
    forbidden = rng.random(len(values)) < 0.1
    forbidden[: MIXED.layout.var_ptr[-1]] = False
    values[forbidden] = -np.inf
    theta = bf.Potentials.from_flat(MIXED, *np.split(values, [MIXED.layout.var_ptr[-1]]))
    c = rng.normal(size=len(values))
    method = TreeReweighted(rho=0.6)
    _, adjoint, _ = value_and_adjoint(method.engine(theta), 3, c, 0.7)
    d_theta = adjoint.potentials(MIXED).vector()
    assert np.isfinite(d_theta).all()

    def value(x):
        moved = values.copy()
        moved[~forbidden] = x
        return value_and_adjoint(method.engine(theta.like(moved)), 3, c, 0.7)[0]

    np.testing.assert_allclose(d_theta[~forbidden], difference(value, values[~forbidden]), atol=1e-7)


@pytest.mark.parametrize("wanted", [{}, {"damping": 0.3}, {"schedule": "flooding"}], ids=str)
def test_complex_numbers_carry_derivatives(wanted):
    """The log family takes complex theta: the imaginary part is a directional derivative without a difference."""
    rng = np.random.default_rng(0)
    theta = random_potentials(MIXED, rng)
    c, direction = rng.normal(size=(2, len(theta.vector())))
    method = TreeReweighted(rho=0.6, **wanted)
    _, adjoint, _ = value_and_adjoint(method.replace(family="log").engine(theta), 3, c, 0.5)
    step = 1e-30
    value, _, _ = value_and_adjoint(method.engine(theta.like(theta.vector() + 1j * step * direction)), 3, c, 0.5)
    assert value.imag / step == pytest.approx(adjoint.potentials(MIXED).vector() @ direction, rel=1e-12)


def test_log_partition_is_added_up_in_double_precision():
    theta = random_potentials(Graph.chain(50_000), np.random.default_rng(0))
    for family in ("pairwise", "general", "log"):
        high, low = (bf.infer(theta, LoopyBP(n_iter=2, family=family), dtype=t) for t in ("float64", "float32"))
        assert low.log_partition == pytest.approx(high.log_partition, rel=2e-8)


# known answers


def test_known_answer_of_libdai():
    """testfast.out lists the marginals of BP (4 digits) for several of its schedules."""
    path = folder("libdai_tests") / "testfast.fg"
    theta = read_fg(path)
    text = path.with_suffix(".out").read_text()
    blocks = re.findall(r"^(BP_\w+)\s.*\n((?:# \(\{x.*\n){16})", text, flags=re.MULTILINE)
    assert len(blocks) >= 4
    run = LoopyBP(n_iter=1000, tol=1e-10).infer(theta)
    assert run.converged
    for label, block in blocks:
        expected = np.array(re.findall(r"\((\d\S+), ([^)]+)\)\)", block), dtype=float)
        np.testing.assert_allclose(run.unary, expected, rtol=6e-4, atol=0, err_msg=label)
    assert BruteForce().infer(theta).log_partition == pytest.approx(14.328233281091578, abs=1e-10)
    bound = TreeReweighted(n_iter=5000, tol=1e-8, damping=0.3).infer(theta)
    assert bound.converged and bound.log_partition >= 14.328233281091578


@pytest.mark.parametrize("size", [(5, 4), (4, 5), (2, 2), (3, 70)])
@pytest.mark.parametrize("rho", [1.0, 0.5, 0.7])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_stack_of_images_has_the_bits_of_each(size, rho, dtype):
    rng = np.random.default_rng(0)
    images = [random_potentials(Graph.grid(*size), rng).astype(dtype) for _ in range(3)]
    whole = stack([theta.graph for theta in images])
    unary, factors = np.concatenate([theta.unary for theta in images]), by_factor(whole, [t.factors for t in images])
    stacked = bf.Potentials(whole, unary, factors).astype(dtype)
    method = TreeReweighted(n_iter=3, rho=rho)
    assert isinstance(method.engine(stacked), MessageLattice)
    run, alone = method.infer(stacked), [method.infer(theta) for theta in images]
    assert np.array_equal(run.marginals.unary, np.concatenate([each.marginals.unary for each in alone]))
    assert np.array_equal(run.marginals.factors, by_factor(whole, [each.marginals.factors for each in alone]))
    assert run.log_partition == pytest.approx(sum(each.log_partition for each in alone), rel=1e-5)

    labels = rng.integers(0, 2, (3, len(images[0].unary)))
    options = {"loss": "clique_logistic", "inference": method, "dtype": dtype}
    value, d_theta = bf.value_and_gradient(stacked, labels.reshape(-1), **options)
    parts = [bf.value_and_gradient(theta, y, **options) for theta, y in zip(images, labels, strict=True)]
    exact = {"atol": 1e-12} if dtype == "float64" else {"atol": 1e-5}
    np.testing.assert_allclose(value, sum(each for each, _ in parts), rtol=1e-6)
    np.testing.assert_allclose(d_theta.unary, np.concatenate([d.unary for _, d in parts]), **exact)
    np.testing.assert_allclose(d_theta.factors, by_factor(whole, [d.factors for _, d in parts]), **exact)


def test_log_messages_of_a_stack():
    rng = np.random.default_rng(0)
    images = [random_potentials(Graph.grid(5, 4), rng) for _ in range(2)]
    whole = stack([theta.graph for theta in images])
    stacked = bf.Potentials(whole, np.concatenate([t.unary for t in images]), by_factor(whole, [t.factors for t in images]))
    found = []
    for theta in (stacked, *images):
        engine = TreeReweighted(n_iter=2, rho=0.5).engine(theta)
        state = engine.init()
        engine.sweeps(state, 0, 2)
        found.append(engine.log_messages(state).reshape(-1, 4))
    assert np.array_equal(found[0], by_factor(whole, found[1:]))
