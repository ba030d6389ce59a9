"""Stacked chains compute what the general evaluator does, and tied potentials are what energies score, to the byte."""

import numpy as np
import pytest

import backfield as bf
from backfield.energies import Linear
from backfield.graph import Tied
from backfield.training.evaluators import General


def chains(rng, n=19, hide=0.0, sets=False):
    X = [rng.normal(size=(rng.integers(1, 8), 4)) for _ in range(n)]
    Y = [rng.integers(0, 3, len(x)) for x in X]
    if sets:
        return X, [(np.arange(3) == y[:, None]) | (rng.random((len(y), 3)) < hide) for y in Y]
    return X, [np.where(rng.random(len(y)) < hide, -1, y) for y in Y]


@pytest.mark.parametrize("case", ["known", "hidden", "sets"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("inference", ["chain", "exact"])
def test_equals_the_general_evaluator(case, dtype, inference):
    rng = np.random.default_rng(0)
    X, Y = chains(rng, hide=0.0 if case == "known" else 0.3, sets=case == "sets")
    crf = bf.ChainCRF(inference=inference, learner="lbfgs(max_iter=1)", n_labels=3, dtype=dtype).fit(X, Y)
    fast, general = crf.problem(X, Y), crf.problem(X, Y)
    assert fast.evaluator.runs.merge
    general.evaluator = General(general.task)
    tolerance = 1e-11 if dtype == "float64" else 2e-4
    w = rng.normal(size=fast.n_weights)
    for batch in (None, np.array([3, 0, 17]), np.arange(9)):
        a, b = fast.value_and_gradient(w, batch), general.value_and_gradient(w, batch)
        assert a.value == pytest.approx(b.value, rel=tolerance) and a.errors == b.errors
        np.testing.assert_allclose(a.gradient, b.gradient, atol=tolerance)


@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tied_potentials_are_the_scores_of_the_energy(width, dtype):
    rng = np.random.default_rng(2)
    images = [rng.normal(size=(6, 7, 2)) for _ in range(2)]
    samples = [
        bf.GridSample(x, rng.normal(size=(6, 6, width)), rng.normal(size=(5, 7, width))) if width else x for x in images
    ]
    masks = [rng.integers(0, 3, size=(6, 7)) for _ in images]
    crf = bf.GridCRF(learner="lbfgs(max_iter=2)", n_labels=3, dtype=dtype).fit(samples, masks)
    task = crf.problem(samples, masks).task
    w, example = rng.normal(size=task.n_weights), task.examples[0]
    theta = task.layout.theta(w, example, task.dtype)
    assert all(isinstance(group, Tied) and group.fixed_scales for group in theta.groups)
    pairs = zip(task.layout.factors, example.factors, strict=True)
    scores = [Linear().scores(w[b.start : b.stop], rows.features, b.n_outputs, b.intercept) for b, rows in pairs]
    assert theta.factors_flat.tobytes() == np.concatenate(scores).astype(dtype).tobytes()
    d_theta = theta.written_out().like(rng.normal(size=len(theta.written_out().vector())).astype(dtype))
    plain = task.layout.vjp(example, d_theta, w)
    assert task.layout.vjp(example, theta.contract(d_theta), w).tobytes() == plain.tobytes()
