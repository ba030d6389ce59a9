"""Positions of sequences, each joined to the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from backfield.data.codecs import Codec, TokenCodec, is_tokens
from backfield.data.format import Format
from backfield.data.kinds import ChainArrays, ColumnFile
from backfield.data.label_sets import LabelSets, has_sets
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.structures.base import BlockSize, Instance, Structure
from backfield.structures.constraints import Rules, rules

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, repr=False)
class Chain(Structure, name="chain"):
    """Sequences: (T, F) arrays, CSR matrices, or named features at each position; labels are integers or texts.

    The features of a position are a list of names, or a dict {name: value}, where a value is a number, or a text: {"word":
    "the"} is the feature "word=the" with ``separator`` "=". A list or dict as value has features of its own, whose names
    follow after the separator. A label may be None (hidden) or a set of possible ones. ``constraints`` are transitions that
    cannot be, see :mod:`backfield.structures.constraints`. With ``order`` 2 there are weights of three labels in a row, too.
    """

    separator: str = "="
    constraints: Any = None
    order: int = 1

    unit: ClassVar[tuple[str, str]] = ("chain", "position")
    label_kinds: ClassVar[str] = "biuU"
    chains: ClassVar[bool] = True
    codec: ClassVar[Codec] = TokenCodec()
    files: ClassVar[tuple[Format, ...]] = (ChainArrays(), ColumnFile())

    def __post_init__(self) -> None:
        if self.order not in (1, 2) or isinstance(self.order, bool):
            raise InputError(
                f"chain: order must be 1 or 2, the number of earlier labels that a label sees; got {self.order!r}."
            )

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
                for name, _ in named_features(position, self.separator):
                    names.setdefault(name, len(names))
        return names

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of a sequence."""
        if is_tokens(x):
            x = _matrix(x, names, self.separator)
        elif not hasattr(x, "tocsr"):
            x = np.asarray(x)
        if x.ndim != 2 or x.shape[0] == 0:
            raise InputError(f"a sequence must have shape (T, F) with T >= 1, got {x.shape}.")
        length = x.shape[0]
        if self.order == 1:
            return Instance((length,), length - 1, x)
        types = np.repeat([0, 1], [length - 1, max(0, length - 2)])
        return Instance((length,), len(types), x, factor_types=types)

    def blocks(self, sample: Instance) -> tuple[dict[int, BlockSize], dict[int, BlockSize]]:
        """Return one type of variables; pairs and, of order two, triples."""
        nodes, factors = super().blocks(sample)
        return nodes, {each: block._replace(arity=2 + each) for each, block in factors.items()}

    def flat(self, y: Any, sample: Instance) -> np.ndarray | LabelSets:
        """Return the labels of a sequence, or sets of them."""
        if not has_sets(y):
            return super().flat(y, sample)
        if len(y) != sample.n_variables:
            raise InputError(f"there are {len(y)} labels and {sample.n_variables} positions; sizes must agree.")
        return LabelSets.of(y)

    def rules(self, labels: np.ndarray) -> Rules | None:
        """Return what the constraints forbid."""
        return rules(self.constraints, labels)

    def graph(self, sample: Instance, n_labels: int) -> Graph:
        """Return the chain."""
        return Graph.chain(sample.n_variables, labels=n_labels, order=self.order)


def named_features(position: Any, separator: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the features of a position."""
    if not isinstance(position, dict):
        yield from _plain_names(position)
        return
    for name, value in position.items():
        if isinstance(value, str):
            yield f"{name}{separator}{value}", 1.0
        elif isinstance(value, dict | list | tuple | set | frozenset):
            for inner, number in named_features(value, separator):
                yield f"{name}{separator}{inner}", number
        else:
            yield name, value


def _plain_names(names: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(names, set | frozenset):
        names = sorted(names, key=str)  # the order of a set is another one in each run
    for name in names if isinstance(names, list | tuple) else [names]:
        if not isinstance(name, str):
            raise InputError(
                f"the features of a position are a dict or a list of texts, got {type(name).__name__} {name!r}."
            )
        yield name, 1.0


def _matrix(sequence: list[Any], names: dict[str, int] | None, separator: str) -> csr_matrix:
    """Return named features as rows of a matrix; those that were never seen in training have no weight."""
    if names is None:
        raise InputError("the features have names, but the model was fitted on arrays.")
    columns, values, ptr = [], [], [0]
    for position in sequence:
        for name, value in named_features(position, separator):
            at = names.get(name)
            if at is not None:
                columns.append(at)
                values.append(value)
        ptr.append(len(columns))
    try:
        from scipy.sparse import csr_matrix

        return csr_matrix((np.array(values, dtype=np.float64), columns, ptr), shape=(len(sequence), len(names)))
    except (TypeError, ValueError):
        raise InputError("values of features must be numbers or strings.") from None
