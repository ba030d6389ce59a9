"""Theta of one example -> a prediction: inference and decoding in the model that the observed inputs leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.api import checked, infer
from backfield.decoders import Decoder
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Evidence, evidence
from backfield.inference import Inference
from backfield.inference.conditioned import Conditioned, beliefs_given
from backfield.structures import Instance


def decode(
    decoder: Decoder, method: Inference, theta: Potentials, sample: Instance, dtype: Any, proba: bool = False
) -> tuple[Any, Any]:
    """Return labels (n,) of all variables, those of observed ones as observed, or what the decoder predicts instead.

    And the marginals of the variables, if the decoder needs them or ``proba`` asks for them: inference runs once.
    """
    graph = theta.graph
    outputs = _outputs(sample, graph)
    given = evidence(graph, sample.observed)
    mu = None
    if decoder.needs_marginals and decoder.needs_factors:
        mu = infer(theta, method, observed=sample.observed, dtype=dtype).marginals
    elif decoder.needs_marginals or proba:
        mu = unary_marginals(theta, method, given, dtype)
    return _labels(decoder, theta, mu, given, outputs), None if mu is None else mu.unary


def unary_marginals(theta: Potentials, method: Inference, given: Evidence | None, dtype: Any) -> Potentials:
    """Return the marginals of the variables; the factor tables are left empty."""
    theta = checked(theta, dtype)
    return Potentials.from_flat(theta.graph, beliefs_given(method, theta, given), np.empty(0, theta.dtype))


def _labels(
    decoder: Decoder, theta: Potentials, mu: Potentials | None, given: Evidence | None, outputs: np.ndarray | None
) -> Any:
    if given is None:
        return decoder.decode(theta, mu, outputs)
    model = Conditioned(theta, given)
    if model.theta is None:
        return _original(given, np.empty(0, dtype=np.int64))
    part = None if outputs is None else outputs[given.restriction.kept_variables]
    found = decoder.decode(model.theta, None if mu is None else _selected(mu, given), part)
    if np.ndim(found) == 1 and len(found) == model.theta.graph.n_variables and np.asarray(found).dtype.kind in "iu":
        return _original(given, found)
    assert mu is not None
    return mu.unary


def _selected(mu: Potentials, given: Evidence) -> Potentials:
    """Return the marginals of the reduced model; factor tables that are empty become zeros."""
    n_entries = len(given.restriction.target) - len(mu.unary_flat)
    if len(mu.factors_flat) < n_entries:
        mu = Potentials.from_flat(mu.graph, mu.unary_flat, np.zeros(n_entries, mu.unary_flat.dtype))
    return given.restriction.select(mu)


def _outputs(sample: Instance, graph: Graph) -> np.ndarray | None:
    if sample.outputs is None:
        return None
    outputs = np.asarray(sample.outputs)
    if outputs.shape != (graph.n_variables,) or outputs.dtype != bool:
        raise InputError(
            f"outputs must be ({graph.n_variables},) booleans, received {outputs.dtype} of shape {outputs.shape}."
        )
    return outputs


def _original(given: Evidence, found: np.ndarray) -> np.ndarray:
    """Return labels of all variables: a label of the reduced model is the rank of one among those allowed."""
    rank = np.zeros(given.graph.n_variables, dtype=np.int64)
    rank[given.restriction.kept_variables] = found
    start = given.graph.layout.var_ptr[:-1]
    first = np.cumsum(np.concatenate([[0], np.add.reduceat(given.allowed.astype(np.int64), start)[:-1]]))
    return np.flatnonzero(given.allowed)[first + rank] - start
