"""Discriminative random fields: labels coded -1 and +1, learned by ascent; ridges of variables and of edges."""

import numpy as np
import pytest

import backfield as bf
from backfield.datasets.generated import shapes
from backfield.energies import PlusMinus


def test_codes():
    x = np.array([[2.0, 1.0]])
    w = np.array([1.0, 3.0, 0.5])
    np.testing.assert_allclose(PlusMinus().scores(w, x, 2, True), [[-2.75, 2.75]])
    np.testing.assert_allclose(PlusMinus().scores(w, x, 4, True), [[5.5, -5.5, -5.5, 5.5]])
    d = np.array([[0.3, -0.1, 0.2, 0.7]])
    step = 1e-6 * np.eye(3)
    differences = [((PlusMinus().scores(w + s, x, 4, True) - PlusMinus().scores(w - s, x, 4, True)) * d).sum() for s in step]
    np.testing.assert_allclose(PlusMinus().vjp(x, d, True), np.array(differences) / 2e-6, atol=1e-8)
    with pytest.raises(bf.InputError, match="binary"):
        PlusMinus().n_weights(3, 9, True)


def test_the_preset_learns_shapes():
    data = shapes(n_train=2, n_test=1, size=24)
    crf = bf.GridCRF.discriminative(learner="ascent(max_iter=40, step_size=2.0)").fit(data.train, data.train_masks)
    assert len(crf.weights_) == 2 + 1 + 1
    assert crf.score(data.test, data.test_masks) > 0.97
    spa = bf.GridCRF.discriminative(
        loss="saddle_point(solver='graph_cut(truncate=True)')", decoder="map(solver='graph_cut(truncate=True)')"
    )
    assert spa.fit(data.train, data.train_masks).score(data.test, data.test_masks) > 0.97


def test_penalised_pseudolikelihood():
    data = shapes(n_train=2, n_test=1, size=16)
    params = {"loss": "pseudolikelihood", "learner": "lbfgs", "l2": {"unary": 0.0, "pairwise": 0.0}}
    plain = bf.GridCRF.discriminative(**params).fit(data.train, data.train_masks)
    firm = bf.GridCRF.discriminative(**{**params, "l2": {"pairwise": 1.0}}).fit(data.train, data.train_masks)
    assert (np.abs(firm.weights_[2:]) < 0.2 * np.abs(plain.weights_[2:])).all()
    same = bf.GridCRF.discriminative(**{**params, "l2": {"unary": 0.1, "pairwise": 0.1}}).fit(data.train, data.train_masks)
    one = bf.GridCRF.discriminative(**{**params, "l2": 0.1}).fit(data.train, data.train_masks)
    np.testing.assert_allclose(same.weights_, one.weights_, rtol=1e-6)
    with pytest.raises(bf.InputError, match="l2"):
        bf.GridCRF.discriminative(**{**params, "l2": {"edges": 1.0}}).fit(data.train, data.train_masks)
