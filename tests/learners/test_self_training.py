"""Hidden labels filled in: two stages, soft and hard targets, boxes, and what is refused."""

import numpy as np
import pytest

import backfield as bf
from backfield.features import box_labels, box_of
from backfield.learners import SelfTraining
from tests.learners.problems import same_trace

SGD = 'sgd(epochs=20, schedule="lambda", average=True, projection="supermodular")'


def horses(n, seed=0, size=10):
    """Images with one bright rectangle, and their masks."""
    rng = np.random.default_rng(seed)
    masks = []
    for _ in range(n):
        mask = np.zeros((size, size), dtype=int)
        top, left = rng.integers(0, size // 2, 2)
        mask[top : top + size // 2, left : left + size // 2] = 1
        masks.append(mask)
    return [mask[:, :, None] + 0.5 * rng.normal(size=(size, size, 1)) for mask in masks], masks


def grid(loss, learner, **options):
    return bf.GridCRF(
        loss=loss, learner=learner, l2=0.005, start="zero", decoder="map", dtype="float64", n_labels=2, **options
    )


@pytest.mark.parametrize(
    ("loss", "inner"),
    [
        ("marginal_perturb_and_map", SGD),
        ("perturb_and_map", SGD),
        ("max_margin", 'frank_wolfe(epochs=30, projection="supermodular")'),
        ("max_margin", SGD),
    ],
)
def test_boxes_and_unlabelled_images(loss, inner):
    X, masks = horses(6)
    labels = [masks[0], masks[1]]
    labels += [box_labels(mask.shape, [box_of(mask)]) for mask in masks[2:4]]
    labels += [np.full(mask.shape, -1) for mask in masks[4:]]
    model = grid(loss, f"self_training(learner='{inner}', kappa=0.5, n_samples=20)").fit(X, labels)
    how = "soft" if loss.startswith("marginal") else "hard"
    assert f"filled in 4 of 6 examples with {how} targets" in model.message_
    assert {row["stage"] for row in model.trace_} == {1, 2}
    assert [row["iteration"] for row in model.trace_] == list(range(1, len(model.trace_) + 1))
    test, truth = horses(4, seed=9)
    assert model.score(test, truth) > 0.85
    again = bf.GridCRF(**{**model.get_params(deep=False), "n_jobs": 3}).fit(X, labels)
    assert np.array_equal(model.weights_, again.weights_)


@pytest.mark.parametrize("l2", [0.05, {"unary": 0.05, "pairwise": 0.2}])
def test_the_second_fit_minimises_equation_7(l2):
    X, masks = horses(4, size=6)
    hidden = [np.full(mask.shape, -1) for mask in masks[2:]]
    options = {"l2": l2, "n_labels": 2, "start": "zero", "dtype": "float64"}
    first = bf.GridCRF(loss="pseudolikelihood", learner="lbfgs(tol=1e-10)", **options).fit(X[:2], masks[:2])
    learner = 'self_training(learner="lbfgs(tol=1e-10)", kappa={})'
    small = bf.GridCRF(loss="pseudolikelihood", learner=learner.format(1e-9), **options).fit(X, [*masks[:2], *hidden])
    np.testing.assert_allclose(small.weights_, first.weights_, atol=1e-6)
    filled = bf.GridCRF(loss="pseudolikelihood", learner=learner.format(1.0), **options).fit(X, [*masks[:2], *hidden])
    # twice as many variables of the same size: the mean over all, with half of the ridge
    labels = [*masks[:2], *first.set_params(decoder="map").predict(X[2:])]
    halved = {key: value / 2 for key, value in l2.items()} if isinstance(l2, dict) else l2 / 2
    whole = bf.GridCRF(loss="pseudolikelihood", learner="lbfgs(tol=1e-10)", **{**options, "l2": halved}).fit(X, labels)
    np.testing.assert_allclose(filled.weights_, whole.weights_, atol=1e-6)


def test_complete_labels_need_one_stage_only():
    X, masks = horses(3)
    plain = grid("max_margin", SGD).fit(X, masks)
    filled = grid("max_margin", f"self_training(learner='{SGD}')").fit(X, masks)
    assert np.array_equal(plain.weights_, filled.weights_)


def test_the_second_fit_may_have_a_learner_of_its_own():
    X, masks = horses(4)
    hidden = [np.full(mask.shape, -1) for mask in masks[2:]]
    alone = grid("max_margin", SGD).fit(X[:2], masks[:2])
    learner = f"self_training(learner='{SGD}', second='sgd(epochs={{}})')"
    kept, moved = (grid("max_margin", learner.format(epochs)).fit(X, [*masks[:2], *hidden]) for epochs in (0, 1))
    assert np.array_equal(kept.weights_, alone.weights_) and not np.array_equal(moved.weights_, alone.weights_)
    with pytest.raises(bf.InputError, match="takes a learner of weights"):
        SelfTraining(second="oracle_descent")


def test_a_resumed_fit_is_the_same_fit(tmp_path):
    X, masks = horses(4)
    labels = [masks[0], masks[1], *(np.full(mask.shape, -1) for mask in masks[2:])]
    learner = f"self_training(learner='{SGD}', n_samples=5)"
    whole = grid("marginal_perturb_and_map", learner).fit(X, labels)
    for stop in (5, 25):  # in the first stage and in the second
        kept = tmp_path / f"kept{stop}"
        stopped = [lambda iteration, w, row, stop=stop: iteration == stop]
        grid("marginal_perturb_and_map", learner).fit(X, labels, checkpoint=kept, callbacks=stopped)
        resumed = grid("marginal_perturb_and_map", learner).fit(X, labels, checkpoint=kept, resume=True)
        assert np.array_equal(whole.weights_, resumed.weights_)
        assert same_trace(whole.trace_, resumed.trace_)


def test_balanced_weights_follow_what_was_filled_in():
    X, masks = horses(4)
    labels = [masks[0], masks[1], *(np.full(mask.shape, -1) for mask in masks[2:])]
    learner = f"self_training(learner='{SGD}', n_samples=20)"
    even = grid("marginal_perturb_and_map", learner).fit(X, labels)
    dear = grid("marginal_perturb_and_map", learner, class_weight="balanced").fit(X, labels)
    share = [np.mean([image.mean() for image in model.predict(X)]) for model in (even, dear)]
    assert share[1] > share[0]  # the foreground is smaller, so that its pixels count more


def test_sets_become_soft_targets_inside_the_sets():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 3)) for _ in range(6)]
    Y = [x.argmax(axis=1) for x in X]
    allowed = np.eye(3, dtype=bool)[Y[5]]
    allowed[np.arange(5), (Y[5] + 1) % 3] = True
    masks = [np.eye(3, dtype=bool)[y] for y in Y[:5]] + [allowed]
    learner = "self_training(learner='sgd(epochs=5, schedule=\"lambda\", average=True)', n_samples=20)"
    model = bf.ChainCRF(loss="perturb_and_map", learner=learner, l2=0.02, decoder="map").fit(X, masks)
    assert model.score(X, Y) > 0.8


def test_refusals():
    with pytest.raises(bf.InputError, match="kappa must be"):
        SelfTraining(kappa=0.0)
    with pytest.raises(bf.InputError, match="targets must be"):
        SelfTraining(targets="x")
    with pytest.raises(bf.InputError, match="a learner of weights"):
        SelfTraining(learner="oracle_descent")
    X, masks = horses(2)
    with pytest.raises(bf.InputError, match="takes labels, not probabilities"):
        grid("max_margin", "self_training(targets='soft')").fit(X, masks)
    hidden = [box_labels(mask.shape, [box_of(mask)]) for mask in masks]
    with pytest.raises(bf.InputError, match="at least one example with all labels"):
        grid("marginal_perturb_and_map", "self_training").fit(X, hidden)


def test_box_labels():
    labels = box_labels((4, 5), [(1, 1, 3, 4)])
    assert (labels[1:3, 1:4] == -1).all() and (labels == 0).sum() == 20 - 6
    assert (box_labels((4, 5), []) == 0).all()
    regions = np.repeat([[0, 0, 1, 1, 1]], 4, axis=0)
    assert box_labels((4, 5), [(0, 1, 4, 3)], regions).tolist() == [-1, 0]
    assert box_of(np.eye(5, dtype=bool)[1:4]) == (0, 1, 3, 4)
    for wrong in ([(0, 0, 5, 2)], [(-1, 0, 2, 2)], [(2, 0, 2, 2)], [(0, 3, 2, 6)]):
        with pytest.raises(bf.InputError, match=r"box 0 is .* inside the image of 4 x 5 pixels"):
            box_labels((4, 5), wrong)
    with pytest.raises(bf.InputError, match="rows of integers"):
        box_labels((4, 5), [(0, 0, 2)])
    with pytest.raises(bf.InputError, match="rows of integers"):
        box_labels((4, 5), [(0.5, 0, 2, 2)])
    with pytest.raises(bf.InputError, match="mask is empty"):
        box_of(np.zeros((2, 2)))
