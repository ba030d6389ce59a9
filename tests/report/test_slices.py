"""Orthogonal slices of volumes."""

import numpy as np

from backfield.report.slices import Slices

VOLUME = np.random.default_rng(0).normal(size=(4, 5, 6))


def test_three_slices_at_right_angles():
    found = Slices((1, 2, 3)).montage(VOLUME, -9)
    assert found.shape == (9, 10)
    np.testing.assert_array_equal(found[:5, :6], VOLUME[1])
    np.testing.assert_array_equal(found[5:, :6], VOLUME[:, 2])
    np.testing.assert_array_equal(found[:5, 6:], VOLUME[:, :, 3].T)
    assert (found[5:, 6:] == -9).all()
    assert Slices((1, 2, 3)).montage(np.stack([VOLUME] * 2, axis=-1), 0).shape == (9, 10, 2)


def test_the_slices_are_where_the_errors_are():
    truth = np.zeros((4, 5, 6), int)
    guess = truth.copy()
    assert Slices.through_errors(truth, guess).at == (2, 2, 3)
    guess[3, 1, 2:4] = 1
    assert Slices.through_errors(truth, guess).at == (3, 1, 2)
    truth[3] = -1
    assert Slices.through_errors(truth, guess).at == (2, 2, 3)


def test_pictures_are_grey_or_colour_and_stretched():
    slices = Slices((0, 0, 0))
    grey = slices.picture(VOLUME)
    assert grey.shape == (9, 10, 3) and grey.dtype == np.uint8 and grey.max() == 255 and (grey[..., 0] == grey[..., 1]).all()
    assert slices.picture(np.stack([VOLUME] * 3, axis=-1)).shape == (9, 10, 3)
    assert slices.picture(np.stack([VOLUME] * 2, axis=-1)).shape == (9, 10, 3)
    assert slices.picture(np.full((4, 5, 6), 7)).shape == (9, 10, 3)
