"""The functions people call first: inference, losses and their gradients, MAP, on given potentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.gradients import Truncated
from backfield.graph import Potentials
from backfield.graph.conditioning import check_possible, evidence
from backfield.graph.labeling import as_labeling, checked_weights
from backfield.inference import Inference, Result
from backfield.inference.conditioned import infer_given
from backfield.map_solvers import MapResult
from backfield.objectives import Marginal, Objective, Setting, Target, evaluate, get_objective, make_setting, named_setting
from backfield.registry import get

#: Sums of so many potentials as fit into memory stay finite.
LARGEST = {np.dtype("float32"): 1e30, np.dtype("float64"): 1e150}


def infer(theta: Potentials, inference: Any, observed: Any = None, dtype: Any = "float64") -> Result:
    """Return marginals and log Z.

    Parameters
    ----------
    theta : Potentials
    inference : Inference or str
        A method or its spec, such as ``"tree_reweighted(n_iter=50, rho=0.5)"``.
    observed : (n,) ints, optional
        Labels to condition on, -1 = free (or a mask of allowed labels). Shapes stay full, observed variables come back
        one-hot, and ``log_partition`` sums over the completions, including the observed terms.
    dtype : {"float64", "float32"}
    """
    method: Inference = get("inference", inference)
    theta = checked(theta, dtype)
    return infer_given(method, theta, evidence(theta.graph, observed))


def find_map(theta: Potentials, solver: Any = "max_product", dtype: Any = "float64") -> MapResult:
    """Return the most probable labels: ``labels``, ``value`` (= theta·f(labels)) and whether it is ``optimal``."""
    found = get("map_solvers", solver)
    theta = checked(theta, dtype)
    theta.refuse_kernels(found.name)
    return found.solve(theta)


def value_and_gradient(
    theta: Potentials,
    labels: Any,
    *,
    loss: Any,
    inference: Any = None,
    gradient: Any = None,
    observed: Any = None,
    weights: Any = None,
    seed: int = 0,
    dtype: Any = "float64",
) -> tuple[float, Potentials]:
    """Return a loss and its gradient with respect to theta; losses are minimised.

    Parameters
    ----------
    theta : Potentials
    labels : (n,) ints, (n, L) bools or (n, L) floats
        What the loss sees: labels, -1 = hidden, a mask of allowed labels, or probabilities of labels (soft targets).
    loss : str
        A loss on marginals or an objective, such as ``"univariate_logistic"``; or a name of JGMT, such as
        ``"trunc_cl_trw_5"``, which brings inference and gradient along.
    inference : str, optional
        The method that the loss goes through; objectives that need none ignore it.
    gradient : str, optional
        ``truncated``, ``perturbation``, ``implicit``, ``backpropagation`` or ``direct``. Without it, objectives use their
        own gradient, exact methods their own derivative, all else ``truncated``.
    observed : (n,) ints, optional
        Inputs to condition on, -1 = free.
    weights : (n,) or (n, L) array, optional
        Per variable, or per variable and label.
    """
    theta = checked(theta, dtype)
    objective, setting, target = prepare(theta, labels, loss, inference, gradient, observed, weights, seed)
    value, d_theta = evaluate(objective, theta, target, setting)
    return _finite(float(np.real(value)), objective), d_theta.astype(theta.dtype)


def hessian_vector(
    theta: Potentials,
    labels: Any,
    direction: Potentials,
    *,
    loss: Any,
    inference: Any = None,
    observed: Any = None,
    weights: Any = None,
) -> Potentials:
    """Return the second derivative of a smooth loss along ``direction``: H v, with respect to theta.

    The gradient is evaluated at theta + i h v in complex arithmetic and its imaginary part divided by h, which has no
    rounding error of a difference ([S11] App. A.4 propagates dual numbers to the same end).
    """
    theta = checked(theta, "float64")
    if not isinstance(direction, Potentials) or direction.graph != theta.graph:
        raise InputError("direction must be Potentials of the same graph as theta.")
    if [group.kind for group in direction.groups] != [group.kind for group in theta.groups]:
        raise InputError("direction must hold groups of the same kinds as theta.")
    theta.refuse_kernels("a second derivative")
    objective, setting, target = prepare(theta, labels, loss, inference, None, observed, weights, 0)
    if not (objective.smooth and objective.integrable):
        raise InputError(f"{objective.name} has no second derivative; use a logistic or quadratic loss or a likelihood.")
    setting = setting._replace(gradient=Truncated())
    step = 1e-100
    moved = theta.like(theta.vector() + 1j * step * direction.vector())
    _, d_theta = evaluate(objective, moved, target, setting)
    return d_theta.like(d_theta.vector().imag / step)


def inference_gradient(
    theta: Potentials, labels: Any, *, loss: Any, inference: Any, observed: Any = None, weights: Any = None
) -> tuple[float, dict[str, np.ndarray]]:
    """Return a loss on marginals and its derivatives with respect to the inference method itself.

    So that the inference can be tuned together with the model ([S11] §9). The dictionary holds ``rho`` (one per factor),
    ``damping``, and ``init``: log of the initial messages, flat in the order of the slots. Mean field has no ``rho``, and
    its ``init`` is the log of the initial marginals; the smoothed LP has ``init`` alone, in units of eps.
    """
    theta = checked(theta, "float64")
    objective, setting, target = prepare(theta, labels, loss, inference, None, observed, weights, 0)
    if not isinstance(objective, Marginal) or observed is not None:
        raise InputError("inference_gradient takes a loss on marginals and no observed variables.")
    return objective.inference_gradient(theta.written_out(), target, setting)


def prepare(
    theta: Potentials, labels: Any, loss: Any, inference: Any, gradient: Any, observed: Any, weights: Any, seed: int
) -> tuple[Objective, Setting, Target]:
    """Check a combination of loss, inference and gradient, and the labels of one example."""
    objective = get_objective(loss)
    inference, gradient = named_setting(loss, inference, gradient)
    setting = make_setting(objective, inference, gradient, seed)
    graph = theta.graph
    target = Target(as_labeling(graph, labels), evidence(graph, observed), checked_weights(graph, weights))
    objective.admit(target)
    return objective, setting, target


def _finite(value: float, objective: Objective) -> float:
    if not np.isfinite(value):
        raise InputError(f"{objective.name} is {value}: the labels have probability zero, or inference has diverged.")
    return value


def checked(theta: Any, dtype: Any) -> Potentials:
    """Return potentials in a supported type, refused where no label is possible."""
    if not isinstance(theta, Potentials):
        raise InputError(f"theta must be Potentials, received {type(theta).__name__}.")
    try:
        number = np.dtype("O" if dtype is None else dtype)
    except TypeError:
        number = np.dtype("O")
    if number not in LARGEST:
        raise InputError(f"dtype must be 'float32' or 'float64', received {dtype!r}.")
    _check_size("unary", theta.unary_flat, LARGEST[number])
    if theta.has_tables_only:
        _check_size("factors", theta.factors_flat, LARGEST[number])
    for k, group in enumerate(() if theta.has_tables_only else theta.groups):
        if not group.largest <= LARGEST[number]:
            raise InputError(f"groups[{k}] may reach {group.largest:g}; finite potentials may be up to {LARGEST[number]:g}.")
    theta = theta.astype(number)
    if theta.is_finite:
        return theta.marked_finite()
    check_possible(theta)
    return theta


def _check_size(what: str, values: np.ndarray, largest: float) -> None:
    """Refuse finite potentials whose sums could leave the range of floats."""
    low, high = float(values.min(initial=0)), float(values.max(initial=0))  # as float32, the limit itself would overflow
    if low == -np.inf:
        low = float(values[values > -np.inf].min(initial=0))
    if max(-low, high) > largest:
        worst = low if -low > high else high
        raise InputError(
            f"{what} potentials hold {worst:g}; finite ones may be up to {largest:g} in size (-inf forbids a label)."
        )
