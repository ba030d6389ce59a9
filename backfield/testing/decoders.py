"""Contracts of decoders: marginals or theta -> a prediction for each variable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from backfield.graph import Potentials
from backfield.testing.contract import GENERAL, Contract, check, close, require
from backfield.testing.models import enumerate_model, models


def check_decoder(part: Any) -> None:
    """Raise AssertionError unless a decoder keeps to the contracts of its room.

    Parameters
    ----------
    part : Decoder, class or str
        A decoder, its class, or its spec. Where it raises InputError for a kind of graph, simpler kinds are tried.
    """
    check("decoders", part, CONTRACTS)


def decode(decoder: Any, theta: Potentials, outputs: np.ndarray | None = None) -> Any:
    """Return the prediction at exact marginals, which are given only to a decoder that needs them."""
    return decoder.decode(theta, enumerate_model(theta)[1] if decoder.needs_marginals else None, outputs)


def examples(decoder: Any, n: int) -> Iterator[tuple[np.random.Generator, Potentials]]:
    """Yield models that the decoder takes."""
    return models(lambda theta: decode(decoder, theta), n)


def predictions(decoder: Any) -> None:
    """A prediction is one label per variable, of those that the variable has, or one row of probabilities."""
    for _, theta in examples(decoder, 15):
        found = decode(decoder, theta)
        require(len(found) == theta.graph.n_variables, f"{len(found)} predictions for {theta.graph.n_variables} variables")
        if isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype.kind in "iu":
            require(((found >= 0) & (found < theta.graph.labels)).all(), f"labels {found} for {theta.graph.labels} labels")
            continue
        for row, count in zip(found, theta.graph.labels, strict=True):
            require(np.shape(row) == (count,), f"a prediction of shape {np.shape(row)} for {count} labels")
            require(np.min(row) >= 0, "a negative probability")
            close(np.sum(row), 1.0, 1e-6, "the sum of a prediction and 1")


def outputs(decoder: Any) -> None:
    """``outputs``, the variables that are asked for, may be all of them, which is the same as None, or none at all."""
    for _, theta in examples(decoder, 8):
        n = theta.graph.n_variables
        every = decode(decoder, theta, np.ones(n, dtype=bool))
        for a, b in zip(every, decode(decoder, theta), strict=True):
            close(a, b, 0.0, "predictions with all outputs and without outputs")
        require(len(decode(decoder, theta, np.zeros(n, dtype=bool))) == n, "no prediction for variables not asked for")


def repeats(decoder: Any) -> None:
    """The same input gives the same prediction and is left as it was; float32 is taken."""
    for _, theta in examples(decoder, 5):
        before = theta.vector()
        first, second = decode(decoder, theta), decode(decoder, theta)
        for a, b in zip(first, second, strict=True):
            close(a, b, 0.0, "two predictions")
        require((theta.vector() == before).all(), "another theta after the call")
        decode(decoder, theta.astype(np.float32))


#: What must hold for every decoder, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (*GENERAL, predictions, outputs, repeats)
