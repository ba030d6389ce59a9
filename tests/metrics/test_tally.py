import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, jaccard_score
from sklearn.metrics import log_loss as reference_log_loss

from backfield.errors import InputError
from backfield.metrics import calibration, chunk_scores, evaluate
from backfield.metrics.tally import chunks_of


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    truth = [rng.integers(-1, 4, (6, 5)), rng.integers(-1, 4, (3, 7))]
    p = [rng.dirichlet(np.ones(4), each.shape) for each in truth]
    return truth, p


def test_scores_are_those_of_scikit_learn(case):
    truth, p = case
    guess = [each.argmax(axis=-1) for each in p]
    m = evaluate(truth, guess, np.arange(4), p)
    y, x = (np.concatenate([each.ravel() for each in labels]) for labels in (truth, guess))
    known = y >= 0
    y, x, q = y[known], x[known], np.concatenate([each.reshape(-1, 4) for each in p])[known]
    np.testing.assert_array_equal(m.confusion, confusion_matrix(y, x, labels=range(4)))
    np.testing.assert_allclose(m.iou, jaccard_score(y, x, average=None))
    np.testing.assert_allclose(m.f1, f1_score(y, x, average=None))
    assert m.accuracy == pytest.approx((x == y).mean()) and m.n_variables == known.sum()
    assert m.log_loss == pytest.approx(reference_log_loss(y, q, labels=range(4)))
    assert m.as_json()["per_class"][2]["support"] == (y == 2).sum()


def test_classes_that_do_not_occur_have_no_score():
    m = evaluate([np.array([0, 0, 1])], [np.array([0, 1, 1])], [0, 1, 7])
    assert np.isnan(m.iou[2]) and m.as_json()["per_class"][2]["iou"] is None
    assert m.mean_iou == pytest.approx(0.5) and m.ece is None


def test_calibration_of_probabilities_that_mean_what_they_say():
    rng = np.random.default_rng(1)
    p1 = rng.random(200_000)
    p = np.stack([1 - p1, p1], axis=1)
    y = (rng.random(len(p1)) < p1).astype(int)
    assert calibration(p, y).error < 0.005
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)  # overconfident
    assert calibration(sharp, y).error > 0.05


def test_expected_calibration_error_by_hand():
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    found = calibration(p, np.array([0, 1, 1, 1]), n_bins=10)
    assert found.error == pytest.approx(0.5 * 0.4 + 0.25 * 0.2 + 0.25 * 0.6)
    assert found.share.sum() == pytest.approx(1)


def test_chunks_follow_conlleval():
    tags = ["B-NP", "I-NP", "O", "I-NP", "I-VP", "B-VP"]
    assert chunks_of(tags) == {("NP", 0, 1), ("NP", 3, 3), ("VP", 4, 4), ("VP", 5, 5)}
    tags = ["B-X", "E-X", "S-X", "O", "B-X", "I-X", "E-X", "I-X"]
    assert chunks_of(tags) == {("X", 0, 1), ("X", 2, 2), ("X", 4, 6), ("X", 7, 7)}
    assert chunks_of([]) == set()
    scores = chunk_scores([["B-A", "I-A", "O", "B-B"]], [["B-A", "I-A", "B-A", "B-A"]])
    assert (scores.precision, scores.recall, scores.support) == (1 / 3, 1 / 2, 2)
    assert scores.f1 == pytest.approx(0.4)


def test_chunks_only_for_tags():
    tags = ["B-A", "I-A", "O"]
    assert evaluate([tags], [tags], sorted(tags)).chunks.f1 == 1
    words = ["noun", "verb", "B-movie"]
    assert evaluate([words], [words], sorted(words)).chunks is None


def test_hidden_and_unknown_labels():
    with pytest.raises(InputError, match="hidden"):
        evaluate([np.array([-1])], [np.array([0])], [0, 1])
    with pytest.raises(InputError, match="the truth holds the label 5"):
        evaluate([np.array([5])], [np.array([0])], [0, 1])
    with pytest.raises(InputError, match="sizes"):
        evaluate([np.array([0])], [np.array([0, 1])], [0, 1])
    assert evaluate([np.array(["", "b"])], [np.array(["a", "b"])], ["a", "b"]).accuracy == 1
