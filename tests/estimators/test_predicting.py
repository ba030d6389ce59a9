"""Predictions run inference once, and compute nothing that nobody reads."""

from collections import Counter

import numpy as np
import pytest

import backfield as bf
from backfield.inference.message_passing.lattice import MessageLattice
from backfield.registry import get, names

RNG = np.random.default_rng(0)
X = [RNG.normal(size=(5, 6, 2)) for _ in range(2)]
Y = [(x[:, :, 0] > 0).astype(int) for x in X]


@pytest.fixture(scope="module")
def fitted():
    return bf.GridCRF(learner="lbfgs(max_iter=5)", dtype="float64").fit(X, Y)


@pytest.fixture
def calls(monkeypatch):
    """How often an engine's methods are called; ``marginals`` counts those of factors."""
    seen = Counter()
    for name in ("init", "beliefs", "log_partition", "marginals"):
        real = getattr(MessageLattice, name)

        def counted(self, *arguments, real=real, name=name, **options):
            seen[name] += 1
            return real(self, *arguments, **options)

        monkeypatch.setattr(MessageLattice, name, counted)
    return seen


@pytest.mark.parametrize("decoder", ["max_marginal", "soft", "expected_f", "map"])
def test_one_run_of_inference_per_image(fitted, calls, decoder):
    crf = fitted.set_params(decoder=decoder)
    runs = 0 if decoder == "map" else 2
    crf.predict(X)
    assert calls == Counter({"init": runs, "beliefs": runs} if runs else {})
    calls.clear()
    crf.predict_proba(X)
    assert calls == Counter({"init": 2, "beliefs": 2})
    calls.clear()
    labels, p = zip(*crf.predict_each(X), strict=True)
    assert calls == Counter({"init": 2, "beliefs": 2})
    np.testing.assert_array_equal(p[0], crf.predict_proba(X)[0])
    np.testing.assert_array_equal(labels[1], crf.predict(X)[1])
    calls.clear()
    run = crf.marginals(X[0])  # asks for all
    assert calls["log_partition"] == 1 and calls["marginals"] == 1 and run.factors.shape == (49, 2, 2)


@pytest.mark.parametrize("method", [name for name in names("inference") if name not in ("gibbs", "perturb_and_map")])
@pytest.mark.parametrize("graph", [bf.Graph.grid(3, 4), bf.Graph.chain(5, labels=3), bf.Graph([2, 3, 2], [(0, 1), (1, 2)])])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_beliefs_are_the_unary_marginals(method, graph, dtype):
    if method == "chain" and graph.shape is not None:
        pytest.skip("a grid is no chain")
    part = get("inference", method)
    rng = np.random.default_rng(1)
    theta = bf.Potentials.from_flat(
        graph, rng.normal(size=graph.layout.var_ptr[-1]), rng.normal(size=graph.layout.table_ptr[-1])
    ).astype(dtype)
    found, expected = part.beliefs(theta), part.infer(theta).marginals.unary_flat
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15 if dtype == "float64" else 1e-7)


def test_a_run_that_does_not_converge_warns():
    crf = bf.GridCRF(learner="lbfgs(max_iter=2)").fit(X, Y).set_params(inference="tree_reweighted(n_iter=1, tol=1e-9)")
    with pytest.warns(bf.ConvergenceWarning, match="stopped before its marginals changed by less than tol"):
        crf.predict(X)


@pytest.mark.parametrize("decoder", ["max_marginal", "soft", "expected_f"])
@pytest.mark.parametrize("method", ["loopy_bp(n_iter=5)", "exact"])
def test_observed_inputs(decoder, method):
    graph = bf.Graph.grid(3, 3)
    rng = np.random.default_rng(2)
    samples = [bf.Sample(graph, rng.normal(size=(9, 2)), observed=np.array([1, 0] + [-1] * 7)) for _ in range(3)]
    labels = [np.array([1, 0, *rng.integers(2, size=7)]) for _ in range(3)]
    crf = bf.GraphCRF(inference=method, decoder=decoder, learner="lbfgs(max_iter=3)", gradient=None).fit(samples, labels)
    p = crf.predict_proba(samples)[0]
    np.testing.assert_allclose(p, crf.marginals(samples[0]).unary, atol=1e-6)
    np.testing.assert_array_equal(p[:2], [[0, 1], [1, 0]])
    found, same = next(crf.predict_each(samples))
    np.testing.assert_array_equal(same, p)
    np.testing.assert_array_equal(found, crf.predict(samples)[0])
    if decoder != "soft":
        assert found[:2].tolist() == [1, 0]
