"""Mean field with kernel groups against the general one on the written-out model, its bound and its adjoints."""

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError
from backfield.inference.mean_field.dense import DenseEngine

FULL = np.array([[1.0, -0.4, 0.1], [-0.4, 0.7, 0.3], [0.1, 0.3, -0.6]])
FILTERS = ["exact", "lattice", "published"]
PARALLEL = "mean_field(n_iter=7)"


def model(
    n=8, compatibilities=(0.8, FULL), filter="exact", seed=0, sigma=(1.1, [0.9, 1.3]), factors=(), dtype=None, **options
):
    """Return potentials of random points with kernels, and tables of -1 .. 1 for the factors."""
    rng = np.random.default_rng(seed)
    unary, points = rng.normal(size=(n, 3)), rng.normal(size=(n, 2))
    graph = bf.Graph(labels=[3] * n, factors=factors)
    tables = [rng.uniform(-1, 1, (3,) * len(scope)) for scope in factors]
    kernels = [
        bf.Kernel(points, c, s, weight=0.7, filter=filter, **options) for c, s in zip(compatibilities, sigma, strict=False)
    ]
    listed = [tables] if factors else []
    return bf.Potentials(graph, unary, groups=[*listed, *kernels])


def plain_sweep(theta, q, damping=0.0):
    """Return q after an update, with matrices."""
    z = theta.unary.copy()
    for kernel in theta.kernels:
        z += kernel.operator().pair_matrix() @ q @ kernel.matrix
    z = np.exp((1 - damping) * z + damping * np.log(q))
    return z / z.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("normalisation", [None, "symmetric", "before", "after"])
@pytest.mark.parametrize("filter", FILTERS)
def test_equals_mean_field_of_the_written_out_model(filter, normalisation):
    theta = model(filter=filter, normalisation=normalisation, factors=[(0, 1), (2, 5), (1, 3, 4)])
    pairs = theta.pairs_written_out()
    run, other = bf.infer(theta, PARALLEL), bf.infer(pairs, "mean_field(n_iter=7, schedule='flooding')")
    assert np.abs(run.unary - other.unary).max() < 1e-10
    assert run.log_partition == pytest.approx(other.log_partition, abs=1e-10)
    assert run.bound == "lower"
    assert run.log_partition < bf.infer(pairs, "brute_force").log_partition
    for factor, wanted in zip(run.factors, other.factors, strict=False):
        assert np.abs(factor - wanted).max() < 1e-10


def test_exact_filter_is_the_gaussian():
    theta = model(n=5, compatibilities=(FULL,), normalisation=None)
    points = theta.kernels[0].features
    table = theta.pairs_written_out().factors[0]
    gap = (points[0] - points[1]) / 1.1
    assert table == pytest.approx(0.7 * FULL * np.exp(-(gap @ gap) / 2), abs=1e-14)


def test_a_plain_version():
    theta = model(12, filter="lattice")
    q = np.full((12, 3), 1 / 3)
    for _ in range(7):
        q = plain_sweep(theta, q)
    assert np.abs(bf.infer(theta, PARALLEL).unary - q).max() < 1e-10


@pytest.mark.parametrize("n_labels", [2, 40])
def test_any_number_of_labels(n_labels):
    rng = np.random.default_rng(n_labels)
    points, unary = rng.normal(size=(9, 2)), rng.normal(size=(9, n_labels))
    theta = bf.Potentials(bf.Graph(labels=[n_labels] * 9), unary, groups=[bf.Kernel(points, 2.0)])
    other = bf.infer(theta.pairs_written_out(), "mean_field(n_iter=4, schedule='flooding')")
    assert np.abs(bf.infer(theta, "mean_field(n_iter=4)").unary - other.unary).max() < 1e-10
    single = bf.infer(theta, "mean_field(n_iter=4)", dtype="float32")
    assert np.abs(single.unary - other.unary).max() < 1e-5


def test_self_terms_are_no_bound():
    theta = model(self_terms=True)
    assert bf.infer(theta, PARALLEL).bound == "none"
    with pytest.raises(InputError, match="cannot be written out"):
        theta.pairs_written_out()


def test_observed_labels():
    theta = model(factors=[(0, 1), (2, 5), (1, 3, 4)])
    observed = np.array([1, -1, -1, 2, -1, -1, 0, -1])
    run = bf.infer(theta, "mean_field(n_iter=6)", observed=observed)
    other = bf.infer(theta.pairs_written_out(), "mean_field(n_iter=6, schedule='flooding')", observed=observed)
    assert np.abs(run.unary - other.unary).max() < 1e-10
    assert run.log_partition == pytest.approx(other.log_partition, abs=1e-10)


def test_forbidden_labels():
    theta = model()
    theta.unary[2, 1] = -np.inf
    run = bf.infer(theta, "mean_field(n_iter=5, schedule='convergent')")
    assert run.unary[2, 1] == 0
    assert np.isfinite(run.log_partition)
    theta.unary[4] = -np.inf
    with pytest.raises(InputError, match="variable 4"):
        bf.infer(theta, PARALLEL)


# The convergent variant


@pytest.mark.parametrize("compatibilities", [(8.0, 5.0), (-9.0, -6.0), (6.0, 4 * FULL), ([9.0, -3.0, 2.0], 0.5)])
@pytest.mark.parametrize("filter", FILTERS)
def test_convergent_updates_never_lower_the_bound(filter, compatibilities):
    for seed, factors in enumerate([(), (), [(0, 1), (1, 2), (3, 4, 5)]]):
        theta = model(20, compatibilities, filter, seed, factors=factors)
        engine = DenseEngine(theta, convergent=True)
        assert 0.1 < engine.damping < 1
        state, values = engine.from_unary(), []
        for t in range(60):
            values.append(engine.log_partition(engine.marginals(state)))
            engine.sweep(state, t)
        assert np.diff(values).min() > -1e-9


def test_parallel_updates_may_lower_it():
    # What the damping is for: repulsive labels flip to and fro.
    engine = DenseEngine(model(20, (-9.0, -6.0)))
    state, values = engine.from_unary(), []
    for t in range(8):
        values.append(engine.log_partition(engine.marginals(state)))
        engine.sweep(state, t)
    assert np.diff(values).min() < -1e-2


def test_damped_as_the_plain_one():
    theta = model()
    engine = DenseEngine(theta, convergent=True)
    state, q = engine.init(), np.full((8, 3), 1 / 3)
    for t in range(5):
        engine.sweep(state, t)
        q = plain_sweep(theta, q, engine.damping)
    assert np.abs(np.exp(state) - q).max() < 1e-10


# Gradients


def check_gradient(theta, loss, inference, gradient, rel=1e-5, step=1e-6):
    labels = np.arange(theta.graph.n_variables) % 3
    how = {"loss": loss, "inference": inference, "gradient": gradient}
    _, d_theta = bf.value_and_gradient(theta, labels, **how)
    vector, found = theta.vector(), d_theta.vector()
    n = len(theta.unary_flat)
    assert len(found) == len(vector)
    for k in [1, 10, *range(n, len(vector))]:
        ends = []
        for sign in (1, -1):
            moved = vector.copy()
            moved[k] += sign * step
            ends.append(bf.value_and_gradient(theta.like(moved), labels, **how)[0])
        assert found[k] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=rel, abs=2e-7), k


@pytest.mark.parametrize("normalisation", [None, "symmetric", "before", "after"])
@pytest.mark.parametrize("filter", FILTERS)
def test_truncated_gradient_against_differences(filter, normalisation):
    theta = model(filter=filter, normalisation=normalisation, factors=[(0, 1), (2, 5), (1, 3, 4)])
    check_gradient(theta, "univariate_logistic", "mean_field(n_iter=4)", "truncated")


@pytest.mark.parametrize("inference", ["mean_field(n_iter=4, schedule='convergent')", "mean_field(n_iter=4, damping=0.3)"])
def test_truncated_gradient_of_damped_updates(inference):
    theta = model(compatibilities=([1.5, 0.3, -2.0], FULL), factors=[(0, 1), (2, 5), (1, 3, 4)])
    check_gradient(theta, "clique_logistic", inference, "truncated")
    check_gradient(model(self_terms=True, filter="published", directed=True), "univariate_quadratic", inference, "truncated")


@pytest.mark.parametrize("gradient", ["implicit", "backpropagation(tol=1e-10)"])
def test_gradients_at_convergence(gradient):
    inference = "mean_field(n_iter=2000, tol=1e-13, schedule='convergent')"
    check_gradient(model(filter="lattice"), "univariate_logistic", inference, gradient)


def test_likelihood_against_differences():
    theta = model(compatibilities=(FULL,), filter="lattice")
    check_gradient(theta, "surrogate_likelihood", "mean_field(n_iter=5)", "truncated")
    check_gradient(theta, "surrogate_likelihood", "mean_field(n_iter=5)", None)


def test_likelihood_with_hidden_labels():
    theta = model(compatibilities=(FULL,))
    labels = np.array([0, -1, 2, 1, -1, -1, 0, 2])
    how = {"loss": "surrogate_likelihood", "inference": "mean_field(n_iter=3)", "gradient": "truncated"}
    value, d_theta = bf.value_and_gradient(theta, labels, **how)
    pairs = theta.pairs_written_out()
    how["inference"] = "mean_field(n_iter=3, schedule='flooding')"
    other, d_pairs = bf.value_and_gradient(pairs, labels, **how)
    assert value == pytest.approx(other, abs=1e-10)
    assert np.abs(d_theta.unary - d_pairs.unary).max() < 1e-10


def test_gradient_has_the_parts_of_the_group():
    theta = model(filter="lattice", sigma=(1.1, [0.9, 1.3]))
    _, d = bf.value_and_gradient(theta, np.zeros(8, int), loss="univariate_logistic", inference=PARALLEL)
    one, two = d.groups[-2:]
    assert one.compatibility.shape == one.bandwidths.shape == ()
    assert two.compatibility.shape == (3, 3) and two.bandwidths.shape == (2,)
    assert np.array_equal(two.compatibility, two.compatibility.T)
    assert one.weight * 0.7 == pytest.approx(float(one.compatibility * 0.8))
    # Fixed bandwidths change nothing else.
    kernels = [bf.Kernel(k.features, k.compatibility, k.bandwidths, k.weight, fixed_bandwidths=True, filter="lattice")
               for k in theta.kernels]  # fmt: skip
    fixed = bf.Potentials(theta.graph, theta.unary, groups=kernels)
    _, e = bf.value_and_gradient(fixed, np.zeros(8, int), loss="univariate_logistic", inference=PARALLEL)
    assert e.unary == pytest.approx(d.unary, abs=1e-12)
    assert e.groups[-1].compatibility == pytest.approx(two.compatibility, abs=1e-12)
    assert len(e.vector()) == len(d.vector()) - 3


def test_float32_gradient_is_near():
    theta = model(60, filter="lattice")
    how = {"loss": "univariate_logistic", "inference": PARALLEL, "gradient": "truncated"}
    _, d = bf.value_and_gradient(theta, np.arange(60) % 3, **how)
    _, e = bf.value_and_gradient(theta, np.arange(60) % 3, dtype="float32", **how)
    assert np.abs(d.vector() - e.vector()).max() < 1e-3


# Refusals


@pytest.mark.parametrize(
    "method",
    ["brute_force", "exact", "loopy_bp", "tree_reweighted", "smoothed_lp", "gibbs", "auto", "perturb_and_map", "chain"],
)
def test_others_refuse_kernels(method):
    with pytest.raises(InputError, match="takes no kernel groups, which join all pairs of 8 variables: use mean_field"):
        bf.infer(model(), method)


@pytest.mark.parametrize("solver", ["icm", "graph_cut", "max_product", "viterbi", "alpha_expansion", "mplp", "brute_force"])
def test_map_solvers_refuse_kernels(solver):
    with pytest.raises(InputError, match=f"{solver} takes no kernel groups"):
        bf.find_map(model(), solver)


@pytest.mark.parametrize("loss", ["pseudolikelihood", "piecewise", "max_margin", "contrastive_divergence"])
def test_objectives_refuse_kernels(loss):
    with pytest.raises(InputError, match="takes no kernel groups"):
        bf.value_and_gradient(model(), np.zeros(8, int), loss=loss, inference="gibbs")
    with pytest.raises(InputError, match="univariate_logistic through loopy_bp takes no kernel groups"):
        bf.value_and_gradient(model(), np.zeros(8, int), loss="univariate_logistic", inference="loopy_bp")


def test_second_derivatives_and_perturbation_are_refused():
    theta = model()
    with pytest.raises(InputError, match="a second derivative takes no kernel"):
        bf.hessian_vector(theta, np.zeros(8, int), theta, loss="univariate_logistic", inference=PARALLEL)
    how = {"loss": "univariate_logistic", "inference": "mean_field(tol=1e-9, n_iter=500)", "gradient": "perturbation"}
    with pytest.raises(InputError, match="through mean_field with the gradient perturbation takes no kernel groups"):
        bf.value_and_gradient(theta, np.zeros(8, int), **how)


def test_losses_of_cliques_need_listed_factors():
    with pytest.raises(InputError, match="clique_logistic is a sum over listed factors, and kernels list none"):
        bf.value_and_gradient(model(), np.zeros(8, int), loss="clique_logistic", inference=PARALLEL)


def test_schedules():
    for schedule in ("sequential", "lattice"):
        with pytest.raises(InputError, match="'flooding' or 'convergent'"):
            bf.infer(model(), f"mean_field(schedule={schedule!r})")
    chain = bf.Potentials(bf.Graph.chain(3), np.zeros((3, 2)), np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match="is for kernel groups"):
        bf.infer(chain, "mean_field(schedule='convergent')")
