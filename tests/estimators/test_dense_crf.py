"""DenseCRF: fits, gradients in the weights, forms of data, files, and what keeps it from being worse than its unary."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import backfield as bf
from backfield.errors import InputError
from backfield.estimators._guard import STRENGTHS, Guard, count_wrong

SMALL = {"inference": "mean_field(n_iter=3)", "learner": "lbfgs(max_iter=8)"}


def pictures(count, seed=0, height=10, width=12, noise=1.5):
    """Return pairs of an image of a disc and its class probabilities, and masks."""
    rng = np.random.default_rng(seed)
    X, Y = [], []
    for _ in range(count):
        y, x = np.mgrid[:height, :width]
        mask = (
            (y - height * rng.uniform(0.3, 0.7)) ** 2 + (x - width * rng.uniform(0.3, 0.7)) ** 2
            < height * rng.uniform(0.6, 1.4)
        ).astype(int)
        image = np.stack([80 + 90 * mask, 120 - 40 * mask, 100 + 0 * mask], axis=-1) + rng.normal(0, 12, (height, width, 3))
        p = 1 / (1 + np.exp(-(2 * mask - 1) * 0.8 + rng.normal(0, noise, mask.shape)))
        X.append((image.astype(np.float32), np.stack([1 - p, p], axis=-1).astype(np.float32)))
        Y.append(mask)
    return X, Y


@pytest.fixture(scope="module")
def fitted():
    X, Y = pictures(6)
    return bf.DenseCRF(unary="given", **SMALL).fit(X, Y)


def test_better_than_given_probabilities(fitted):
    X, Y = pictures(4, seed=1)
    alone = np.mean([(p.argmax(axis=-1) == mask).mean() for (_, p), mask in zip(X, Y, strict=True)])
    assert alone < 0.8
    assert fitted.score(X, Y) > 0.95
    assert "held-out error" in fitted.message_
    assert fitted.predict(X)[0].shape == (10, 12)
    assert fitted.predict_proba(X)[0].shape == (10, 12, 2)


def test_what_was_learned_of_the_kernels(fitted):
    one, two = fitted.kernels_
    assert one["kernel"] == "position(scale=3)" and two["compatibility"].shape == (2, 2)
    assert np.array_equal(two["compatibility"], two["compatibility"].T)
    assert one["bandwidths"].shape == (1,) and two["bandwidths"].shape == (2,)
    assert not np.array_equal(two["bandwidths"], [60, 10])


def test_save_and_load(fitted, tmp_path):
    X, _ = pictures(2, seed=1)
    fitted.save(tmp_path / "model.bf")
    again = bf.load(tmp_path / "model.bf")
    assert isinstance(again, bf.DenseCRF)
    assert np.array_equal(again.predict_proba(X)[1], fitted.predict_proba(X)[1])
    fitted.save(tmp_path / "again.bf")
    assert (tmp_path / "again.bf").read_bytes() == (tmp_path / "model.bf").read_bytes()


@pytest.mark.parametrize("compatibility", ["full", "diagonal", "potts"])
def test_gradient_in_the_weights(compatibility):
    X, Y = pictures(2, height=5, width=6)
    crf = bf.DenseCRF(unary="given", compatibility=compatibility, dtype="float64", inference="mean_field(n_iter=3)")
    problem = crf.problem(X, Y)
    rng = np.random.default_rng(0)
    w = problem.task.layout.start()
    w += rng.normal(0, 0.3, len(w))
    gradient, step = problem.value_and_gradient(w).gradient, 1e-6
    for k in range(len(w)):
        e = step * (np.arange(len(w)) == k)
        slope = (problem.value_and_gradient(w + e).value - problem.value_and_gradient(w - e).value) / (2 * step)
        assert gradient[k] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_linear_images_volumes_and_points():
    X, Y = pictures(3)
    images = [image for image, _ in X]
    crf = bf.DenseCRF(**SMALL, learn_scales=False).fit(images, Y)
    assert crf.score(images, Y) > 0.9
    volumes, masks = [np.stack(images)], [np.stack(Y)]
    volume = bf.DenseCRF(**SMALL, kernels=["position(2)", "bilateral(5, 20)"]).fit(volumes, masks)
    assert volume.predict(volumes)[0].shape == (3, 10, 12)
    y, x = np.mgrid[:10, :12]
    points = [np.concatenate([np.stack([y, x, 0 * x], axis=-1), image], axis=-1).reshape(-1, 6) for image in images]
    kernels = ["position(3)", "bilateral(60, 10)", "features(20, channels=[3, 4])"]
    cloud = bf.DenseCRF(**SMALL, kernels=kernels).fit(points, [mask.reshape(-1) for mask in Y])
    assert cloud.predict(points)[0].shape == (120,)


def test_colours_within_one_are_of_255():
    X, Y = pictures(3)
    images = [image.clip(0, 255) for image, _ in X]
    scaled = [image / 255 for image in images]
    structure = bf.DenseCRF()._settings().structure
    one, two = (structure.sample(x).kernels[1].features for x in (images[0], scaled[0]))
    assert one == pytest.approx(two, abs=1e-3)


def test_on_a_classifier():
    X, Y = pictures(6)
    images = [image for image, _ in X]
    crf = bf.DenseCRF(unary=bf.Classifier(LogisticRegression(), cv=3), **SMALL).fit(images, Y)
    assert crf.score(images, Y) > 0.9


@pytest.mark.parametrize("loss", ["surrogate_likelihood", "univariate_quadratic", "smoothed_error"])
def test_losses(loss):
    X, Y = pictures(2)
    crf = bf.DenseCRF(unary="given", loss=loss, gradient="truncated", **SMALL).fit(X, Y)
    alone = np.mean([(p.argmax(axis=-1) == mask).mean() for (_, p), mask in zip(X, Y, strict=True)])
    assert crf.score(X, Y) > alone - 0.01


def test_sgd_and_hidden_labels():
    X, Y = pictures(5)
    Y = [np.where(np.arange(12) < 3, -1, mask) for mask in Y]
    crf = bf.DenseCRF(unary="given", inference="mean_field(n_iter=2)", learner="sgd(epochs=2)").fit(X, Y)
    assert np.isfinite(crf.weights_).all()


def test_threads_change_nothing(fitted):
    X, Y = pictures(6)
    other = bf.DenseCRF(unary="given", n_jobs=2, **SMALL).fit(X, Y)
    assert np.array_equal(other.weights_, fitted.weights_)


def test_clone_and_parameters():
    crf = bf.DenseCRF(kernels=["position(2)"], learn_scales=False)
    assert clone(crf).kernels == ["position(2)"]
    assert crf.set_params(kernels=["bilateral(5, 5)"])._settings().structure.kernels == ("bilateral(5, 5)",)


def test_probabilities_of_classes_that_do_not_occur():
    X, Y = pictures(3, height=6, width=7)
    wide = [(image, np.concatenate([0.5 * p[..., :1], 0.5 * p[..., :1], p[..., 1:]], axis=-1)) for image, p in X]
    crf = bf.DenseCRF(unary="given", **SMALL).fit(wide, [2 * mask for mask in Y])
    assert crf.classes_.tolist() == [0, 1, 2]
    assert crf.predict_proba(wide)[0].shape == (6, 7, 3)
    joined = [np.concatenate([image, p], axis=-1) for image, p in X]
    other = bf.DenseCRF(unary="given", n_labels=2, **SMALL).fit(joined, Y)
    assert np.array_equal(other.weights_, bf.DenseCRF(unary="given", **SMALL).fit(X, Y).weights_)


# The guard


def test_kernels_that_hurt_are_switched_off():
    # Labels are noise around each pixel: neighbours say nothing, and repelling ones are learned at best.
    rng = np.random.default_rng(0)
    Y = [rng.integers(0, 2, (8, 9)) for _ in range(6)]
    X = [(np.zeros((8, 9, 3)), np.eye(2)[mask] * 0.8 + 0.1) for mask in Y]
    crf = bf.DenseCRF(unary="given", kernels=["position(3, weight=40)"], inference="mean_field(n_iter=3)",
                      learner="lbfgs(max_iter=1)").fit(X, Y)  # fmt: skip
    assert crf.score(X, Y) == 1.0


def test_guard_takes_the_unary_terms_alone():
    X, Y = pictures(2, height=5, width=6)
    problem = bf.DenseCRF(unary="given", inference="mean_field(n_iter=2)").problem(X, Y)
    layout = problem.task.layout
    w = layout.start()
    w[0] = 1.0
    guard = Guard(problem, layout, layout.uncoupled(w))
    guard.errors = (0.3, 0.2)
    kept, found = guard.choose(w)
    assert np.array_equal(kept, layout.uncoupled(w)) and "kernels are off" in found
    guard.errors = (0.2, 0.3)
    assert np.array_equal(guard.choose(w)[0], w)
    assert "held-out error 20.00 % with kernels, 30.00 % without" in guard.choose(w)[1]


@pytest.mark.parametrize("start", ["zero", "random", "warm"])
def test_guard_knows_the_unary_terms_whatever_the_start(start):
    # Kernels that hurt are switched off, and what is left are the given probabilities, not the weights of the start.
    rng = np.random.default_rng(0)
    Y = [rng.integers(0, 2, (8, 9)) for _ in range(6)]
    X = [(np.zeros((8, 9, 3)), np.eye(2)[mask] * 0.8 + 0.1) for mask in Y]
    crf = bf.DenseCRF(unary="given", kernels=["position(3, weight=40)"], inference="mean_field(n_iter=3)",
                      learner="lbfgs(max_iter=1)", learn_scales=False)  # fmt: skip
    crf.set_params(start=np.array([-1.0, 40.0]) if start == "warm" else start)
    assert crf.fit(X, Y).score(X, Y) == 1.0


def test_guard_may_make_kernels_stronger(fitted):
    X, Y = pictures(6)
    crf = bf.DenseCRF(unary="given", guard="labels", **SMALL).fit(X, Y)
    strength = crf.trace_[0]["held_out"]["kernels"]
    assert strength in STRENGTHS["labels"]
    for mine, learned in zip(crf.kernels_, fitted.kernels_, strict=True):
        assert mine["compatibility"] == pytest.approx(strength * learned["compatibility"])
    assert np.array_equal(crf.kernels_[1]["bandwidths"], fitted.kernels_[1]["bandwidths"])
    with pytest.raises(InputError, match="guard='labels' says how strongly kernels enter"):
        bf.GridCRF(guard="labels", inference="mean_field(n_iter=2)").fit([image for image, _ in X], Y)


def test_strongest_has_the_fewest_errors():
    # Two labels in large parts, and probabilities that are noise for single pixels: the stronger, the better.
    X, Y = pictures(6, noise=3.0)
    problem = bf.DenseCRF(unary="given", kernels=["position(2)"], inference="mean_field(n_iter=3)").problem(X, Y)
    layout = problem.task.layout
    w = np.array([1.0, 0.4, 0.0])
    guard = Guard(problem, layout, layout.uncoupled(w), strengths=(1.0, 2.0, 8.0), validation=problem)
    kept, found = guard.choose(w)
    errors = [sum(problem.collect(count_wrong, None, layout.strengthened(w, each))) for each in (1.0, 2.0, 8.0)]
    assert errors[0] > min(errors[1:]) and guard.strength == (1.0, 2.0, 8.0)[int(np.argmin(errors))]
    assert kept.tolist() == [1.0, 0.4 * guard.strength, 0.0] and "times as strong" in found


def test_guard_can_be_switched_off():
    X, Y = pictures(6)
    crf = bf.DenseCRF(unary="given", guard=False, **SMALL).fit(X, Y)
    assert "error" not in crf.message_
    assert crf.score(X, Y) > 0.95
    assert not np.array_equal(crf.kernels_[1]["bandwidths"], [60, 10])


# What is refused


@pytest.mark.parametrize("change", [np.log, lambda p: 100 * p, lambda p: (255 * p).astype(np.uint8)])
def test_scores_are_no_probabilities(change):
    X, Y = pictures(2, height=5, width=6)
    with pytest.raises(InputError, match="needs probabilities within 0 and 1, received numbers from"):
        bf.DenseCRF(unary="given", **SMALL).fit([(image, change(p)) for image, p in X], Y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kernels": []}, "kernels must list specs"),
        ({"kernels": ["position(0)"]}, "bandwidths must be positive numbers, received 0"),
        ({"kernels": ["bilateral(3, -1)"]}, "bandwidths must be positive numbers, received -1"),
        ({"kernels": ["bilateral(3, 1, channels=[7])"]}, r"needs features \[7\]; there are 3"),
        ({"kernels": ["spherical(3)"]}, "spherical"),
        ({"kernels": ["bilateral(3, 1, channels=5)"]}, "channels must list numbers of features"),
        ({"kernels": ["features(3, channels='ab')"]}, "channels must list numbers of features"),
        ({"kernels": ["features(3, channels=[])"]}, "channels must list numbers of features"),
        ({"learn_scales": "yes"}, "learn_scales must be True or False, received 'yes'"),
        ({"compatibility": "none"}, "compatibility must be one of"),
        ({"filter": "fast"}, "filter must be one of"),
        ({"inference": "loopy_bp"}, "through loopy_bp takes no kernel groups"),
        ({"loss": "pseudolikelihood"}, "pseudolikelihood takes no kernel groups"),
        ({"pairwise": "bogus"}, "bogus"),
        ({"unary": "given", "n_labels": 5}, "needs a probability for each of 5 labels; there are 3 features"),
    ],
)
def test_bad_parameters(params, message):
    X, Y = pictures(2, height=5, width=6)
    with pytest.raises(InputError, match=message):
        bf.DenseCRF(**params).fit([image for image, _ in X], Y)


def test_bad_examples():
    X, Y = pictures(1, height=5, width=6)
    image, p = X[0]
    bad = image.copy()
    bad[2, 3, 1] = np.nan
    for x, message in [
        (bad, "NaN or infinity"),
        ((image, p[:, :-1]), "probabilities must be numbers of shape"),
        (np.zeros(7), "must be numbers of shape"),
        (bf.GridSample(image, np.zeros((5, 5, 1)), np.zeros((4, 6, 1))), "no edge features"),
    ]:
        with pytest.raises(InputError, match=message):
            bf.DenseCRF().fit([x], Y)
