"""Bad input around perturb-and-MAP, margins and weak supervision gets one clear sentence."""

import numpy as np
import pytest

import backfield as bf
from backfield.learners import SGD
from tests.learners.problems import Logistic


def images(n=2):
    rng = np.random.default_rng(0)
    masks = [rng.integers(0, 2, (4, 4)) for _ in range(n)]
    return [mask[:, :, None] + 0.1 * rng.normal(size=(4, 4, 1)) for mask in masks], masks


def test_a_model_that_is_not_submodular_after_training():
    board = np.indices((6, 6)).sum(axis=0) % 2  # a chess board: neighbours differ
    X, masks = [0.0 * board[:, :, None]] * 2, [board, 1 - board]
    model = bf.GridCRF(loss="pseudolikelihood", decoder="map(solver='graph_cut')").fit(X, masks)
    with pytest.raises(bf.InputError, match=r"factor \d+ over variables \(\d+, \d+\) is not submodular .*truncate=True"):
        model.predict(X)
    assert len(model.set_params(decoder="map(solver='graph_cut(truncate=True)')").predict(X)) == 2


def test_an_empty_mini_batch():
    with pytest.raises(bf.InputError, match="empty mini-batch"):
        SGD().step(Logistic(), np.zeros(8), None, np.empty(0, dtype=int), 0)


def test_contradictory_partial_labels():
    X, masks = images()
    nothing = np.ones((4, 4, 2), dtype=bool)
    nothing[1, 2] = False
    with pytest.raises(bf.InputError, match=r"example 1: labels\[6\] allows no label at all"):
        bf.GridCRF(loss="perturb_and_map", learner="sgd").fit(X, [np.eye(2, dtype=bool)[masks[0]], nothing])
    graph = bf.Graph([2, 2], [(0, 1)])
    theta = bf.Potentials(graph, np.zeros((2, 2)), [np.array([[0.0, -np.inf], [-np.inf, 0.0]])])
    for loss in ("perturb_and_map", "max_margin"):
        with pytest.raises(bf.InputError, match=r"probability zero|no labels are possible|is -?inf"):
            bf.value_and_gradient(theta, np.array([0, 1]), loss=loss)
        with pytest.raises(bf.InputError, match="observed with a label that labels forbid"):
            bf.value_and_gradient(theta, np.array([0, 0]), loss=loss, observed=np.array([1, -1]))


@pytest.mark.parametrize("loss", ["marginal_perturb_and_map", "max_margin", "univariate_logistic"])
def test_zero_weights(loss):
    X, masks = images()
    options = {"loss": loss, "learner": "sgd"}
    with pytest.raises(bf.InputError, match="sample_weight is zero for all examples"):
        bf.GridCRF(**options).fit(X, masks, sample_weight=[0, 0])
    with pytest.raises(bf.InputError, match="class_weight must hold finite numbers >= 0, not all zero"):
        bf.GridCRF(class_weight={0: 0, 1: 0}, **options).fit(X, masks)
    graph = bf.Graph.chain(3)
    sample = bf.Sample(graph, np.ones((3, 1)), weights=np.zeros(3))
    with pytest.raises(bf.InputError, match="example 0: weights are all zero"):
        bf.GraphCRF(**options).fit([sample], [[0, 1, 1]])
    with pytest.raises(bf.InputError, match="class_weight must be None, 'balanced' or a dict"):
        bf.GridCRF(class_weight="even", **options).fit(X, masks)


def test_all_labels_hidden():
    X, masks = images()
    with pytest.raises(bf.InputError, match="all labels are hidden"):
        bf.GridCRF(loss="marginal_perturb_and_map", learner="self_training").fit(X, [np.full((4, 4), -1)] * 2)


def test_an_unknown_label_is_refused_with_its_example():
    X, masks = images(3)
    masks[2][1, 1] = -3
    with pytest.raises(bf.InputError, match=r"example 2: the label -3 is not among the classes 0, 1"):
        bf.GridCRF(loss="marginal_perturb_and_map", learner="sgd").fit(X, masks)
