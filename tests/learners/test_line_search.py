"""The line search alone, on functions of one number."""

import math

import numpy as np
import pytest

from backfield.learners._line_search import C1, C2, Trial, wolfe_search


def search(phi, slope, first, max_evaluations=20, noise=0.0):
    """Search along phi from 0; return the trial and the number of evaluations."""
    steps = []

    def evaluate(step):
        steps.append(step)
        return Trial(step, phi(step), slope(step), np.zeros(0), None)

    return wolfe_search(evaluate, Trial(0.0, phi(0.0), slope(0.0), np.zeros(0), None), first, max_evaluations, noise), steps


#: Functions with hard line searches: More and Thuente (1994), (5.1) and (5.2).
FUNCTIONS = {
    "more_thuente_1": (lambda a: -a / (a * a + 2), lambda a: (a * a - 2) / (a * a + 2) ** 2),
    "more_thuente_2": (
        lambda a: (a + 0.004) ** 5 - 2 * (a + 0.004) ** 4,
        lambda a: 5 * (a + 0.004) ** 4 - 8 * (a + 0.004) ** 3,
    ),
    "quartic": (lambda a: (a - 3) ** 4, lambda a: 4 * (a - 3) ** 3),
    "wavy": (lambda a: 0.1 * a * a - a + math.sin(3 * a) / 4, lambda a: 0.2 * a - 1 + 0.75 * math.cos(3 * a)),
    "steep": (lambda a: math.exp(min(a, 500.0)) - 2 * a, lambda a: math.exp(min(a, 500.0)) - 2),
}


@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 10.0, 1e3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strong_wolfe_conditions(name, first):
    phi, slope = FUNCTIONS[name]
    trial, steps = search(phi, slope, first)
    assert trial is not None and len(steps) <= 16
    assert trial.value <= phi(0) + C1 * trial.step * slope(0)
    assert abs(trial.slope) <= C2 * abs(slope(0))


def test_first_step_is_taken_if_good():
    _, steps = search(lambda a: (a - 1) ** 2, lambda a: 2 * (a - 1), 1.0)
    assert steps == [1.0]


@pytest.mark.parametrize("outside", [math.inf, math.nan, -math.inf])
def test_values_that_are_not_finite(outside):
    trial, steps = search(
        lambda a: (a - 1) ** 2 if a < 1.5 else outside, lambda a: 2 * (a - 1) if a < 1.5 else math.nan, 1e6
    )
    assert trial is not None and trial.step < 1.5 and len(steps) < 15


def test_no_decrease_is_none():
    trial, steps = search(lambda a: a, lambda a: -1.0, 1.0)  # the slope lies
    assert trial is None and len(steps) == 20


def test_lowest_trial_when_evaluations_run_out():
    trial, steps = search(lambda a: -a, lambda a: -1.0, 1.0, max_evaluations=3)
    assert trial is not None and trial.step == max(steps) and len(steps) == 3


def test_slopes_decide_where_values_are_rounded():
    def phi(a):
        return 1.0 + 1e-8 * round(math.sin(1e4 * a) * 3)  # rounding alone

    trial, steps = search(phi, lambda a: 1e-9 * (a - 1), 1.0, noise=1e-6)
    assert trial is not None and steps == [1.0]
    assert search(phi, lambda a: 1e-9 * (a - 1), 0.05, noise=1e-6)[0].step > 0.1  # too short: the slope says so
