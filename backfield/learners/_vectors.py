"""Sums over weights with the same bits whatever number of threads BLAS has, and the weights that a problem allows."""

from __future__ import annotations

import math

import numpy as np

from backfield.training.protocols import HasProjection, Minimisable


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Return a·b."""
    return float(np.einsum("i,i", a, b))


def norm(a: np.ndarray) -> float:
    """Return the Euclidean norm."""
    return math.sqrt(dot(a, a))


def project(problem: Minimisable, w: np.ndarray) -> np.ndarray:
    """Return the nearest weights that the problem allows."""
    return np.asarray(problem.projection(w), dtype=np.float64) if isinstance(problem, HasProjection) else w
