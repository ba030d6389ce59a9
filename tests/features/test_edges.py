import numpy as np
import pytest
from sklearn.base import clone

from backfield.errors import InputError
from backfield.features import EdgeFeatures


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return [rng.integers(256, size=shape, dtype=np.uint8) for shape in ((9, 12, 3), (7, 5, 3), (6, 6))]


@pytest.mark.parametrize(
    ("features", "d"),
    [
        (EdgeFeatures(), 21),
        (EdgeFeatures(("constant", "difference")), 11),
        (EdgeFeatures(("constant", "difference"), split_directions=True), 22),
        (EdgeFeatures(split_directions=True), 42),
        (EdgeFeatures(thresholds=None), 3),
        (EdgeFeatures(("constant",)), 1),
        (EdgeFeatures(("sobel",), thresholds=[0.1, 0.2, 0.5]), 3),
        (EdgeFeatures(spacing="quantile", thresholds=4), 9),
    ],
)
def test_shapes_and_names(features, d, images):
    found = clone(features).fit_transform(images)
    assert [h.shape for h, _ in found] == [(9, 11, d), (7, 4, d), (6, 5, d)]
    assert [v.shape for _, v in found] == [(8, 12, d), (6, 5, d), (5, 6, d)]
    assert all(part.dtype == np.float32 and np.isfinite(part).all() for pair in found for part in pair)
    assert len(features.fit(images).get_feature_names_out()) == d


def test_values_are_difference_and_sobel():
    image = np.zeros((6, 8))
    image[:, 4:] = 0.5
    horizontal, vertical = EdgeFeatures(thresholds=None).fit([image]).transform_one(image)
    expected = np.zeros((6, 7))
    expected[:, 3] = 0.5 * np.sqrt(3)
    np.testing.assert_allclose(horizontal[..., 1], expected, rtol=1e-6)
    assert (horizontal[..., 0] == 1).all() and (vertical[..., 0] == 1).all() and (vertical[..., 1] == 0).all()
    response = 0.5 * 4 / np.sqrt(32)  # at columns 3 and 4; an edge has the larger of its ends
    np.testing.assert_allclose(horizontal[2, :, 2], [0, 0, response, response, response, 0, 0], atol=1e-6)
    np.testing.assert_allclose(vertical[2, :, 2], [0, 0, 0, response, response, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize("spacing", ["linear", "quantile"])
def test_thresholds_increase_and_indicators_decrease(spacing, images):
    features = EdgeFeatures(spacing=spacing).fit(images)
    for cuts in features.thresholds_.values():
        assert len(cuts) == 10 and (np.diff(cuts) > 0).all() and cuts[0] > 0
    raw = EdgeFeatures(thresholds=None).transform(images)
    for found, values in zip(features.transform(images), raw, strict=True):
        for direction in (0, 1):
            indicators = found[direction]
            assert set(np.unique(indicators)) <= {0, 1}
            for start, kind in ((1, "difference"), (11, "sobel")):
                part = indicators[..., start : start + 10]
                assert (np.diff(part, axis=2) <= 0).all()
                assert np.array_equal(part, values[direction][..., [1 + start // 11]] > features.thresholds_[kind])


def test_quantiles_share_the_edges_out(images):
    found = EdgeFeatures(("difference",), thresholds=4, spacing="quantile").fit_transform(images[:1])[0]
    counts = np.concatenate([part.reshape(-1, 4) for part in found]).mean(axis=0)
    np.testing.assert_allclose(counts, [0.8, 0.6, 0.4, 0.2], atol=0.02)


def test_split_pads_with_zeros(images):
    base = EdgeFeatures().fit(images).transform_one(images[0])
    horizontal, vertical = EdgeFeatures(split_directions=True).fit(images).transform_one(images[0])
    assert np.array_equal(horizontal[..., :21], base[0]) and (horizontal[..., 21:] == 0).all()
    assert np.array_equal(vertical[..., 21:], base[1]) and (vertical[..., :21] == 0).all()


def test_flat_images_and_single_rows_are_legal():
    features = EdgeFeatures().fit([np.full((4, 5), 0.5)])
    assert all((cuts == 0).all() for cuts in features.thresholds_.values())
    horizontal, vertical = features.transform_one(np.full((1, 5), 0.5))
    assert horizontal.shape == (1, 4, 21) and vertical.shape == (0, 5, 21)
    assert horizontal[..., 1:].sum() == 0


def test_progress_and_lazy(images):
    seen = []
    features = EdgeFeatures().fit(images)
    found = features.transform(images, progress=lambda done, total: seen.append(done / total))
    assert seen[-1] == 1 and len(seen) == 3
    assert np.array_equal(features.lazy(images)[1][0], found[1][0])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"kinds": ("constant", "colour")}, "kinds"),
        ({"kinds": "constant"}, "kinds"),
        ({"kinds": ()}, "kinds"),
        ({"thresholds": 0}, "threshold"),
        ({"thresholds": [0.2, 0.1]}, "increasing"),
        ({"thresholds": []}, "increasing"),
        ({"thresholds": True}, "thresholds"),
        ({"spacing": "log"}, "spacing"),
    ],
)
def test_bad_parameters(parameters, words, images):
    with pytest.raises(InputError, match=words):
        EdgeFeatures(**parameters).fit(images)


def test_fit_comes_first(images):
    with pytest.raises(InputError, match="fit"):
        EdgeFeatures().transform(images)
    with pytest.raises(InputError, match="no images"):
        EdgeFeatures().fit([])
    with pytest.raises(InputError, match="no edges"):
        EdgeFeatures().fit([np.zeros((1, 1))])
