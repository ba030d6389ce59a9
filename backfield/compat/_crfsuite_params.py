"""Training parameters of CRFsuite, and the estimator that they ask for."""

from __future__ import annotations

from typing import Any

from backfield.errors import InputError
from backfield.estimators import ChainCRF

#: Those of ``lbfgs`` with their defaults.
DEFAULTS: dict[str, Any] = {
    "feature.minfreq": 0.0,
    "feature.possible_states": False,
    "feature.possible_transitions": True,
    "c1": 0.0,
    "c2": 1.0,
    "max_iterations": 2147483647,
    "num_memories": 6,
    "epsilon": 1e-5,
    "period": 10,
    "delta": 1e-5,
    "linesearch": "MoreThuente",
    "max_linesearch": 20,
}
_ALGORITHMS = ("lbfgs", "l2sgd", "ap", "averaged-perceptron", "pa", "passive-aggressive", "arow")


def check_algorithm(algorithm: str) -> None:
    """Refuse algorithms other than L-BFGS."""
    if algorithm not in _ALGORITHMS:
        raise InputError(f"there is no algorithm {algorithm!r} in CRFsuite; it has {', '.join(_ALGORITHMS)}.")
    if algorithm != "lbfgs":
        raise InputError(f"the algorithm {algorithm!r} of CRFsuite is not here; use 'lbfgs', or ChainCRF(learner='sgd').")


def checked_parameter(name: str, value: Any) -> Any:
    """Return the value of a parameter in the type of its default."""
    if name not in DEFAULTS:
        raise InputError(f"there is no parameter {name!r} of lbfgs; there are {', '.join(DEFAULTS)}.")
    kind = type(DEFAULTS[name])
    try:
        return bool(int(value)) if kind is bool else kind(value)
    except (TypeError, ValueError):
        raise InputError(f"the parameter {name} must be of type {kind.__name__}, got {value!r}.") from None


def estimator(params: dict[str, Any], n_positions: int) -> ChainCRF:
    """Return the estimator, not fitted, whose objective is CRFsuite's divided by the number of positions."""
    params = DEFAULTS | params
    if params["feature.minfreq"] != 0:
        raise InputError(f"feature.minfreq={params['feature.minfreq']} is not here; only 0.")
    crf = ChainCRF(
        unary="linear" if params["feature.possible_states"] else "observed_linear",
        decoder="map",
        fit_intercept=False,
        l2=params["c2"] / max(n_positions, 1),
        learner=_learner(params, max(n_positions, 1)),
    )
    return crf.set_params(separator=":")


def _learner(params: dict[str, Any], n_positions: int) -> str:
    """Return the spec of L-BFGS, or of OWL-QN where there is an L1 penalty."""
    name = f"owlqn(l1={params['c1'] / n_positions}, " if params["c1"] else "lbfgs("
    return (
        f"{name}max_iter={min(params['max_iterations'], 1000)}, history={params['num_memories']}, "
        f"tol={params['epsilon'] / n_positions}, max_evaluations={params['max_linesearch']})"
    )
