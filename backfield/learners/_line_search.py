"""Line search for the strong Wolfe conditions by bracketing and cubic interpolation.

    phi(a) <= phi(0) + c1 a phi'(0),     |phi'(a)| <= c2 |phi'(0)|

Algorithms 3.5 and 3.6 of Nocedal and Wright, Numerical Optimization (2006), as one loop: ``low`` is the lowest point of
sufficient decrease so far, ``high`` the other end of the bracket, or none while the step still grows. Near a minimum
phi(a) - phi(0) drowns in rounding while slopes are still good; there the approximate condition of Hager and Zhang (2005),
eq. (4.1), which looks at slopes alone, takes the place of the first one. A value that is not finite means too long a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

C1 = 1e-4
C2 = 0.9
#: Extrapolation goes on by this many times the last step at the least and at the most (MINPACK-2's dcsrch).
GROWTH = (1.1, 4.0)
#: Interpolation keeps this share of the bracket away from its ends.
MARGIN = 0.1
#: A bracket that two trials have not cut to this share is halved (dcsrch).
SHRINK = 0.66


class Trial(NamedTuple):
    """A point on the line: phi and its slope at ``step``, and what was evaluated there."""

    step: float
    value: float
    slope: float
    w: np.ndarray
    evaluation: Any


def wolfe_search(
    evaluate: Callable[[float], Trial], start: Trial, step: float, max_evaluations: int, noise: float
) -> Trial | None:
    """Return a trial of sufficient decrease, if possible one that fulfils the strong Wolfe conditions.

    Parameters
    ----------
    evaluate
        Returns the trial at a step; its value may be inf or nan.
    start
        The trial at step 0, with a negative slope.
    step
        First step to try.
    max_evaluations
        After this many the lowest trial is returned, or None if there is none of sufficient decrease.
    noise
        Relative error of values.
    """
    low, before, high = start, start, None
    widths = [math.inf, math.inf]
    for _ in range(max_evaluations):
        trial = evaluate(step)
        if not (math.isfinite(trial.value) and math.isfinite(trial.slope)):
            high = trial._replace(value=math.inf)
        elif _accepted(start, trial, noise):
            return trial
        elif _too_far(start, low, trial, noise):
            high = trial
        else:
            if trial.slope * (1.0 if high is None else high.step - low.step) >= 0:
                high = low
            before, low = low, trial
        step = _extrapolate(before, low) if high is None else _interpolate(low, high, widths)
        if step == low.step or not math.isfinite(step):
            break  # the bracket has no number left inside
    return low if low.value < start.value else None


def _accepted(start: Trial, trial: Trial, noise: float) -> bool:
    if trial.value <= start.value + C1 * trial.step * start.slope:
        return abs(trial.slope) <= C2 * abs(start.slope)
    same = abs(trial.value - start.value) <= noise * abs(start.value)
    return same and C2 * start.slope <= trial.slope <= (2 * C1 - 1) * start.slope


def _too_far(start: Trial, low: Trial, trial: Trial, noise: float) -> bool:
    if abs(trial.value - low.value) <= noise * abs(start.value):
        return trial.slope * math.copysign(1.0, trial.step - low.step) >= 0  # values say nothing; slopes still do
    return trial.value > start.value + C1 * trial.step * start.slope or trial.value >= low.value


def _extrapolate(before: Trial, low: Trial) -> float:
    """Return a longer step: the minimum of the cubic, within bounds."""
    last = low.step - before.step
    least, most = low.step + GROWTH[0] * last, low.step + GROWTH[1] * last
    step = _cubic_minimum(before, low)
    return min(max(step, least), most) if step > low.step else most


def _interpolate(low: Trial, high: Trial, widths: list[float]) -> float:
    """Return a step inside the bracket: the minimum of the cubic, away from the ends."""
    width = high.step - low.step
    if not math.isfinite(high.value):
        return low.step + MARGIN * width
    slow = abs(width) > SHRINK * widths[0]
    widths[:] = [widths[1], abs(width)]
    share = (_cubic_minimum(low, high) - low.step) / width if width else 0.0
    if slow or not math.isfinite(share):
        share = 0.5
    return low.step + min(max(share, MARGIN), 1 - MARGIN) * width


def _cubic_minimum(a: Trial, b: Trial) -> float:
    """Return the minimum of the cubic through two values and slopes (Nocedal and Wright, eq. (3.59)); nan if none."""
    if a.step == b.step:
        return math.nan
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return math.nan
    d2 = math.copysign(math.sqrt(square), b.step - a.step)
    divisor = b.slope - a.slope + 2 * d2
    return b.step - (b.step - a.step) * (b.slope + d2 - d1) / divisor if divisor else math.nan
