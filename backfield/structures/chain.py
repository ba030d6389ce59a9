"""Positions of sequences, each joined to the next."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.data.codecs import Codec, TokenCodec, is_tokens
from backfield.data.format import Format
from backfield.data.kinds import ChainArrays, ColumnFile
from backfield.data.label_sets import LabelSets, has_sets
from backfield.data.token_files import ConlluFile, JsonLines
from backfield.errors import InputError
from backfield.features.named import feature_matrices, feature_matrix, learn_columns
from backfield.graph import Graph
from backfield.graph.builders import chains
from backfield.structures.base import BlockSize, Instance, Structure
from backfield.structures.constraints import Rules, rules


@dataclass(frozen=True, repr=False)
class Chain(Structure, name="chain"):
    """Sequences: (T, F) arrays, CSR matrices, or named features at each position; labels are integers or strings.

    The features of a position are a list of names, or a dict {name: value}, where a value is a number, or a text: {"word":
    "the"} is the feature "word=the" with ``separator`` "=". A list or dict as value has its own features, whose names
    follow after the separator. A label may be None (hidden) or a set of possible ones. ``constraints`` are transitions that
    cannot be, see :mod:`backfield.structures.constraints`. With ``order`` 2 there are weights of three labels in a row, too.
    Named features that occur fewer than ``min_count`` times in training have no weight.
    """

    separator: str = "="
    constraints: Any = None
    order: int = 1
    min_count: int = 1

    unit: ClassVar[tuple[str, str]] = ("chain", "position")
    label_kinds: ClassVar[str] = "biuU"
    chains: ClassVar[bool] = True
    codec: ClassVar[Codec] = TokenCodec()
    files: ClassVar[tuple[Format, ...]] = (ChainArrays(), ColumnFile(), ConlluFile(), JsonLines())

    def __post_init__(self) -> None:
        if not isinstance(self.order, int | np.integer) or isinstance(self.order, bool) or self.order not in (1, 2):
            raise InputError(
                f"chain: order must be 1 or 2, the number of earlier labels that a label sees; received {self.order!r}."
            )
        if isinstance(self.min_count, bool) or not isinstance(self.min_count, int) or self.min_count < 1:
            raise InputError(f"chain: min_count must be an integer >= 1, received {self.min_count!r}.")

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
        return learn_columns(X, self.separator, self.min_count)

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of a sequence."""
        if is_tokens(x):
            if names is None:
                raise InputError("the features have names, but the model was fitted on arrays.")
            x = feature_matrix(x, names, self.separator)
        elif not hasattr(x, "tocsr"):
            x = _dense(x)
        if x.ndim != 2 or x.shape[0] == 0:
            raise InputError(f"a sequence must have shape (T, F) with T >= 1, received {x.shape}.")
        return self._instance(x, (x.shape[0],))

    def samples(self, X: Sequence[Any], names: dict[str, int] | None = None) -> list[Instance] | None:
        """Return the instances of named features, read many sequences at a time."""
        if names is None or not all(map(is_tokens, X)):
            return None
        return [self._instance(x, (x.shape[0],)) for x in feature_matrices(X, names, self.separator)]

    def join(self, X: Sequence[Any], names: dict[str, int] | None = None) -> Instance | None:
        """Return the instance of sequences end to end, where all are of one kind."""
        if all(is_tokens(x) and len(x) > 0 for x in X):
            x, lengths = self.sample([position for x in X for position in x], names).node_features, [len(x) for x in X]
        elif all(_is_like(x, X[0]) for x in X):
            x, lengths = np.concatenate(list(X)), [len(x) for x in X]
        else:
            return None
        return self._instance(x, tuple(lengths))

    def part(self, sample: Instance, first: int, last: int) -> Instance:
        """Return some of the sequences that lie end to end."""
        starts = sample.starts
        return self._instance(sample.node_features[starts[first] : starts[last]], (sample.parts or sample.shape)[first:last])

    def _instance(self, x: Any, lengths: tuple[int, ...]) -> Instance:
        parts = lengths if len(lengths) > 1 else None
        pairs = x.shape[0] - len(lengths)
        if self.order == 1:
            return Instance((x.shape[0],), pairs, x, parts=parts)
        triples = sum(max(0, length - 2) for length in lengths)
        types = np.repeat([0, 1], [pairs, triples])
        return Instance((x.shape[0],), len(types), x, factor_types=types, parts=parts)

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
        if sample.parts is None:
            return Graph.chain(sample.n_variables, labels=n_labels, order=self.order)
        return chains(sample.parts, n_labels, self.order)

    def key(self, sample: Instance) -> Hashable | None:
        """Return the length; graphs of several sequences are not kept."""
        return sample.shape if sample.parts is None else None


def _is_like(x: Any, first: Any) -> bool:
    """Whether a sequence is an array of numbers that can follow the first one."""
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype.kind not in "biuf":
        return False
    return len(x) > 0 and x.shape[1] == first.shape[1]


def _dense(x: Any) -> np.ndarray:
    try:
        return np.asarray(x)
    except ValueError as error:
        raise InputError("the positions of a sequence have different numbers of features.") from error
