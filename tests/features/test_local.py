"""Local features: right numbers, and windows that have the bits of the whole."""

import numpy as np
import pytest
from scipy import ndimage

import backfield as bf
from backfield.features import LocalFeatures
from backfield.features.local import KINDS

RNG = np.random.default_rng(0)


def windows(shape):
    yield tuple(slice(0, n // 2) for n in shape)
    yield tuple(slice(n // 3, n) for n in shape)
    yield tuple(slice(n // 2, n // 2 + 1) for n in shape)


@pytest.mark.parametrize(("shape", "n_axes"), [((41, 37, 3), 2), ((30, 50), 2), ((13, 21, 17), 3), ((9, 10, 11, 2), 3)])
@pytest.mark.parametrize("spacing", [False, True])
def test_windows_have_the_bits_of_the_whole(shape, n_axes, spacing):
    image = RNG.integers(0, 255, shape).astype(np.uint8)
    maker = LocalFeatures(
        scales=(0.7, 1.5), kinds=KINDS, n_axes=n_axes, spacing=(2.0, 1.0, 0.5)[:n_axes] if spacing else None
    )
    lazy = maker.over(image)
    whole = maker.transform_one(image)
    channels = [f"c{k}" for k in range(shape[n_axes] if len(shape) > n_axes else 1)]
    assert lazy.shape == whole.shape == (*shape[:n_axes], len(maker.get_feature_names_out(channels)))
    assert whole.dtype == np.float32
    for window in windows(shape[:n_axes]):
        np.testing.assert_array_equal(lazy[window], whole[window])


def test_no_more_than_the_reach_is_read():
    class Seen:
        shape, dtype, largest = (200, 300), np.dtype(np.float32), (0, 0)

        def __getitem__(self, window):
            assert all(part.stop <= n for part, n in zip(window, self.shape, strict=True))
            self.largest = max(self.largest, tuple(part.stop - part.start for part in window))
            return np.zeros(self.largest, np.float32)

    image = Seen()
    maker = LocalFeatures(scales=(1.0, 2.0))
    assert maker.over(image)[50:60, 100:120].shape == (10, 20, 13)
    assert image.largest == tuple(side + 2 * r for side, r in zip((10, 20), maker.reach, strict=True))
    changed = RNG.normal(size=(61, 61)).astype(np.float32)
    before = maker.transform_one(changed)
    changed[30, 30] += 1
    moved = np.argwhere((maker.transform_one(changed) != before).any(axis=2))
    assert abs(moved - 30).max() <= maker.reach[0]  # and nearly all of it is used: taps at its end are small
    assert abs(moved - 30).max() >= maker.reach[0] - 2


def test_the_numbers_are_gaussian_derivatives():
    image = ndimage.gaussian_filter(RNG.normal(size=(60, 60)), 2)
    names = ["gaussian", "gradient", "laplacian", "hessian"]
    found = LocalFeatures(scales=(2.0,), kinds=names).transform_one(image)[15:-15, 15:-15]
    wanted = ndimage.gaussian_filter(image, 2.0)[15:-15, 15:-15]
    np.testing.assert_allclose(found[..., 0], wanted, atol=0.02 * abs(wanted).max())
    wanted = 2 * ndimage.gaussian_gradient_magnitude(image, 2.0)[15:-15, 15:-15]
    np.testing.assert_allclose(found[..., 1], wanted, atol=0.03 * abs(wanted).max())
    wanted = 4 * ndimage.gaussian_laplace(image, 2.0)[15:-15, 15:-15]
    np.testing.assert_allclose(found[..., 2], wanted, atol=0.04 * abs(wanted).max())
    np.testing.assert_allclose(found[..., 3] + found[..., 4], found[..., 2], atol=1e-5)
    assert (found[..., 3] >= found[..., 4]).all()


@pytest.mark.parametrize("n", [2, 3])
def test_eigenvalues(n):
    from backfield.features.local import _eigenvalues

    a = RNG.normal(size=(50, n, n))
    a = a + a.transpose(0, 2, 1)
    a[0] = np.eye(n)
    pairs = {(i, j): a[:, i, j].astype(np.float32) for i in range(n) for j in range(i, n)}
    found = np.stack(_eigenvalues(pairs), axis=1)
    np.testing.assert_allclose(found, np.linalg.eigvalsh(a)[:, ::-1], atol=3e-6)


def test_a_ramp_has_its_slope_and_no_curvature():
    ramp = np.arange(40, dtype=np.float32)[None, :, None] * np.ones((20, 1, 20), np.float32)
    found = LocalFeatures(scales=(1.5,), kinds=("gradient", "hessian"), n_axes=3).transform_one(ramp)[8:-8, 12:-12, 8:-8]
    np.testing.assert_allclose(found[..., 0], 1.5, rtol=1e-4)
    np.testing.assert_allclose(found[..., 1:], 0, atol=1e-3)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"scales": ()}, "scales must be some positive numbers"),
        ({"scales": (1.0, 0.0)}, "scales must be"),
        ({"kinds": ("edges",)}, "kinds are some of"),
        ({"spacing": (1.0, 0.0)}, "spacing must be 2 positive numbers"),
        ({"n_axes": 4}, "n_axes is 2"),
    ],
)
def test_bad_parameters(params, words):
    with pytest.raises(bf.InputError, match=words):
        LocalFeatures(**params).transform_one(np.zeros((5, 5)))


def test_bad_images_and_windows():
    with pytest.raises(bf.InputError, match="an image has 2 axes"):
        LocalFeatures().over(np.zeros((5, 5, 5, 5)))
    with pytest.raises(bf.InputError, match="NaN"):
        LocalFeatures().transform_one(np.full((9, 9), np.nan))
    with pytest.raises(bf.InputError, match="windows of 2 slices"):
        LocalFeatures().over(np.zeros((9, 9)))[3]
    with pytest.raises(bf.InputError, match="must not be empty"):
        LocalFeatures().over(np.zeros((9, 9)))[3:3]


def test_features_and_field_by_tiles_have_the_bits_of_the_whole():
    image = RNG.integers(0, 255, (60, 70, 3)).astype(np.uint8)
    maker = LocalFeatures(scales=(1.0,))
    lazy = maker.over(image)
    crf = bf.GridCRF(inference="tree_reweighted(n_iter=2)", learner="lbfgs(max_iter=5)")
    crf.fit([np.asarray(lazy)[:20, :20]], [(image[:20, :20, 0] > 128).astype(int)])
    whole = crf.predict_proba([maker.transform_one(image)])[0]
    np.testing.assert_array_equal(crf.predict_proba(lazy, tile=24), whole)
