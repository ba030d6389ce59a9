import numpy as np
import pytest
from scipy.ndimage import label

from backfield import Graph
from backfield.errors import InputError
from backfield.features import majority_labels, paint, region_edges, region_features, superpixels
from backfield.features.superpixels import EDGE_FEATURES, REGION_FEATURES


@pytest.fixture(scope="module")
def image():
    rng = np.random.default_rng(0)
    picture = np.zeros((40, 50, 3))
    picture[:, 25:] = [0.8, 0.2, 0.4]
    picture[10:20, 5:20] = [0.1, 0.9, 0.3]
    return np.clip(picture + 0.02 * rng.standard_normal(picture.shape), 0, 1)


@pytest.fixture(scope="module")
def regions(image):
    pytest.importorskip("skimage")
    return superpixels(image, 30)


def test_regions_are_connected_and_numbered(image, regions):
    assert regions.shape == (40, 50) and regions.dtype == np.int64
    n = regions.max() + 1
    assert 10 <= n <= 60 and np.array_equal(np.unique(regions), np.arange(n))
    assert all(label(regions == k)[1] == 1 for k in range(n))
    assert np.array_equal(superpixels(image, 30), regions)
    assert superpixels(image[..., 0], 30).shape == (40, 50)
    assert superpixels(np.zeros((3, 2), dtype=np.uint8), 4).max() >= 0


def test_features_of_regions(image, regions):
    found = region_features(image, regions)
    n = regions.max() + 1
    assert found.shape == (n, len(REGION_FEATURES)) == (n, 47)
    assert found.dtype == np.float32 and np.isfinite(found).all()
    inside = regions == 7
    np.testing.assert_allclose(found[7, :3], image[inside].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found[7, 3:6], image[inside].std(axis=0), rtol=1e-4)
    np.testing.assert_allclose(found[7, 6], np.nonzero(inside)[0].mean() / 39, rtol=1e-5)
    np.testing.assert_allclose(found[:, REGION_FEATURES.index("size")].mean(), 1, rtol=1e-6)


def test_edges_are_those_of_the_graph(image, regions):
    edges, found = region_edges(image, regions)
    assert np.array_equal(edges, Graph.from_regions(regions).factors)
    assert found.shape == (len(edges), len(EDGE_FEATURES)) and found.dtype == np.float32
    assert np.isfinite(found).all() and (found >= 0).all() and (found[:, :2] <= 1).all()


def test_features_of_a_border():
    picture = np.zeros((4, 6, 3))
    picture[:, 2:] = 0.5
    regions = np.zeros((4, 6), dtype=np.int64)
    regions[:, 2:] = 1
    regions[2:, 4:] = 2
    edges, found = region_edges(picture, regions)
    assert edges.tolist() == [[0, 1], [1, 2]]
    np.testing.assert_allclose(found[:, 0], 1)
    np.testing.assert_allclose(found[:, 1], [4 / 4, 4 / 4])  # both are the whole border of regions 0 and 2
    np.testing.assert_allclose(found[:, 2:4], [[0.5 * np.sqrt(3)] * 2, [0, 0]], rtol=1e-6)
    assert found[0, 4] > 0 and found[1, 4] < found[0, 4]


def test_one_region_has_no_edges():
    edges, found = region_edges(np.zeros((3, 4)), np.zeros((3, 4), dtype=int))
    assert edges.shape == (0, 2) and found.shape == (0, 5)


def test_paint_and_majority():
    regions = np.array([[0, 0, 1], [2, 2, 1]])
    assert paint([5, 6, 7], regions).tolist() == [[5, 5, 6], [7, 7, 6]]
    assert paint(np.eye(3)[:, :2], regions).shape == (2, 3, 2)
    assert majority_labels([[2, 2, 255], [0, 1, -1]], regions).tolist() == [2, -1, 0]
    assert majority_labels(np.array([[3, 255, 255], [255, 255, 4]], dtype=np.uint8), regions).tolist() == [3, 4, -1]
    assert majority_labels(np.full((2, 3), -1), regions).tolist() == [-1, -1, -1]


def test_there_and_back(image, regions):
    labels = np.arange(regions.max() + 1) % 4
    assert np.array_equal(majority_labels(paint(labels, regions), regions), labels)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: superpixels(np.zeros((4, 4)), 0), "n_segments"),
        (lambda: superpixels(np.zeros((4, 4)), 4, compactness=0), "compactness"),
        (lambda: paint([1, 2], np.array([[0, 1, 2]])), "3 regions"),
        (lambda: paint([1, 2], np.array([[1, 2]])), "0 .. n-1"),
        (lambda: paint([1, 2], np.array([[0.0, 1.0]])), "integers"),
        (lambda: majority_labels(np.zeros((2, 2), int), np.zeros((2, 3), int)), "shape"),
        (lambda: majority_labels(np.zeros((2, 3)), np.zeros((2, 3), int)), "integers"),
        (lambda: majority_labels(np.full((2, 3), -2), np.zeros((2, 3), int)), "-2"),
        (lambda: region_features(np.zeros((2, 2)), np.zeros((2, 3), int)), "image"),
        (lambda: paint([1], np.array([[10**12]])), "0 .. n-1"),
    ],
)
def test_bad_input(call, words):
    pytest.importorskip("skimage")
    with pytest.raises(InputError, match=words):
        call()
