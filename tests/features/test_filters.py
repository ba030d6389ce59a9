"""The filter bank: 30 features, of sizes that go together, that see what they should."""

import numpy as np
import pytest

from backfield.errors import InputError
from backfield.features import EdgeFeatures, FilterBank


def test_thirty_features_with_names():
    image = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    features = FilterBank().transform_one(image)
    assert features.shape == (40, 50, 30) and features.dtype == np.float32 and np.isfinite(features).all()
    names = FilterBank().get_feature_names_out()
    assert len(names) == len(set(names)) == 30
    assert np.abs(features).max() < 20


def test_a_dark_line_is_a_ridge_and_no_edge():
    image = np.full((41, 41), 200, np.uint8)
    image[20] = 60
    features = FilterBank().transform_one(image)
    names = FilterBank().get_feature_names_out().tolist()
    ridge, gradient = features[..., names.index("hessian0(grey, 1)")], features[..., names.index("gradient(grey, 1)")]
    assert ridge[20, 20] == ridge[:, 20].max() > 0.5 and gradient[20, 20] < 1e-3 < gradient[18, 20]


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_small_images(shape):
    assert np.isfinite(FilterBank().transform_one(np.zeros(shape, np.uint8))).all()


def test_contrast_is_one_where_colours_agree():
    image = np.zeros((6, 8, 3), np.uint8)
    image[:, 4:] = 255
    across, down = EdgeFeatures(("contrast",)).transform_one(image)
    assert across.shape == (6, 7, 1) and down.shape == (5, 8, 1)
    assert (down == 1).all() and (across[:, 3] < 0.02).all() and (np.delete(across, 3, axis=1) == 1).all()
    flat = EdgeFeatures(("contrast",)).transform_one(np.zeros((1, 1, 3), np.uint8))
    assert flat[0].size == flat[1].size == 0
    with pytest.raises(InputError, match="contrast"):
        EdgeFeatures(("contrasts",)).transform_one(image)
