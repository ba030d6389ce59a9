import numpy as np
import pytest

from backfield.datasets import generated
from backfield.errors import InputError


def test_denoising_is_that_of_l13():
    data = generated.denoising(3, size=60, seed=1, sd=4.0)
    assert len(data.features) == len(data.masks) == len(data.horizontal) == len(data.vertical) == 3
    for x, y, h, v in zip(*data, strict=True):
        assert x.shape == (60, 60, 1) and h.shape == (60, 59, 1) and v.shape == (59, 60, 1)
        assert x.dtype == h.dtype == v.dtype == np.float32 and set(np.unique(y)) == {0, 1}
        for value, (low, high) in ((0, (0, 0.9)), (1, (0.1, 1))):
            part = x[y == value]
            assert low <= part.min() < low + 0.02 and high - 0.02 < part.max() <= high
            assert abs(part.mean() - (low + high) / 2) < 0.03
        for part, cut in ((h, y[:, 1:] != y[:, :-1]), (v, y[1:] != y[:-1])):
            assert part[~cut].max() <= 0.8 and part[cut].min() >= 0.2
            assert 0 < cut.mean() < 0.2


def test_denoising_is_reproducible_and_nested():
    few, more = generated.denoising(2, size=20, seed=3), generated.denoising(4, size=20, seed=3)
    for a, b in zip(few, more, strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(a, b[:2], strict=True))
    other = generated.denoising(2, size=20, seed=4)
    assert not np.array_equal(few.features[0], other.features[0])
    assert not np.array_equal(more.features[2], more.features[3])


def test_constant_feature_comes_last():
    data = generated.denoising(1, size=10, constant=True)
    plain = generated.denoising(1, size=10)
    for found, expected in ((data.features, plain.features), (data.vertical, plain.vertical)):
        assert np.array_equal(found[0][..., :1], expected[0]) and (found[0][..., 1] == 1).all()


@pytest.mark.parametrize("noise", ["gaussian", "bimodal"])
def test_shapes(noise):
    data = generated.shapes(noise, n_train=2, n_test=3, seed=5)
    assert len(data.train) == len(data.train_masks) == 2 and len(data.test) == len(data.test_masks) == 12
    assert data.test_shapes.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert data.train[0].shape == (64, 64, 1) and data.train[0].dtype == np.float32
    assert not np.array_equal(data.train[0], data.test[0]) and not np.array_equal(data.test[0], data.test[1])
    again = generated.shapes(noise, n_train=2, n_test=3, seed=5)
    assert all(np.array_equal(a, b) for a, b in zip(data.test, again.test, strict=True))


def test_four_different_shapes():
    masks = generated.binary_shapes()
    assert len(masks) == 4 and all(mask.shape == (64, 64) for mask in masks)
    assert all(0.15 < mask.mean() < 0.6 for mask in masks)
    assert all((masks[i] != masks[j]).mean() > 0.1 for i in range(4) for j in range(i))


def test_noise_has_the_announced_moments():
    mask = np.repeat([[0], [1]], 40_000, axis=1)
    gaussian = generated.add_noise(mask, "gaussian", 0)[..., 0]
    np.testing.assert_allclose(gaussian.mean(axis=1), [0, 1], atol=0.01)
    np.testing.assert_allclose(gaussian.std(axis=1), 0.3, atol=0.01)
    bimodal = generated.add_noise(mask, "bimodal", 0)[..., 0]
    np.testing.assert_allclose(bimodal.mean(axis=1), [0.27, 0.485], atol=0.01)
    assert ((bimodal[0] > 0.2) & (bimodal[0] < 0.33)).mean() < 0.001  # two modes, nothing between


@pytest.mark.parametrize(
    "call",
    [
        lambda: generated.denoising(0),
        lambda: generated.denoising(1, size=2.5),
        lambda: generated.denoising(1, sd=0),
        lambda: generated.shapes("salt"),
        lambda: generated.shapes(n_train=0),
    ],
)
def test_bad_input(call):
    with pytest.raises(InputError):
        call()
