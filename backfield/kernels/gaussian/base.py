"""What a Gaussian filter is: a linear map K, K_ij ~ exp(-|f_i - f_j|^2 / 2), that is applied without being written out.

All filters *add* to their outputs, take values (n, C) with one column for each label, and scale rows on the way in and out,

    out += diag(after) K diag(before) q,

so a normalised kernel costs no further pass over the values. Adjoints of parameters are collected over as many calls as
there are (sweeps, kernels) and turned into those of features or bandwidths once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from backfield.errors import InputError
from backfield.kernels.compile import kernel

#: Features larger than this, in bandwidths, have lost the digits that tell neighbours apart.
LARGEST = 2.0**40


@dataclass
class Collector:
    """Adjoints of a filter's own parameters, of the scales of its rows and of its diagonal."""

    parameters: np.ndarray
    before: np.ndarray
    after: np.ndarray
    diagonal: np.ndarray

    @classmethod
    def empty(cls, parameters: np.ndarray, n: int, dtype: Any) -> Collector:
        """Return zeros: shaped as ``parameters``, and (n,) for the rest."""
        return cls(np.zeros_like(parameters), *np.zeros((3, n), dtype))


class Filter(Protocol):
    """A Gaussian filter of values (n, C)."""

    n: int
    dtype: np.dtype[Any]

    def apply(self, q: np.ndarray, before: np.ndarray, after: np.ndarray, out: np.ndarray) -> None:
        """Add diag(after) K diag(before) q to ``out``."""

    def transpose(self, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray) -> None:
        """Add diag(before) K' diag(after) d_out to ``d_q``."""

    def vjp(
        self, q: np.ndarray, d_out: np.ndarray, before: np.ndarray, after: np.ndarray, d_q: np.ndarray, d: Collector
    ) -> None:
        """Do what :meth:`transpose` does, and add the adjoints of parameters, ``before`` and ``after`` to ``d``."""

    def collector(self) -> Collector:
        """Return an empty collector."""

    def diagonal(self) -> np.ndarray:
        """Return K_ii (n,)."""

    def diagonal_vjp(self, d_diagonal: np.ndarray, d: Collector) -> None:
        """Add the adjoint of the parameters that the adjoint of :meth:`diagonal` causes."""

    def bandwidths_vjp(self, d: Collector) -> np.ndarray:
        """Return the adjoint of the bandwidths."""


def float_type(dtype: Any) -> np.dtype[Any]:
    """Return float32 or float64; refuse others."""
    kind = np.dtype(dtype)
    if kind not in (np.float32, np.float64):
        raise InputError(f"values of a Gaussian filter must be float32 or float64, received {kind}.")
    return kind


def check_bandwidths(bandwidths: Any, d: int) -> np.ndarray:
    """Return one positive bandwidth for each of d features."""
    sigma = _array(bandwidths, "bandwidths").astype(np.float64)
    if sigma.ndim > 1 or sigma.size not in (1, d):
        raise InputError(f"{d} features need one bandwidth or {d}, received an array of shape {sigma.shape}.")
    sigma = np.broadcast_to(sigma, d).copy()
    bad = np.flatnonzero(~((sigma > 0) & (sigma < np.inf)))
    if len(bad):
        raise InputError(f"bandwidths must be positive numbers, received {sigma[bad[0]]:g} for feature {bad[0]}.")
    return sigma


def _array(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must be an array; its rows differ in length.") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} must be real numbers, received {array.dtype} {array.shape}.")
    return array


def scaled_features(features: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Return checked features divided by their bandwidths: (n, d) float64."""
    f = np.ascontiguousarray(features / sigma, dtype=np.float64)
    if (bad := _first_bad(f, LARGEST)) >= 0:
        i, k = divmod(bad, f.shape[1])
        raise InputError(
            f"feature {k} of point {i} is {features[i, k]!s} (bandwidth {sigma[k]:g}); features must be finite and below "
            f"{LARGEST:g} bandwidths."
        )
    return f


def check_features(features: Any) -> np.ndarray:
    """Return features as an array (n, d) with n, d > 0."""
    f = _array(features, "features")
    if f.ndim != 2 or f.size == 0:
        raise InputError(
            f"features must be real numbers of shape (n, d) with n and d at least 1, received {f.dtype} {f.shape}."
        )
    return f


def check_values(values: Any, n: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return values as a contiguous array (n, C)."""
    q = np.ascontiguousarray(values, dtype=dtype)
    if q.ndim != 2 or len(q) != n or q.shape[1] == 0:
        raise InputError(f"values to filter must have shape ({n}, C) with C at least 1, received {q.shape}.")
    return q


@kernel
def _first_bad(values, limit):
    """Return the flat index of the first number that is not below the limit (or is NaN), or -1."""
    for i in range(len(values)):
        for k in range(values.shape[1]):
            if not abs(values[i, k]) < limit:
                return i * values.shape[1] + k
    return -1
