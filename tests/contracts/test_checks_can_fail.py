"""Every check finds a part that is deliberately broken, and says which contract is."""

import copy
import functools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from backfield import Graph, InputError, Potentials, registry, testing
from backfield.data.codecs import ArrayCodec
from backfield.decoders.base import Decoder
from backfield.energies import Linear
from backfield.gradients import Truncated
from backfield.inference import Exact, LoopyBP, MeanField
from backfield.learners import LBFGS
from backfield.losses import UnivariateLogistic, UnivariateQuadratic
from backfield.map_solvers import BruteForce
from backfield.objectives import Pseudolikelihood
from backfield.oracles import Linear as LinearOracle
from backfield.structures.base import Instance, Structure
from backfield.testing.contract import keep
from backfield.testing.inference import smallest_graphs


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    """Broken parts are gone after each test."""
    registry.rooms()  # imports all of them
    monkeypatch.setattr(registry, "_REGISTRY", copy.deepcopy(registry._REGISTRY))


def part(base, **members):
    """Return a broken relative of a part: a frozen dataclass that is registered as ``broken``."""
    namespace = {"__doc__": "Broken on purpose.", "__module__": __name__, **members}
    made = type(base)("Broken", (base,), namespace, name="broken")
    globals()["Broken"] = made  # which pickle looks for
    return dataclass(frozen=True, repr=False)(made)


def breaks(check, contract, subject):
    with pytest.raises(AssertionError, match=f"breaks the contract '{contract}'") as error:
        check(subject)
    assert "broken" in str(error.value) and "\n" not in str(error.value)


# ---- contracts of all parts ----


def test_a_dataclass_that_is_not_frozen():
    made = dataclass(repr=False)(
        type(Decoder)("Broken", (Decoder,), {"__doc__": "x", "__module__": __name__}, name="broken")
    )
    breaks(testing.check_decoder, "spec_round_trip", made)


def test_a_repr_that_is_no_spec():
    made = part(UnivariateLogistic, __repr__=lambda self: "Broken()")
    with pytest.raises(AssertionError, match=r"'spec_round_trip'.*repr=False"):
        testing.check_loss(made)


def test_a_part_that_cannot_be_pickled():
    made = part(UnivariateLogistic)
    made.__qualname__ = "nowhere.Broken"
    breaks(testing.check_loss, "copies", made)


def test_a_part_without_a_docstring():
    breaks(testing.check_loss, "is_documented", part(UnivariateLogistic, __doc__=None))


# ---- inference ----


def changed(base, change):
    """Return an ``infer`` that changes the results of a method."""

    def infer(self, theta):
        run = base.infer(self, theta)
        change(run, theta)
        return run

    return infer


def test_inference_that_is_not_normalised():
    def change(run, theta):
        run.marginals = run.marginals.like(run.marginals.vector() * 1.01)

    breaks(testing.check_inference, "normalised", part(Exact, infer=changed(Exact, change)))


def test_inference_that_is_not_exact():
    def change(run, theta):
        run.log_partition += 1e-3

    breaks(testing.check_inference, "declared_bound", part(Exact, infer=changed(Exact, change)))


def test_a_bound_that_does_not_hold():
    def change(run, theta):
        run.log_partition += 1.0

    breaks(testing.check_inference, "declared_bound", part(MeanField, infer=changed(MeanField, change)))


def test_inference_that_changes_theta():
    def infer(self, theta):
        theta.unary_flat[0] += 1e-9
        return Exact.infer(self, theta)

    with pytest.raises(AssertionError, match="breaks the contract"):
        testing.check_inference(part(Exact, infer=infer))


def test_inference_of_the_wrong_type():
    def change(run, theta):
        run.marginals = run.marginals.astype(np.float64)

    breaks(testing.check_inference, "result", part(Exact, infer=changed(Exact, change)))


def test_inference_with_a_wrong_adjoint():
    def engine(self, theta):
        found = LoopyBP.engine(self, theta)
        right = found.marginals_vjp

        def wrong(state, d_mu, d_state, d_theta):
            right(state, d_mu, d_state, d_theta)
            d_theta.unary[0] += 0.01

        object.__setattr__(found, "marginals_vjp", wrong)
        return found

    breaks(testing.check_inference, "gradients", part(LoopyBP, engine=engine))


def test_inference_that_overflows():
    def change(run, theta):
        with np.errstate(over="ignore", invalid="ignore"):
            run.log_partition += float(np.log(np.exp(theta.unary_flat.max()))) - float(theta.unary_flat.max())

    breaks(testing.check_inference, "huge_potentials", part(Exact, infer=changed(Exact, change)))


def test_inference_that_refuses_everything():
    def infer(self, theta):
        raise InputError("no.")

    with pytest.raises(AssertionError, match="every model is refused: no"):
        testing.check_inference(part(Exact, infer=infer))


def test_inference_that_is_wrong_without_factors():
    def change(run, theta):
        run.log_partition -= 1e-3 * (theta.graph.n_factors == 0)

    made = part(MeanField, infer=changed(MeanField, change))
    breaks(lambda subject: keep(smallest_graphs, subject()), "smallest_graphs", made)


# ---- losses ----


def test_a_loss_with_a_wrong_derivative():
    def value_and_dmu(self, mu, labeling, weights):
        value, d_mu = UnivariateLogistic.value_and_dmu(self, mu, labeling, weights)
        return value, Potentials.from_flat(mu.graph, 1.001 * d_mu.unary_flat, d_mu.factors_flat)

    breaks(testing.check_loss, "derivative", part(UnivariateLogistic, value_and_dmu=value_and_dmu))


def test_a_loss_that_looks_at_hidden_variables():
    def value_and_dmu(self, mu, labeling, weights):
        d_unary = 2 * mu.unary_flat
        return (mu.unary_flat**2).sum(), Potentials.from_flat(mu.graph, d_unary, d_unary[:0])

    def takes_no_weights(self, mu, labeling, weights):
        return value_and_dmu(self, mu, labeling, None)

    breaks(testing.check_loss, "hidden_variables", part(UnivariateQuadratic, value_and_dmu=takes_no_weights))


def test_a_loss_that_ignores_weights():
    def value_and_dmu(self, mu, labeling, weights):
        return UnivariateQuadratic.value_and_dmu(self, mu, labeling, None)

    breaks(testing.check_loss, "weights_scale", part(UnivariateQuadratic, value_and_dmu=value_and_dmu))


def test_a_loss_that_is_infinite_at_zero():
    def value_and_dmu(self, mu, labeling, weights):
        known = np.flatnonzero(labeling.labels >= 0)
        entries = mu.graph.layout.var_ptr[known] + labeling.labels[known]
        w = 1.0 if weights is None else weights[known if len(weights) == mu.graph.n_variables else entries]
        d_unary = np.zeros_like(mu.unary_flat)
        with np.errstate(divide="ignore"):
            d_unary[entries] = -w / mu.unary_flat[entries]
            value = -np.sum(w * np.log(mu.unary_flat[entries]))
        return value, Potentials.from_flat(mu.graph, d_unary, d_unary[:0])

    made = part(UnivariateLogistic, value_and_dmu=value_and_dmu, sets=False)
    breaks(testing.check_loss, "zero_marginals", made)


def test_a_loss_that_drops_complex_parts():
    def value_and_dmu(self, mu, labeling, weights):
        real = Potentials.from_flat(mu.graph, mu.unary_flat.real.copy(), mu.factors_flat.real.copy())
        return UnivariateLogistic.value_and_dmu(self, real, labeling, weights)

    breaks(testing.check_loss, "second_derivative", part(UnivariateLogistic, value_and_dmu=value_and_dmu))


# ---- objectives, gradients, decoders, energies, solvers, oracles, learners ----


def test_an_objective_with_a_wrong_gradient():
    def value_and_dtheta(self, theta, target, setting):
        value, d_theta = Pseudolikelihood.value_and_dtheta(self, theta, target, setting)
        return value, d_theta.like(1.001 * d_theta.vector())

    breaks(testing.check_objective, "gradients", part(Pseudolikelihood, value_and_dtheta=value_and_dtheta))


def test_a_strategy_with_a_wrong_gradient():
    def differentiate(self, method, theta, loss, cliques):
        found = Truncated.differentiate(self, method, theta, loss, cliques)
        return found._replace(d_theta=found.d_theta.like(1.001 * found.d_theta.vector()))

    breaks(testing.check_gradient, "agrees", part(Truncated, differentiate=differentiate))


def test_a_decoder_with_labels_out_of_range():
    def decode(self, theta, mu, outputs=None):
        return np.full(theta.graph.n_variables, 2)

    breaks(testing.check_decoder, "predictions", part(Decoder, decode=decode))


def test_a_decoder_that_rolls_dice():
    rng = np.random.default_rng(0)

    def decode(self, theta, mu, outputs=None):
        return rng.integers(theta.graph.labels)

    with pytest.raises(AssertionError, match=r"breaks the contract '(outputs|repeats)'"):
        testing.check_decoder(part(Decoder, decode=decode))


def test_an_energy_with_a_wrong_vjp():
    def vjp(self, features, d_scores, intercept, w=None):
        return 1.001 * Linear.vjp(self, features, d_scores, intercept, w)

    breaks(testing.check_energy, "derivative", part(Linear, vjp=vjp))


def test_an_energy_that_is_not_linear():
    def scores(self, w, features, n_outputs, intercept):
        return Linear.scores(self, w**2 / 2, features, n_outputs, intercept)

    def vjp(self, features, d_scores, intercept, w=None):
        return Linear.vjp(self, features, d_scores, intercept) * (1 if w is None else w)

    with pytest.raises(AssertionError, match=r"breaks the contract '(derivative|linearity)'"):
        testing.check_energy(part(Linear, scores=scores, vjp=vjp))


def test_a_solver_that_is_not_optimal():
    def solve(self, theta):
        run = BruteForce.solve(self, theta)
        run.labels = np.zeros_like(run.labels)
        run.value = theta.score(run.labels)
        return run

    breaks(testing.check_map_solver, "results", part(BruteForce, solve=solve))


def test_a_solver_with_a_wrong_value():
    def solve(self, theta):
        run = BruteForce.solve(self, theta)
        run.value += 1
        return run

    breaks(testing.check_map_solver, "results", part(BruteForce, solve=solve))


def test_an_oracle_that_ignores_the_bias():
    def fit(self, task):
        return LinearOracle.fit(self, replace(task, bias=np.zeros_like(task.bias)))

    with pytest.raises(AssertionError, match=r"breaks the contract 'descent'.*bias"):
        testing.check_oracle(part(LinearOracle, fit=fit))


def test_an_oracle_without_a_seed():
    calls = []

    def fit(self, task):
        calls.append(1)
        return LinearOracle.fit(self, replace(task, bias=task.bias + 1e-3 * len(calls) * task.features[:, :1]))

    with pytest.raises(AssertionError, match=r"breaks the contract '(seeds|saving|going_on|descent)'"):
        testing.check_oracle(part(LinearOracle, fit=fit))


def test_a_learner_that_climbs():
    class Uphill(LBFGS):
        """Not registered: it has no name."""

        own_start: ClassVar[bool] = False

    def fit(self, problem, w, **options):
        found = LBFGS.fit(self, problem, w, **options)
        found.w[:] = -found.w
        return found

    breaks(testing.check_learner, "descent", part(Uphill, fit=fit))


def test_a_learner_that_forgets_where_it_was():
    count = []

    def fit(self, problem, w, **options):
        found = LBFGS.fit(self, problem, w, **options)
        count.append(1)
        found.w[:] += 1e-9 * len(count)
        return found

    breaks(testing.check_learner, "repeats", part(LBFGS, fit=fit))


# ---- structures ----

RINGS = [np.random.default_rng(k).normal(size=(size, 2)) for k, size in enumerate((4, 4, 5))]
RING_LABELS = [(x[:, 0] > 0).astype(int) for x in RINGS]
check_ring = functools.partial(testing.check_structure, X=RINGS, y=RING_LABELS)


class Ring(Structure):
    """Closed chains; not registered: it has no name."""

    def sample(self, x, names=None):
        x = np.asarray(x)
        if x.ndim != 2:
            raise InputError(f"a ring must have shape (T, F), received {x.shape}.")
        return Instance(shape=(len(x),), n_factors=len(x), node_features=x)

    def graph(self, sample, n_labels):
        t = np.arange(sample.n_variables)
        return Graph.from_edges(np.stack([t, (t + 1) % len(t)], axis=1), n_variables=len(t), labels=n_labels)


def other_sample(**changes):
    """Return a ``sample`` whose instances have other values: functions of the entry."""

    def sample(self, x, names=None):
        found = Ring.sample(self, x)
        for key, value in changes.items():
            setattr(found, key, value(np.asarray(x)))
        return found

    return sample


def test_a_structure_that_is_right():
    check_ring(part(Ring))


def test_a_structure_that_cannot_be_pickled():
    made = part(Ring)
    made.__qualname__ = "nowhere.Broken"
    breaks(check_ring, "copies", made)


@pytest.mark.parametrize(
    ("contract", "members"),
    [
        ("samples", {"sample": other_sample(node_features=lambda x: x[1:])}),
        ("samples", {"sample": other_sample(factor_features=lambda x: np.full((len(x), 1), np.nan))}),
        ("samples", {"sample": other_sample(shape=lambda x: [len(x)])}),
        ("graphs", {"sample": other_sample(n_factors=lambda x: len(x) - 1)}),
        ("graphs", {"graph": lambda self, sample, n_labels: Ring.graph(self, sample, 2)}),
        ("graphs", {"chains": True}),
        ("keys", {"key": lambda self, sample: "the same"}),
        ("keys", {"key": lambda self, sample: [sample.shape]}),
        ("block_sizes", {"arity": 3}),
        ("block_sizes", {"blocks": lambda self, sample: (Structure.blocks(self, sample)[0], {})}),
        ("labels_come_back", {"shaped": lambda self, values, sample: values[::-1]}),
        ("labels_come_back", {"flat": lambda self, y, sample: np.asarray(y)[:, None]}),
        ("wrong_labels", {"flat": lambda self, y, sample: np.resize(np.asarray(y, int), sample.shape)}),
        ("wrong_entries", {"sample": lambda self, x, names=None: Instance((len(x),), len(x), np.asarray(x))}),
        ("fitting", {"sample": other_sample(weights=lambda x: np.ones(3))}),
    ],
)
def test_a_structure_that_breaks_a_contract(contract, members):
    breaks(check_ring, contract, part(Ring, **members))


def test_a_structure_whose_shards_lose_digits():
    class Coarse(ArrayCodec):
        def encode(self, x):
            return {"features": np.asarray(x, dtype=np.float16)}

    globals()["Coarse"] = Coarse
    Coarse.__qualname__ = "Coarse"
    breaks(check_ring, "packing", part(Ring, codec=Coarse()))


def test_a_structure_whose_names_are_lost_in_model_files():
    def sample(self, x, names=None):
        found = Ring.sample(self, x)
        found.node_features = found.node_features * (1.0 if (7, 7) in (names or {}) else -1.0)
        return found

    breaks(check_ring, "saving", part(Ring, sample=sample, learn_names=lambda self, X: {(7, 7): 0}))


def test_a_structure_is_checked_on_examples():
    with pytest.raises(InputError, match="two examples or more and their labels, received 1 and 1"):
        testing.check_structure("chain", RINGS[:1], RING_LABELS[:1])
