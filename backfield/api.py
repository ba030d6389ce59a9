"""The functions people call first: inference on given potentials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from backfield._component import get
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.conditioning import Restriction, check_possible
from backfield.graph.labeling import as_labeling
from backfield.inference import Inference, Result
from backfield.map_solvers import MapResult


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
    if observed is None:
        return method.infer(theta)
    restriction = Restriction(theta.graph, as_labeling(theta.graph, observed, "observed").allowed)
    reduced, constant = restriction.reduce(theta)
    if constant == -np.inf:
        raise InputError("the evidence is impossible: the observed labels together have probability zero (-inf).")
    if reduced is None:
        return Result(restriction.expand(None), float(constant))
    try:
        check_possible(reduced)
    except InputError as error:
        raise InputError(f"the evidence is impossible: {_named(str(error), restriction)}") from error
    run = method.restricted(reduced.graph, restriction.kept_factors).infer(reduced)
    marginals = restriction.expand(run.marginals)
    return replace(run, marginals=marginals, log_partition=run.log_partition + float(constant))


def find_map(theta: Potentials, solver: Any = "max_product", dtype: Any = "float64") -> MapResult:
    """Return the most probable labels: ``labels``, ``value`` (= theta·f(labels)) and whether it is ``optimal``."""
    return get("map_solvers", solver).solve(checked(theta, dtype))


def checked(theta: Any, dtype: Any) -> Potentials:
    """Return potentials in a supported type, refused where no label is possible."""
    if not isinstance(theta, Potentials):
        raise InputError(f"theta must be Potentials, got {type(theta).__name__}.")
    if str(np.dtype(dtype)) not in ("float32", "float64"):
        raise InputError(f"dtype must be 'float32' or 'float64', got {dtype!r}.")
    theta = theta.astype(dtype)
    check_possible(theta)
    return theta


def _named(message: str, restriction: Restriction) -> str:
    """Translate the number in a message about the reduced model to that of the full one."""
    kind, number, rest = message.split(" ", 2)
    table = restriction.kept_variables if kind == "variable" else restriction.kept_factors
    return f"{kind} {table[int(number)]} {rest}"
