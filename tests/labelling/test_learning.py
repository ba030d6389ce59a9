"""Scribbles -> classifier and field: parts agree with wholes, gradients with differences, the model with its file."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

import backfield as bf
from backfield.errors import InputError
from backfield.labelling import Session
from backfield.labelling import field as field_module
from backfield.labelling.asking import advice, choose_image, uncertain_place
from backfield.labelling.field import Field, features_of, pieces, window
from backfield.labelling.learning import FEW_CELLS, FOLDS, QUICK, Learner, Mosaic, Rows, Stopped
from backfield.labelling.material import collect
from backfield.labelling.pictures import Picture, entropy, quantised
from backfield.labelling.practice import practise
from backfield.labelling.strokes import HIDDEN, Box, Stroke
from backfield.labelling.thinking import Thinker
from backfield.labelling.view import in_order
from tests.labelling.conftest import DISC, GROUND, picture


def painted(truth, places, size=7.0):
    """Discs of the true label at places (x, y)."""
    labels = np.full(truth.shape, HIDDEN, np.uint8)
    for x, y in places:
        box, after = Stroke("brush", int(truth[y, x]), size, np.array([[x, y]])).change(labels)
        labels[box.slices] = np.where(truth[box.slices] == truth[y, x], after, labels[box.slices])
    return labels


@pytest.fixture(scope="module")
def scene():
    image, truth = picture(0, (100, 130))
    places = [(10, 10), (120, 12), (65, 28), (15, 88), (45, 50), (86, 50), (65, 72), (118, 90)]
    return features_of(image), truth, painted(truth, places)


@pytest.fixture(scope="module")
def learned(scene):
    features, _, labels = scene
    material = [collect(features, labels, 1)]
    return Learner().refine(Rows.of(material), material, QUICK, lambda: False)


def test_the_field_learns_from_a_few_strokes(scene, learned):
    features, truth, labels = scene
    field, held_out = learned
    beliefs = field.beliefs(features, Box(0, 0, 130, 100), labels)
    assert (beliefs.field.argmax(axis=2) == truth).mean() > 0.95
    assert (beliefs.field.argmax(axis=2) == truth).mean() >= (beliefs.classifier.argmax(axis=2) == truth).mean()
    assert held_out is not None and 0 <= held_out.error < 0.2 and held_out.groups == 8
    np.testing.assert_allclose(beliefs.field.sum(axis=2), 1, atol=1e-5)
    known = labels != HIDDEN
    assert (beliefs.field.argmax(axis=2)[known] == labels[known]).all()


def test_a_part_of_an_image_gives_the_numbers_of_the_whole(learned, monkeypatch):
    """Truncated inference sees 2 n + 1 pixels far."""
    monkeypatch.setattr(field_module, "SIDE", 48)
    image, truth = picture(3, (140, 151))
    features = features_of(image)
    labels = painted(truth, [(60, 70), (20, 30), (150, 130)], 21.0)
    field = learned[0]
    whole = field.potentials(field.scores(features.pixels), features.across, features.down)
    observed = np.where(labels == HIDDEN, -1, labels.astype(np.int64)).reshape(-1)
    expected = bf.infer(whole, "tree_reweighted(n_iter=5)", observed=observed, dtype="float32").unary.reshape(140, 151, 2)
    found = np.empty_like(expected)
    for box in chain(*in_order(Box(21, 43, 99, 37), (140, 151))):
        found[box.slices] = field.beliefs(features, box, labels).field
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_pieces_cover_a_box_once_and_windows_have_one_size():
    for shape in ((512, 512), (513, 1025), (2048, 2048), (3, 7), (1, 1)):
        count = np.zeros(shape, int)
        for box in chain(*in_order(Box(1, 0, shape[1] // 2, max(1, shape[0] // 3)), shape)):
            count[box.slices] += 1
        assert (count == 1).all()
    windows = [window(box, (2048, 2048)) for box in pieces(Box(0, 0, 2048, 2048))]
    assert len({(each.width, each.height) for each in windows}) == 1
    assert all(each.x % 2 == 0 and each.y % 2 == 0 for each in windows)


def test_the_gradient_of_the_fields_numbers_is_that_of_differences(scene):
    features, _, labels = scene
    material = [collect(features, labels, 1)]
    rows, learner = Rows.of(material), Learner()
    field = learner.classify(rows)
    without = [field for _ in range(FOLDS)]
    mosaic = Mosaic.of(rows, material, without, 100)
    at = np.array([0.6, 0.9, 0.3])
    _, gradient = mosaic.loss(field, at)
    for k in range(3):
        step = np.zeros(3)
        step[k] = 1e-2
        slope = (mosaic.loss(field, at + step)[0] - mosaic.loss(field, at - step)[0]) / 2e-2
        assert abs(slope - gradient[k]) < 2e-3 + 0.02 * abs(slope)


def test_left_out_groups_are_not_learned_from(scene):
    features, _, labels = scene
    rows = Rows.of([collect(features, labels, 1)])
    assert rows.can_fold and len(rows.folds) == 8
    for fold in range(FOLDS):
        assert not np.isin(rows.groups[rows.without(fold)], np.flatnonzero(rows.folds == fold)).any()
        assert set(rows.labels[rows.without(fold)]) == {0, 1}


def test_a_stroke_stops_the_fit(scene):
    features, _, labels = scene
    material = [collect(features, labels, 1)]
    learner = Learner()
    with pytest.raises(Stopped):
        learner.refine(Rows.of(material), material, QUICK, lambda: True)


def test_the_model_file_is_the_field(scene, learned, tmp_path):
    features, _, labels = scene
    field = learned[0]
    field.estimator(3).save(tmp_path / "model.bf")
    crf = bf.load(tmp_path / "model.bf")
    sample = bf.GridSample(features.pixels, features.across[..., None], features.down[..., None])
    p = crf.predict_proba([sample])[0]
    hidden = np.full(labels.shape, HIDDEN, np.uint8)
    mine = field.beliefs(features, Box(0, 0, 130, 100), hidden).field
    np.testing.assert_allclose(p[..., :2], mine, atol=2e-5)
    assert p[..., 2].max() < 1e-6  # a label that nobody has painted
    back = Field.of(crf, 3)
    np.testing.assert_allclose(back.beliefs(features, Box(0, 0, 130, 100), hidden).field, mine, atol=2e-5)
    assert back.known.tolist() == [0, 1]


def test_other_models_are_refused():
    image = np.zeros((4, 4, 3))
    other = bf.GridCRF(learner="lbfgs(max_iter=1)").fit([image], [np.eye(4, dtype=int)])
    with pytest.raises(InputError, match="exported"):
        Field.of(other, 2)


def test_a_prior_model_is_kept_where_nothing_is_painted(scene, learned):
    features, truth, _ = scene
    rows = Rows.of([collect(features, painted(truth, [(10, 10), (65, 50)]), 1)])
    prior = learned[0]
    alone, helped = (np.abs(Learner(each).classify(rows).weights - prior.weights).max() for each in (None, prior))
    assert helped < 0.7 * alone


def test_labels_that_are_not_painted_are_left_out():
    image, truth = picture(1)
    labels = painted(truth, [(10, 10), (48, 36)])
    labels[labels == 1] = 5
    rows = Rows.of([collect(features_of(image), labels, 1)])
    assert rows.known.tolist() == [0, 5]
    beliefs = Learner().classify(rows).beliefs(features_of(image), Box(0, 0, 90, 72), labels)
    assert set(np.unique(quantised(beliefs, rows.known)[0])) == {0, 5}


def test_three_labels(tmp_path):
    image, truth = picture(2)
    image[:, :20], truth[:, :20] = [250, 20, 20], 2
    labels = painted(truth, [(5, 10), (8, 60), (30, 8), (80, 60), (52, 48), (50, 22)])
    material = [collect(features_of(image), labels, 1)]
    field, held_out = Learner().refine(Rows.of(material), material, QUICK, lambda: False)
    beliefs = field.beliefs(features_of(image), Box(0, 0, 90, 72), labels)
    assert (beliefs.field.argmax(axis=2) == truth).mean() > 0.9
    assert quantised(beliefs, field.known).shape == (5, 72, 90) and held_out is not None


def test_pictures_tell_what_is_new():
    shown = Picture((10, 12))
    assert shown.since(0) is None
    p = np.full((10, 12, 2), 0.5, np.float32)
    from backfield.labelling.field import Beliefs

    shown.put(Box(0, 0, 12, 10), Beliefs(p, p), np.array([0, 1]))
    shown.put(Box(2, 3, 4, 5), Beliefs(p[3:8, 2:6], p[3:8, 2:6]), np.array([0, 1]))
    assert shown.since(1).box == Box(2, 3, 4, 5) and shown.since(0).box == Box(0, 0, 12, 10)
    assert shown.since(2) is None and shown.since(99).box == Box(0, 0, 12, 10)
    shown.clear()
    assert (shown.since(2).planes[0] == HIDDEN).all()


def test_entropy_of_two_and_three_labels():
    p = np.array([[[0.5, 0.5], [1.0, 0.0], [0.9, 0.1]]])
    assert np.abs(entropy(p).astype(int) - np.rint([[255, 0, 255 * 0.469]])).max() <= 3
    q = np.array([[[1 / 3, 1 / 3, 1 / 3], [1.0, 0, 0]]])
    assert entropy(q).tolist() == [[255, 0]]


def test_uncertain_places_are_asked_for():
    rng = np.random.default_rng(0)
    uncertain = np.zeros((60, 80), np.uint8)
    uncertain[30:45, 50:65] = 255
    uncertain[5, 5] = 255  # one pixel is noise
    labels = np.full((60, 80), HIDDEN, np.uint8)
    places = [uncertain_place(uncertain, labels, rng) for _ in range(40)]
    assert all(44 <= place.x < 71 and 24 <= place.y < 51 and place.entropy > 0 for place in places)
    assert len({place[:2] for place in places}) > 20  # not one and the same
    labels[20:55, 40:75] = 0
    away = uncertain_place(uncertain, labels, rng)
    assert not (40 <= away.x < 75 and 20 <= away.y < 55)
    assert 0 <= uncertain_place(np.zeros((3, 2), np.uint8), labels[:3, :2], rng).x < 2
    counts = np.bincount([choose_image({0: places[0], 3: places[0]._replace(weight=0.0)}, rng) for _ in range(20)])
    assert counts.tolist() == [20]


def test_the_ridge_falls_with_the_painted_cells(scene):
    """Pixels of one cell count as one observation: the more cells, the larger weights may be."""
    features, truth, labels = scene
    few, many = (Rows.of([collect(features, each, 1)]) for each in (labels, truth.astype(np.uint8)))
    assert few.n_cells >= 8 and many.n_cells == len(
        np.unique([(y // 32, x // 32, v) for (y, x), v in np.ndenumerate(truth)], axis=0)
    )
    same = replace(few, n_cells=100 * FEW_CELLS)
    assert np.abs(Learner().classify(same).weights).max() > 1.5 * np.abs(Learner().classify(few).weights).max()


def test_looking_elsewhere_is_no_update(folder):
    """The seconds are those from a stroke to its picture."""
    session = Session(folder, ["ground", "disc"])
    thinker = Thinker(session)
    try:
        for stroke in (GROUND, DISC):
            thinker.changed(0, session.paint(0, stroke).box, None)
        assert thinker.wait()
        before = thinker.status()
        thinker.look(1, None)
        assert thinker.wait() and thinker.news(1, 0) is not None
        assert thinker.status()["seconds"] == before["seconds"] and thinker.status()["changed"] == before["changed"]
    finally:
        thinker.close()
        session.close()


@pytest.mark.parametrize("n_labels", [2, 3])
def test_practice_fits_the_field_too(n_labels, monkeypatch):
    """With fewer dots nothing would be left out, and the slowest kernels not be compiled."""
    found = []
    monkeypatch.setattr(Mosaic, "held_out", lambda self, field: found.append(np.unique(self.labels).tolist()))
    practise(n_labels, lambda: False)
    assert found == [list(range(-1, n_labels))]


def test_advice_ends_when_nothing_changes():
    assert "two labels" in advice(1, 1, None, None, [])
    assert "keep going" in advice(20, 2, 0.1, 0.01, [0.1, 0.05])
    assert "export" in advice(20, 2, 0.1, 0.01, [0.001, 0.002, 0.001])
