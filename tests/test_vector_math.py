"""The vectorised exponential, logarithm and cube root against numpy's in a wider type."""

import numpy as np
import pytest

from backfield.kernels.compile import kernel
from backfield.kernels.vector_math import (
    probability_exp,
    vector_cbrt,
    vector_exp,
    vector_exponent,
    vector_log,
    vector_significand,
)


@kernel
def _fill(x, out):
    for i in range(len(x)):
        out[i] = vector_exp(x[i])


@kernel
def _fill_log(x, out):
    for i in range(len(x)):
        out[i] = vector_log(x[i])


@kernel
def _fill_probability(x, out):
    for i in range(len(x)):
        out[i] = probability_exp(x[i])


@pytest.mark.parametrize(
    ("dtype", "wide", "clip", "error"), [("f8", np.longdouble, 700, 4e-16), ("f4", np.float64, 80, 2e-7)]
)
def test_accuracy_and_clip(dtype, wide, clip, error):
    x = np.linspace(-clip, clip, 200_001).astype(dtype)
    out = np.empty_like(x)
    _fill(x, out)
    assert np.abs(out / np.exp(x.astype(wide)) - 1).max() < error
    x = np.array([-np.inf, -1e30, -2 * clip, 0, 2 * clip, 1e30, np.inf], dtype)
    out = np.empty_like(x)
    _fill(x, out)
    np.testing.assert_allclose(np.log(out), [-clip] * 3 + [0] + [clip] * 3)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
def test_probability(dtype):
    x = np.array([-np.inf, -1e4, -50, -1e-3, 0], dtype)
    out = np.empty_like(x)
    _fill_probability(x, out)
    np.testing.assert_allclose(out, np.exp(x), rtol=1e-6)
    np.testing.assert_array_equal(out[:2], 0)


@pytest.mark.parametrize(("dtype", "wide", "top"), [("f8", np.longdouble, 700), ("f4", np.float64, 87)])
def test_logarithm(dtype, wide, top):
    x = np.exp(np.linspace(-top, top, 200_001)).astype(dtype)
    x = np.concatenate([x, np.linspace(0.5, 2, 100_001).astype(dtype), np.array([np.finfo(dtype).tiny, 1, 2], dtype)])
    out = np.empty_like(x)
    _fill_log(x, out)
    exact = np.log(x.astype(wide))
    unit = np.spacing(np.abs(exact).astype(dtype)).astype(wide)
    assert (np.abs(out - exact) / np.maximum(unit, np.finfo(dtype).tiny)).max() < 2
    assert out[-2] == 0


@kernel
def _fill_cbrt(x, out):
    for i in range(len(x)):
        out[i] = vector_cbrt(x[i])


@kernel
def _fill_parts(x, exponent, significand):
    for i in range(len(x)):
        exponent[i] = vector_exponent(x[i])
        significand[i] = vector_significand(x[i])


@pytest.mark.parametrize(
    ("dtype", "wide", "top", "error"), [("f8", np.longdouble, 700, 6e-16), ("f4", np.float64, 87, 4e-7)]
)
def test_cube_root_and_parts(dtype, wide, top, error):
    x = np.exp(np.linspace(-top, top, 200_001)).astype(dtype)
    out, exponent = np.empty_like(x), np.empty_like(x)
    _fill_cbrt(x, out)
    assert np.abs(out / np.cbrt(x.astype(wide)) - 1).max() < error
    _fill_parts(x, exponent, out)
    np.testing.assert_array_equal(np.ldexp(out, exponent.astype(int)), x)
    assert out.min() >= np.sqrt(np.array(0.5, dtype)) and out.max() < np.sqrt(np.array(2, dtype))
