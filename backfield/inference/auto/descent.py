"""L-BFGS with backtracking, until a deadline: small, and without threads that wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from backfield.kernels.compiling import clock

#: Pairs of steps and changes of the gradient that are kept.
MEMORY = 12
#: A step must bring this share of what its slope promises.
SUFFICIENT = 1e-4


def minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray, deadline: float, tol: float = 1e-12
) -> np.ndarray:
    """Return the point with the least value found until ``deadline``; the value never rises from step to step."""
    value, gradient = function(x)
    pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=MEMORY)
    while clock() < deadline:
        direction = _direction(gradient, pairs)
        slope = float(gradient @ direction)
        if slope > -1e-300:
            return x
        step = 1.0 if pairs else min(1.0, 1.0 / float(np.abs(gradient).max()))
        found = _search(function, x, value, direction, slope, step, deadline)
        if found is None:
            return x
        new, new_value, new_gradient = found
        s, y = new - x, new_gradient - gradient
        curvature = float(s @ y)
        if curvature > 1e-12 * float(y @ y):
            pairs.append((s, y, 1.0 / curvature))
        fall = value - new_value
        x, value, gradient = new, new_value, new_gradient
        if fall <= tol * max(1.0, abs(value)):
            return x
    return x


def _direction(gradient: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    """Return - H gradient by the two-loop recursion."""
    q = -gradient
    shares = []
    for s, y, inverse in reversed(pairs):
        shares.append(inverse * float(s @ q))
        q = q - shares[-1] * y
    if pairs:
        s, y, inverse = pairs[-1]
        q = q / (inverse * float(y @ y))
    for (s, y, inverse), share in zip(pairs, reversed(shares), strict=True):
        q = q + (share - inverse * float(y @ q)) * s
    return q


def _search(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    x: np.ndarray,
    value: float,
    direction: np.ndarray,
    slope: float,
    step: float,
    deadline: float,
) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Halve the step until the value falls enough; None where it never does."""
    for _ in range(25):
        new = x + step * direction
        new_value, gradient = function(new)
        if new_value <= value + SUFFICIENT * step * slope:
            return new, new_value, gradient
        if clock() > deadline:
            return None
        step *= 0.5
    return None
