"""Theta of one example -> a prediction: inference and decoding in the model that the observed inputs leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from backfield.api import infer
from backfield.decoders import Decoder
from backfield.errors import InputError
from backfield.estimators.samples import Sample
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Restriction
from backfield.graph.labeling import as_labeling
from backfield.inference import Inference


def decode(decoder: Decoder, method: Inference, theta: Potentials, sample: Sample, dtype: Any) -> Any:
    """Return labels (n,) of all variables, those of observed ones as observed, or what the decoder predicts instead."""
    graph = theta.graph
    outputs = _outputs(sample, graph)
    allowed = None if sample.observed is None else as_labeling(graph, sample.observed, "observed").allowed
    if allowed is None or allowed.all():
        mu = infer(theta, method, dtype=dtype).marginals if decoder.needs_marginals else None
        return decoder.decode(theta, mu, outputs)
    restriction = Restriction(graph, allowed)
    reduced, constant = restriction.reduce(theta)
    if np.isneginf(constant):
        raise InputError("the observed labels together have probability zero (-inf).")
    if reduced is None:
        return _original(graph, allowed, restriction, np.empty(0, dtype=np.int64))
    part = None if outputs is None else outputs[restriction.kept_variables]
    mu = infer(reduced, method.restricted(restriction), dtype=dtype).marginals if decoder.needs_marginals else None
    found = decoder.decode(reduced, mu, part)
    if np.ndim(found) == 1 and len(found) == reduced.graph.n_variables and np.asarray(found).dtype.kind in "iu":
        return _original(graph, allowed, restriction, found)
    return restriction.expand(mu).unary


def _outputs(sample: Sample, graph: Graph) -> np.ndarray | None:
    if sample.outputs is None:
        return None
    outputs = np.asarray(sample.outputs)
    if outputs.shape != (graph.n_variables,) or outputs.dtype != bool:
        raise InputError(f"outputs must be ({graph.n_variables},) booleans, got {outputs.dtype} of shape {outputs.shape}.")
    return outputs


def _original(graph: Graph, allowed: np.ndarray, restriction: Restriction, found: np.ndarray) -> np.ndarray:
    """Return labels of all variables: a label of the reduced model is the rank of one among those allowed."""
    rank = np.zeros(graph.n_variables, dtype=np.int64)
    rank[restriction.kept_variables] = found
    start = graph.layout.var_ptr[:-1]
    first = np.cumsum(np.concatenate([[0], np.add.reduceat(allowed.astype(np.int64), start)[:-1]]))
    return np.flatnonzero(allowed)[first + rank] - start
