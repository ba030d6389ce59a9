"""Positions of sequences, each joined to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from backfield.data.codecs import Codec, TokenCodec, is_tokens
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.structures.base import Instance, Structure


@dataclass(frozen=True, repr=False)
class Chain(Structure, name="chain"):
    """Sequences: (T, F) arrays, CSR matrices, or lists of {feature: value} dicts; labels are integers or texts."""

    unit: ClassVar[tuple[str, str]] = ("chain", "position")
    label_kinds: ClassVar[str] = "biuU"
    chains: ClassVar[bool] = True
    codec: ClassVar[Codec] = TokenCodec()

    def holds(self, x: Any, y: Any = None) -> bool:
        """Whether x is a sequence of rows or of dicts."""
        if is_tokens(x) or hasattr(x, "tocsr"):
            return True
        return (
            isinstance(x, np.ndarray | list)
            and np.ndim(x) == 2
            and (y is None or np.ndim(y) == 1 or np.asarray(y).dtype == bool)
        )

    def learn_names(self, X: Sequence[Any]) -> dict[str, int] | None:
        """Return the columns of the features in dicts, in the order of their first use."""
        if not (len(X) and is_tokens(X[0])):
            return None
        names: dict[str, int] = {}
        for sequence in X:
            for position in sequence:
                for name, value in position.items():
                    names.setdefault(_feature(name, value), len(names))
        return names

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of a sequence."""
        if is_tokens(x):
            x = _matrix(x, names)
        elif not hasattr(x, "tocsr"):
            x = np.asarray(x)
        if x.ndim != 2 or x.shape[0] == 0:
            raise InputError(f"a sequence must have shape (T, F) with T >= 1, got {x.shape}.")
        return Instance((x.shape[0],), x.shape[0] - 1, x)

    def graph(self, sample: Instance, n_labels: int) -> Graph:
        """Return the chain."""
        return Graph.chain(sample.n_variables, labels=n_labels)


def _feature(name: str, value: Any) -> str:
    return f"{name}={value}" if isinstance(value, str) else name


def _matrix(sequence: list[dict[str, Any]], names: dict[str, int] | None) -> csr_matrix:
    """Return dicts as rows of a matrix; features that were never seen in training have no weight."""
    if names is None:
        raise InputError("this is a list of dicts, but the model was fitted on arrays.")
    columns, values, ptr = [], [], [0]
    for position in sequence:
        for name, value in position.items():
            at = names.get(_feature(name, value))
            if at is not None:
                columns.append(at)
                values.append(1.0 if isinstance(value, str) else value)
        ptr.append(len(columns))
    try:
        return csr_matrix((np.array(values, dtype=np.float64), columns, ptr), shape=(len(sequence), len(names)))
    except (TypeError, ValueError):
        raise InputError("values of features must be numbers or strings.") from None
