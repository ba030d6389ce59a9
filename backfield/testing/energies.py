"""Contracts of energies: features, w -> scores, and the derivative with respect to w."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.testing.contract import GENERAL, Contract, check, close, require
from backfield.testing.differences import along

#: (features, outputs): numbers of columns.
SIZES = ((3, 2), (1, 4), (0, 3))


def check_energy(part: Any) -> None:
    """Raise AssertionError unless an energy keeps to the contracts of its room.

    Parameters
    ----------
    part : Energy, class or str
        An energy of single rows (``whole = False``), its class, or its spec.
    """
    check("energies", part, CONTRACTS)


def _rows(n_features: int, dtype: Any = np.float64) -> np.ndarray:
    """Features within 0 and 1: some energies take probabilities."""
    return np.random.default_rng(n_features).uniform(0.02, 0.98, size=(7, n_features)).astype(dtype)


def _weights(energy: Any, n_features: int, n_outputs: int, intercept: bool) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.normal(size=energy.n_weights(n_features, n_outputs, intercept))


def _cases(energy: Any) -> list[tuple[int, int, bool]]:
    """Return the sizes that the energy takes: others it refuses by InputError."""
    found = [(f, k, intercept) for f, k in SIZES for intercept in (True, False) if _takes(energy, f, k, intercept)]
    require(found, f"none of the sizes {SIZES} (features, outputs) is taken")
    return found


def _takes(energy: Any, n_features: int, n_outputs: int, intercept: bool) -> bool:
    try:
        energy.n_weights(n_features, n_outputs, intercept)
    except InputError:
        return False
    return True


def start(energy: Any) -> None:
    """The weights to start from are ``n_weights`` finite numbers."""
    for f, k, intercept in _cases(energy):
        w = energy.start(f, k, intercept)
        require(np.shape(w) == (energy.n_weights(f, k, intercept),), f"a start of shape {np.shape(w)}")
        require(np.isfinite(w).all(), "a start that is not finite")


def scores(energy: Any) -> None:
    """Scores are (N, K), finite, of the type of the features, and each row depends on its own features alone."""
    for f, k, intercept in _cases(energy):
        w = _weights(energy, f, k, intercept)
        for dtype in (np.float64, np.float32):
            found = energy.scores(w, _rows(f, dtype), k, intercept)
            require(np.shape(found) == (7, k), f"scores of shape {np.shape(found)} for 7 rows and {k} outputs")
            require(found.dtype == dtype and np.isfinite(found).all(), f"scores of type {found.dtype} for {np.dtype(dtype)}")
        if not energy.whole:
            alone = energy.scores(w, _rows(f)[2:4], k, intercept)
            close(alone, energy.scores(w, _rows(f), k, intercept)[2:4], 1e-12, "scores of rows alone and among others")


def derivative(energy: Any) -> None:
    """``vjp`` returns the derivative of d_scores · scores with respect to the weights, in float64."""
    rng = np.random.default_rng(2)
    for f, k, intercept in _cases(energy):
        w, x, d_scores = _weights(energy, f, k, intercept), _rows(f), rng.normal(size=(7, k))
        energy.scores(w, x, k, intercept)
        found = energy.vjp(x, d_scores, intercept, w)
        require(found.shape == w.shape and found.dtype == np.float64, f"{found.dtype} of shape {found.shape}")
        direction = rng.normal(size=len(w))
        measured = along(_along(energy, w, x, d_scores, intercept, direction), 1e-4)
        close(found @ direction, measured, 1e-6 * max(1, abs(measured)), "vjp and the difference along a direction")
        if energy.linear:
            close(energy.vjp(x, d_scores, intercept), found, 0.0, "vjp of a linear energy without w and with it")


def _along(energy: Any, w: np.ndarray, x: Any, d_scores: np.ndarray, intercept: bool, direction: np.ndarray) -> Any:
    return lambda t: float((energy.scores(w + t * direction, x, d_scores.shape[1], intercept) * d_scores).sum())


def linearity(energy: Any) -> None:
    """Where the energy says ``linear``, scores are linear in the weights."""
    if not energy.linear:
        return
    for f, k, intercept in _cases(energy):
        w, x = _weights(energy, f, k, intercept), _rows(f)
        double = energy.scores(2 * w, x, k, intercept)
        close(double, 2 * energy.scores(w, x, k, intercept), 1e-12, "scores of 2 w and twice the scores")


def gram(energy: Any) -> None:
    """``gram`` is None or a symmetric, positive semidefinite matrix."""
    for f, _, intercept in _cases(energy):
        found = energy.gram(_rows(f), intercept)
        if found is not None and len(found):
            close(found, found.T, 1e-12 * max(1, np.abs(found).max()), "the matrix and its transpose")
            require(np.linalg.eigvalsh(found).min() >= -1e-9 * max(1, np.abs(found).max()), "a negative eigenvalue")


#: What must hold for every energy, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (*GENERAL, start, scores, derivative, linearity, gram)
