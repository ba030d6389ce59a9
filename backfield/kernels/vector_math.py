"""An exponential and a logarithm that LLVM turns into vector instructions; numba's own call the scalar libm.

    exp(x) = 2^k exp(r),   k = round(x / ln 2),   |r| <= ln(2) / 2

with a minimax polynomial for exp(r) (Remez, relative error 3e-18 and 2e-9) and 2^k added to the exponent bits.
The argument is clipped, so neither the result nor its reciprocal over- or underflows. Relative error measured over
the whole range: 1.6e-16 in float64, 9e-8 in float32; 0.9 and 0.3 ns for each number on one core.

    log(x) = k ln 2 + log(1 + f),   sqrt(1/2) <= 1 + f < sqrt(2)

with the series of fdlibm in s = f / (2 + f) (float64) or of Cephes in f (float32); error below one unit in the last place.
k and 1 + f alone are ``vector_exponent`` and ``vector_significand``: products of many numbers stay in range with them.

    cbrt(x) = x z^2,   z <- z (1 + h / 3 + 2 h^2 / 9 + 14 h^3 / 81),   h = 1 - x z^3

twice, from a guess of z = x^(-1/3) by a third of the bits of x, which is 5 % off: errors of 1e-6 and 1e-22 are left, and
rounding: 4e-16 in float64, 3e-7 in float32.

Used inside loops over contiguous rows only. Clear the numba cache after an edit here (see ``compile``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

#: Arguments of ``vector_exp`` are clipped to +- this.
CLIP64, CLIP32 = 700.0, np.float32(80)

# Adding 1.5 * 2^(mantissa bits) rounds to an integer, which then stands in the lowest bits.
_ROUND64, _ROUND32 = 6755399441055744.0, np.float32(12582912)
_LOG2E64, _LOG2E32 = 1.4426950408889634, np.float32(1.4426950408889634)
# ln 2 in two parts; k times the first is exact.
_HIGH64, _LOW64 = 0.693145751953125, 1.42860682030941723212e-6
_HIGH32, _LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
_BITS32 = np.int32(23)
_A2, _A3, _A4, _A5, _A6, _A7, _A8, _A9, _A10, _A11 = (
    0.5000000000000018,
    0.1666666666666617,
    0.04166666666649263,
    0.008333333333559451,
    0.0013888888951261204,
    0.00019841269432434438,
    2.48014864812835e-05,
    2.7557622652024487e-06,
    2.7632308224452543e-07,
    2.4994293345730463e-08,
)
_ZERO32, _ONE32 = np.float32(0), np.float32(1)
_B2, _B3, _B4, _B5, _B6 = (
    np.float32(0.4999999),
    np.float32(0.1666642),
    np.float32(0.041668225),
    np.float32(0.008374824),
    np.float32(0.0013836835),
)

# Bits of sqrt(1/2): the exponent is counted from there.
_HALF64, _HALF32 = 0x3FE6A09E667F3BCD, np.int32(0x3F3504F3)
_L1, _L2, _L3, _L4, _L5, _L6, _L7 = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
_HALF = np.float32(0.5)
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8 = (
    np.float32(3.3333331174e-1),
    np.float32(-2.4999993993e-1),
    np.float32(2.0000714765e-1),
    np.float32(-1.6668057665e-1),
    np.float32(1.4249322787e-1),
    np.float32(-1.2420140846e-1),
    np.float32(1.1676998740e-1),
    np.float32(-1.1514610310e-1),
    np.float32(7.0376836292e-2),
)

# A third of the bits of x, taken from these, are those of about x^(-1/3); of float64 the high halves.
_GUESS64, _GUESS32 = np.int32(0x553EF0FF), np.int32(0x54A21D2A)
_THIRD64, _THIRD32 = 1 / 3, np.float32(1 / 3)
_D2, _D3 = 2 / 9, 14 / 81
_E2, _E3 = np.float32(2 / 9), np.float32(14 / 81)

_TWIN = {
    types.float64: types.int64,
    types.int64: types.float64,
    types.float32: types.int32,
    types.int32: types.float32,
}

# Differs from compile.part: sums stay in order, or the rounding constant would cancel.
_OPTIONS: Any = {"fastmath": {"contract"}, "error_model": "numpy", "no_cfunc_wrapper": True, "no_cpython_wrapper": True}


@intrinsic  # type: ignore[misc]
def _twin(typing_context: Any, x: Any) -> Any:
    """Return the same bits as a float (of an integer) or as an integer (of a float)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(signature.return_type))

    return _TWIN[x](x), codegen


reinterpret: Any = _twin


@intrinsic  # type: ignore[misc]
def _clipped(typing_context: Any, x: Any, bound: Any) -> Any:
    """Return x between -bound and bound, NaN as it is.

    Two selections: branches made messages 1.2 to 1.9 times slower, and min and max are kernels of their own to numba.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, high = args
        low = builder.fneg(high)
        value = builder.select(builder.fcmp_ordered("<", value, low), low, value)
        return builder.select(builder.fcmp_ordered(">", value, high), high, value)

    return x(x, x), codegen


clip: Any = _clipped


def _exp64(x):
    x = clip(x, CLIP64)
    t = x * _LOG2E64 + _ROUND64
    k = t - _ROUND64
    r = x - k * _HIGH64
    r = r - k * _LOW64
    p = _A11 * r + _A10
    p = p * r + _A9
    p = p * r + _A8
    p = p * r + _A7
    p = p * r + _A6
    p = p * r + _A5
    p = p * r + _A4
    p = p * r + _A3
    p = p * r + _A2
    p = p * r + 1.0
    p = p * r + 1.0
    return reinterpret(reinterpret(p) + (reinterpret(t) << 52))


def _exp32(x):
    x = clip(x, CLIP32)
    t = x * _LOG2E32 + _ROUND32
    k = t - _ROUND32
    r = x - k * _HIGH32
    r = r - k * _LOW32
    p = _B6 * r + _B5
    p = p * r + _B4
    p = p * r + _B3
    p = p * r + _B2
    p = p * r + _ONE32
    p = p * r + _ONE32
    return reinterpret(np.int32(reinterpret(p) + np.int32(reinterpret(t) << _BITS32)))


def _log64(x):
    bits = reinterpret(x)
    exponent = (bits - _HALF64) >> 52
    f = reinterpret(bits - (exponent << 52)) - 1.0
    k = reinterpret(reinterpret(_ROUND64) + exponent) - _ROUND64  # to a float; few processors convert such integers
    s = f / (2.0 + f)
    z = s * s
    p = _L7 * z + _L6
    p = p * z + _L5
    p = p * z + _L4
    p = p * z + _L3
    p = p * z + _L2
    p = p * z + _L1
    half = 0.5 * f * f
    return k * _HIGH64 - ((half - (s * (half + p * z) + k * _LOW64)) - f)


def _log32(x):
    bits = reinterpret(x)
    exponent = np.int32(np.int32(bits - _HALF32) >> _BITS32)
    f = reinterpret(np.int32(bits - np.int32(exponent << _BITS32))) - _ONE32
    k = np.float32(exponent)
    z = f * f
    p = _C8 * f + _C7
    p = p * f + _C6
    p = p * f + _C5
    p = p * f + _C4
    p = p * f + _C3
    p = p * f + _C2
    p = p * f + _C1
    p = p * f + _C0
    p = p * f * z + k * _LOW32
    return (f + (p - _HALF * z)) + k * _HIGH32


def _exponent64(x):
    exponent = (reinterpret(x) - _HALF64) >> 52
    return reinterpret(reinterpret(_ROUND64) + exponent) - _ROUND64


def _exponent32(x):
    return np.float32(np.int32(np.int32(reinterpret(x) - _HALF32) >> _BITS32))


def _significand64(x):
    bits = reinterpret(x)
    return reinterpret(bits - (((bits - _HALF64) >> 52) << 52))


def _significand32(x):
    bits = reinterpret(x)
    return reinterpret(np.int32(bits - np.int32(np.int32(np.int32(bits - _HALF32) >> _BITS32) << _BITS32)))


def _cbrt64(x):
    # The high halves of the bits, as few processors divide integers of 64 bits.
    third = np.float64(np.int32(reinterpret(x) >> 32)) * _THIRD64
    z = reinterpret(np.int64(_GUESS64 - np.int32(third)) << 32)
    h = 1.0 - x * (z * z * z)
    z += z * h * (_THIRD64 + h * (_D2 + h * _D3))
    h = 1.0 - x * (z * z * z)
    z += z * h * (_THIRD64 + h * (_D2 + h * _D3))
    return x * (z * z)


def _cbrt32(x):
    third = np.float32(reinterpret(x)) * _THIRD32
    z = reinterpret(np.int32(_GUESS32 - np.int32(third)))
    h = _ONE32 - x * (z * z * z)
    z += z * h * (_THIRD32 + h * (_E2 + h * _E3))
    h = _ONE32 - x * (z * z * z)
    z += z * h * _THIRD32
    return x * (z * z)


def vector_exponent(x: Any) -> Any:
    """Return k, a float, of x = 2^k y with sqrt(1/2) <= y < sqrt(2); for use in kernels, of positive, normal numbers."""
    raise NotImplementedError("vector_exponent is for kernels; use numpy.frexp.")


@overload(vector_exponent, jit_options=_OPTIONS)
def _vector_exponent(x):
    return _exponent32 if x == types.float32 else _exponent64


def vector_significand(x: Any) -> Any:
    """Return y of x = 2^k y with sqrt(1/2) <= y < sqrt(2); for use in kernels, of positive, normal numbers."""
    raise NotImplementedError("vector_significand is for kernels; use numpy.frexp.")


@overload(vector_significand, jit_options=_OPTIONS)
def _vector_significand(x):
    return _significand32 if x == types.float32 else _significand64


def vector_cbrt(x: Any) -> Any:
    """Return the cube root of a positive, normal float32 or float64; for use in kernels."""
    raise NotImplementedError("vector_cbrt is for kernels; use numpy.cbrt.")


@overload(vector_cbrt, jit_options=_OPTIONS)
def _vector_cbrt(x):
    return _cbrt32 if x == types.float32 else _cbrt64


def vector_log(x: Any) -> Any:
    """Return log(x) of a positive, normal float32 or float64; for use in kernels."""
    raise NotImplementedError("vector_log is for kernels; use numpy.log.")


@overload(vector_log, jit_options=_OPTIONS)
def _vector_log(x):
    return _log32 if x == types.float32 else _log64


def vector_exp(x: Any) -> Any:
    """Return exp(x) of a float32 or float64, clipped; for use in kernels."""
    raise NotImplementedError("vector_exp is for kernels; use numpy.exp.")


@overload(vector_exp, jit_options=_OPTIONS)
def _vector_exp(x):
    return _exp32 if x == types.float32 else _exp64


def probability_exp(x: Any) -> Any:
    """Return exp(x) for x <= 0, in kernels: 0 below the clip and at -inf, never NaN; also of complex numbers."""
    raise NotImplementedError("probability_exp is for kernels; use numpy.exp.")


@overload(probability_exp)
def _probability_exp(x):
    if x == types.float32:
        return lambda x: vector_exp(x) if x > -CLIP32 else _ZERO32
    if x == types.float64:
        return lambda x: vector_exp(x) if x > -CLIP64 else 0.0
    return lambda x: np.exp(x) if x.real > -np.inf else 0j
