"""Central differences of fourth order, to check gradients by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backfield.api import value_and_gradient
from backfield.graph import Potentials
from backfield.testing.contract import require

STEP = 2e-4


def along(function: Callable[[float], Any], step: float) -> Any:
    """Return the derivative of ``function`` at 0."""
    return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)


def relative_error(
    theta: Potentials,
    value: Callable[[Potentials], float],
    d_theta: np.ndarray,
    rng: np.random.Generator,
    step: float = STEP,
) -> float:
    """Return the relative error of a gradient along a random direction.

    Half of the direction is the gradient's own, so the derivative is about as large as the gradient, and its
    relative error means something. Differences are blind to derivatives below 1e-5 of the value: rounding hides them.
    """
    direction = rng.normal(size=len(d_theta))
    direction /= np.linalg.norm(direction)
    size = np.linalg.norm(d_theta)
    if size > 0:
        direction += d_theta / size
    direction[~np.isfinite(theta.vector())] = 0
    measured = along(lambda t: value(theta.like(theta.vector() + t * direction)), step)
    return float(abs(measured - d_theta @ direction) / max(abs(measured), 1e-5 * abs(value(theta)), 1e-12))


def gradient_error(theta: Potentials, labels: Any, seed: int = 0, step: float = STEP, **setting: Any) -> float:
    """Return the relative error of the gradient that ``value_and_gradient`` gives for a setting."""
    _, d_theta = value_and_gradient(theta, labels, **setting)

    def value(moved: Potentials) -> float:
        return value_and_gradient(moved, labels, **setting)[0]

    return relative_error(theta, value, d_theta.vector(), np.random.default_rng(seed), step)


def gradient_is_right(theta: Potentials, labels: Any, tolerance: float, **setting: Any) -> None:
    """Raise AssertionError unless the gradient of a setting agrees with differences of its value."""
    error = gradient_error(theta, labels, **setting)
    shown = ", ".join(f"{key}={value!r}" for key, value in setting.items())
    require(error <= tolerance, f"a relative error of {error:.3g} ({shown}), where {tolerance:.3g} is allowed")
