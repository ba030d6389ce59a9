"""Theta given evidence, in the form that a method takes: the one place where a model is conditioned and read back.

Groups that a method does not support are written out as tables. Iterative methods, and those that run on other groups than
tables, keep the graph, with -inf in unary tables. All else (enumeration, junction tree, sampling, MAP solvers) gets the
reduced model, which is smaller: its marginals are expanded, and the constant of the fixed labels is added to log Z.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.conditioning import Evidence, Restriction
from backfield.inference.base import Inference, IterativeInference, Result


class Conditioned:
    """A model given evidence, refused where that is impossible.

    Attributes
    ----------
    theta : Potentials or None
        What inference runs on; None where the evidence leaves nothing open.
    constant : number
        What the fixed labels add to log Z.
    restriction : Restriction or None
        The way back from a reduced model; None where the graph is kept.
    """

    def __init__(self, theta: Potentials, evidence: Evidence | None, method: Inference | None = None) -> None:
        theta = supported(method, theta)
        self.theta: Potentials | None = theta
        self.constant: Any = 0.0
        self.restriction: Restriction | None = None
        if evidence is None:
            return
        reason = evidence.contradiction(theta)
        if reason:
            raise InputError(f"the evidence is impossible: {reason}")
        if isinstance(method, IterativeInference) or not (method is None or theta.has_tables_only):
            self.theta = evidence.forbid(theta)
            return
        self.restriction = evidence.restriction
        self.theta, self.constant = self.restriction.reduce(theta)

    def expand(self, mu: Potentials | None, constant: float = 1.0) -> Potentials:
        """Return full marginals, or the full adjoint of theta (``constant`` = adjoint of the constant)."""
        if self.restriction is not None:
            return self.restriction.expand(mu, constant)
        assert mu is not None
        return mu

    def expand_vjp(self, d_mu: Potentials) -> Potentials:
        """Return the adjoint of the reduced marginals."""
        if self.restriction is None:
            return d_mu
        reduced = self.restriction.expand_vjp(d_mu)
        assert reduced is not None
        return reduced


def supported(method: Inference | None, theta: Potentials) -> Potentials:
    """Return theta with its groups as they are where a method supports them, else written out; MAP solvers read both.

    Kernels are chosen by the groups, not by what their tables are written out to: a tile has the kernels of the whole.
    """
    if method is None or method.supports(theta):
        return theta
    theta.refuse_kernels(method.name)
    return theta.written_out().marked_formless()


def infer_given(method: Inference, theta: Potentials, evidence: Evidence | None) -> Result:
    """Return marginals and log Z of ``theta`` given evidence."""
    model = Conditioned(theta, evidence, method)
    if model.theta is None:
        return Result(model.expand(None).astype(theta.dtype), float(model.constant.real))
    run = method.infer(model.theta)
    if model.restriction is None:
        return run
    return replace(run, marginals=model.expand(run.marginals), log_partition=run.log_partition + float(model.constant.real))


def beliefs_given(method: Inference, theta: Potentials, evidence: Evidence | None) -> np.ndarray:
    """Return the marginals of the variables alone, flat, of ``theta`` given evidence."""
    model = Conditioned(theta, evidence, method)
    if model.theta is not None and model.restriction is None:
        return method.beliefs(model.theta)
    mu = None if model.theta is None else method.infer(model.theta).marginals
    return model.expand(mu).astype(theta.dtype).unary_flat
