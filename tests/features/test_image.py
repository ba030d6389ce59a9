import math
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from backfield.errors import InputError
from backfield.features import (
    PixelFeatures,
    as_rgb,
    enlarge,
    histogram_of_gradients,
    sinusoidal_expansion,
    subsample,
)


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(256, size=(13, 17, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("features", "n"),
    [
        (PixelFeatures(), 100),
        (PixelFeatures.l13(), 42),
        (PixelFeatures(hog=False), 64),
        (PixelFeatures(cell=(4, 8)), 136),
        (PixelFeatures(expand=None, hog=False), 5),
    ],
)
def test_shape_type_and_names(features, n, image):
    found = features.fit_transform([image, image[:5, :7]])
    assert [part.shape for part in found] == [(13, 17, n), (5, 7, n)]
    assert all(part.dtype == np.float32 and np.isfinite(part).all() for part in found)
    assert len(set(features.get_feature_names_out())) == n
    assert np.array_equal(features.transform_one(image), found[0])
    assert np.array_equal(clone(features).transform_one(image), found[0])
    assert np.array_equal(pickle.loads(pickle.dumps(features)).transform_one(image), found[0])


def test_l13_is_constant_colour_position_hog(image):
    found = PixelFeatures.l13().transform_one(image)
    assert (found[..., 0] == 1).all()
    np.testing.assert_allclose(found[..., 1:4], image / 255, rtol=1e-6)
    np.testing.assert_allclose(found[:, 3, 4], np.arange(13) / 12, rtol=1e-6)
    np.testing.assert_allclose(found[3, :, 5], np.arange(17) / 16, rtol=1e-6)
    assert np.array_equal(found[..., 6:], histogram_of_gradients(as_rgb(image)))


def test_expansion_is_all_sums():
    s = np.random.default_rng(1).random((2, 3))
    found = sinusoidal_expansion(s, 2.0)
    assert found.shape == (2, 16)
    for c in range(8):
        angle = 2.0 * sum(s[:, k] for k in range(3) if c >> k & 1)
        np.testing.assert_allclose(found[:, c], np.sin(angle) + 0 * s[:, 0], atol=1e-12)
        np.testing.assert_allclose(found[:, 8 + c], np.cos(angle) + 0 * s[:, 0], atol=1e-12)


def test_names_follow_the_expansion(image):
    features = PixelFeatures(hog=False, scale=1.0)
    names = list(features.get_feature_names_out())
    found = features.transform_one(image)
    angle = image[..., 0] / 255 + np.arange(17) / 16
    np.testing.assert_allclose(found[..., names.index("sin(red+horizontal)")], np.sin(angle), atol=1e-6)
    np.testing.assert_allclose(found[..., names.index("cos(red+horizontal)")], np.cos(angle), atol=1e-6)


def test_hog_blocks_have_length_one_or_zero(image):
    found = histogram_of_gradients(as_rgb(image))
    assert found.min() >= 0
    np.testing.assert_allclose(np.linalg.norm(found, axis=2), 1, rtol=1e-4)
    assert (histogram_of_gradients(np.full((5, 6, 3), 0.3, dtype=np.float32)) == 0).all()
    assert (histogram_of_gradients(np.ones((1, 1, 3), dtype=np.float32)) == 0).all()


def test_hog_sees_direction_and_place():
    edge = np.zeros((40, 40, 3), dtype=np.float32)
    edge[:, 20:] = 1  # gradient to the right, angle 0, half in the first and half in the last bin
    found = histogram_of_gradients(edge)[20].reshape(40, 2, 2, 9)
    assert set(np.flatnonzero(found[16].sum(axis=(0, 1)) > 1e-6)) == {0, 8}
    assert found[16, :, 0].sum() == 0 and found[16, :, 1].sum() > 0  # 16: the edge lies in the right cells
    assert found[24, :, 0].sum() > 0 and found[24, :, 1].sum() == 0
    assert found[5].sum() == 0


def test_hog_matches_a_loop(image):
    rgb, cell = as_rgb(image), 3
    votes = np.zeros((13 + 2 * cell, 17 + 2 * cell, 9))
    for r in range(13):
        for c in range(17):
            down = rgb[r + 1, c] - rgb[r - 1, c] if 0 < r < 12 else np.zeros(3)
            right = rgb[r, c + 1] - rgb[r, c - 1] if 0 < c < 16 else np.zeros(3)
            k = np.argmax(down**2 + right**2)
            at = math.atan2(down[k], right[k]) / math.pi * 9 - 0.5
            for b, share in ((math.floor(at), 1 - at % 1), (math.floor(at) + 1, at % 1)):
                votes[r + cell, c + cell, b % 9] += share * math.hypot(down[k], right[k])
    r, c = 6, 11
    cells = [votes[r + dr : r + dr + cell, c + dc : c + dc + cell].mean(axis=(0, 1)) for dr in (0, cell) for dc in (0, cell)]
    block = np.concatenate(cells)
    block = np.minimum(block / np.linalg.norm(block), 0.2)
    expected = block / np.linalg.norm(block)
    np.testing.assert_allclose(histogram_of_gradients(rgb, cell)[r, c], expected, atol=2e-5)


def test_stride_takes_the_same_pixels(image):
    full = PixelFeatures().transform_one(image)
    assert np.array_equal(PixelFeatures(stride=5).transform_one(image), subsample(full, 5))
    assert subsample(full, 5).shape == (3, 3, 100)
    assert subsample(np.zeros((2, 20)), 7).shape == (1, 3)


def test_enlarge_interpolates():
    rows, columns = np.mgrid[:23, :31]
    plane = 2.0 * rows - columns
    found = enlarge(subsample(plane, 5), (23, 31), 5)
    assert found.shape == (23, 31)
    np.testing.assert_allclose(found[2:-2, 2:-3], plane[2:-2, 2:-3], atol=1e-12)  # linear between kept pixels
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), size=(5, 6)).astype(np.float32)
    larger = enlarge(probabilities, (25, 30), 5)
    assert larger.dtype == np.float32
    np.testing.assert_allclose(larger.sum(axis=2), 1, rtol=1e-5)
    assert np.array_equal(enlarge(plane, (23, 31), 1), plane)
    with pytest.raises(InputError, match=r"have shape \(5, 6\), received \(4, 6\)"):
        enlarge(probabilities[:4], (25, 30), 5)


def test_images_of_all_kinds_agree(image):
    grey = image[..., 0]
    colour = np.repeat(grey[..., None], 3, axis=2)
    expected = as_rgb(colour)
    transparent = np.concatenate([colour, colour[..., :1]], axis=2)
    for same in (grey, grey[..., None], transparent, grey / 255, grey.astype(np.uint16) * 257):
        np.testing.assert_allclose(as_rgb(same), expected, atol=1e-7)
    assert as_rgb(grey > 100).max() == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.full((3, 3), 2.0), r"\[0, 1\]"),
        (np.full((3, 3), np.nan), "nan"),
        (np.zeros((3, 3, 2)), "shape"),
        (np.zeros((0, 3)), "shape"),
        (np.zeros((3, 3), dtype=np.int64), "int64"),
        (np.array([["a"]]), "dtype"),
    ],
)
def test_bad_images(bad, words, image):
    with pytest.raises(InputError, match=words):
        as_rgb(bad)
    with pytest.raises(InputError, match="image 1: "):
        PixelFeatures().transform([image, bad])


@pytest.mark.parametrize(
    "parameters",
    [{"expand": "cubic"}, {"scale": math.inf}, {"cell": 0}, {"cell": []}, {"stride": 0}, {"stride": 1.5}],
)
def test_bad_parameters(parameters, image):
    with pytest.raises(InputError):
        PixelFeatures(**parameters).transform_one(image)


def test_one_image_is_not_a_list(image):
    with pytest.raises(InputError, match="list of images"):
        PixelFeatures().transform(image)
    with pytest.raises(InputError, match="list of images"):
        PixelFeatures().transform(iter([image]))


def test_pipeline_progress_and_lazy(image):
    seen = []
    features = PixelFeatures.l13()
    found = features.transform([image] * 3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    lazy = features.lazy([image] * 3)
    assert len(lazy) == 3 and len(lazy[1:]) == 2
    assert np.array_equal(lazy[-1], found[2]) and len(list(lazy)) == 3
    pipeline = make_pipeline(features, FunctionTransformer(len))
    assert pipeline.fit_transform([image] * 3) == 3
