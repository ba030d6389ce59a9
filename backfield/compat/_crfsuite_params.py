"""Training parameters of CRFsuite, and the estimator that they ask for: each is honoured, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backfield.constraints import checked, instance, shown
from backfield.errors import InputError
from backfield.estimators import ChainCRF

_FEATURES: dict[str, Any] = {
    "feature.minfreq": 0.0,
    "feature.possible_states": False,
    "feature.possible_transitions": False,
}
#: Algorithm -> its parameters with their defaults.
DEFAULTS: dict[str, dict[str, Any]] = {
    "lbfgs": _FEATURES
    | {
        "c1": 0.0,
        "c2": 1.0,
        "max_iterations": 2147483647,
        "num_memories": 6,
        "epsilon": 1e-5,
        "period": 10,
        "delta": 1e-5,
        "linesearch": "MoreThuente",
        "max_linesearch": 20,
    },
    "ap": _FEATURES | {"max_iterations": 100, "epsilon": 0.0},
}
_LONG = {"averaged-perceptron": "ap", "passive-aggressive": "pa"}
#: Algorithms that are not here, and what is close to them.
_ABSENT = {
    "l2sgd": "ChainCRF(learner='sgd(schedule=\"lambda\")')",
    "pa": "ChainCRF(loss='max_margin', learner='passive_aggressive', l2=0)",
    "arow": "ChainCRF(loss='max_margin', learner='passive_aggressive', l2=0)",
}


_HELP = {
    "feature.minfreq": "Features with a label, and pairs of labels, that occur less often have no weight.",
    "feature.possible_states": "Give weights to features and labels that never occur together, too.",
    "feature.possible_transitions": "Give weights to pairs of labels that never follow each other, too.",
    "c1": "Coefficient of the L1 penalty.",
    "c2": "Coefficient of the L2 penalty.",
    "max_iterations": "Iterations at the most.",
    "num_memories": "Pairs of steps and gradients that L-BFGS keeps.",
    "epsilon": "Stop where the gradient (ap: the share of examples that moved the weights) is below this.",
    "period": "Iterations over which delta is measured.",
    "delta": "Stop where the objective has changed by a smaller share.",
    "linesearch": "Method of the line search.",
    "max_linesearch": "Evaluations of a line search at the most.",
}


def help_text(algorithm: str, name: str) -> str:
    """Return what a parameter means."""
    if checked("the name of a parameter", name, instance("text", str)) not in DEFAULTS[algorithm]:
        raise InputError(f"there is no parameter {name!r} of {algorithm}; there are {', '.join(DEFAULTS[algorithm])}.")
    return _HELP[name]


def checked_algorithm(algorithm: str) -> str:
    """Return the short name of an algorithm; those that are not here are refused."""
    checked("algorithm", algorithm, instance("the name of an algorithm", str))
    name = _LONG.get(algorithm.lower(), algorithm.lower())
    if name in _ABSENT:
        raise InputError(f"CRFsuite's algorithm {algorithm!r} is not supported; use 'lbfgs', 'ap', or {_ABSENT[name]}.")
    if name not in DEFAULTS:
        raise InputError(f"there is no algorithm {algorithm!r} in CRFsuite; it has {', '.join([*DEFAULTS, *_ABSENT])}.")
    return name


def checked_parameter(algorithm: str, name: str, value: Any) -> Any:
    """Return the value of a parameter in the type of its default; values that are not here are refused."""
    defaults = DEFAULTS[algorithm]
    if checked("the name of a parameter", name, instance("text", str)) not in defaults:
        raise InputError(f"there is no parameter {name!r} of {algorithm}; there are {', '.join(defaults)}.")
    kind = type(defaults[name])
    try:
        value = bool(int(value)) if kind is bool else kind(value)
    except (TypeError, ValueError, OverflowError, np.ma.MaskError):
        raise InputError(f"the parameter {name} must be of type {kind.__name__}, received {shown(value)}.") from None
    _refuse_absent(name, value)
    return value


def _refuse_absent(name: str, value: Any) -> None:
    if name == "linesearch" and value not in ("MoreThuente", "StrongBacktracking"):
        raise InputError(
            f"linesearch={value!r} is not supported; the line search looks for strong Wolfe conditions ('MoreThuente')."
        )
    if isinstance(value, float) and not 0 <= value < float("inf"):
        raise InputError(f"the parameter {name} must be a finite number >= 0, received {value!r}.")
    if name in ("max_iterations", "num_memories", "period", "max_linesearch") and value < (name != "max_iterations"):
        raise InputError(f"the parameter {name} is a number of iterations or steps, received {value}.")


def estimator(algorithm: str, params: dict[str, Any], n_positions: int) -> ChainCRF:
    """Return the estimator, not fitted, whose objective is CRFsuite's divided by the number of positions."""
    params = DEFAULTS[algorithm] | params
    count, least = max(n_positions, 1), params["feature.minfreq"]
    states = "linear" if params["feature.possible_states"] and least == 0 else f"observed_linear(min_count={least})"
    every = params["feature.possible_transitions"] and least == 0
    crf = ChainCRF(
        unary=states,
        pairwise="linear" if every else f"observed_constant(min_count={max(least, 1.0)})",
        decoder="map",
        fit_intercept=False,
        l2=0.0 if algorithm == "ap" else params["c2"] / count,
        loss="max_margin(scale=0.0)" if algorithm == "ap" else "surrogate_likelihood",
        learner=_perceptron(params) if algorithm == "ap" else _quasi_newton(params, count),
    )
    return crf.set_params(separator=":")


def stopping(algorithm: str, params: dict[str, Any]) -> list[Callable[..., bool]]:
    """Return callbacks that stop a fit where CRFsuite would: the objective has changed by less than delta in a period."""
    if algorithm != "lbfgs":
        return []
    period, delta = ((DEFAULTS[algorithm] | params)[name] for name in ("period", "delta"))
    values: list[float] = []

    def stop(iteration: int, w: Any, row: dict[str, Any]) -> bool:
        values.append(row["objective"])
        return iteration > period and abs(values[-1 - period] - values[-1]) < delta * abs(values[-1])

    return [stop]


def _perceptron(params: dict[str, Any]) -> str:
    return f"perceptron(epochs={params['max_iterations']}, tol={params['epsilon']})"


def _quasi_newton(params: dict[str, Any], n_positions: int) -> str:
    """Return the spec of L-BFGS, or of OWL-QN where there is an L1 penalty."""
    name = f"owlqn(l1={params['c1'] / n_positions}, " if params["c1"] else "lbfgs("
    return (
        f"{name}max_iter={params['max_iterations']}, history={params['num_memories']}, "
        f"tol={params['epsilon'] / n_positions}, max_evaluations={params['max_linesearch']})"
    )
