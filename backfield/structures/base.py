"""What a structure is: how an entry of X and its labels become a graph with features, and come back.

An estimator *has* a structure, and everything that depends on the form of the data asks it: fitting, predicting, shards,
the command line, the model file. A new structure is one file::

    @dataclass(frozen=True, repr=False)
    class Ring(Structure, name="ring"):
        '''Closed chains.'''

        def sample(self, x, names=None):
            x = np.asarray(x)
            if x.ndim != 2:
                raise InputError(f"a ring must have shape (T, F), received {x.shape}.")
            return Instance(shape=(len(x),), n_factors=len(x), node_features=x)

        def graph(self, sample, n_labels):
            t = np.arange(sample.n_variables)
            return Graph.from_edges(np.stack([t, (t + 1) % len(t)], axis=1), n_variables=len(t), labels=n_labels)

    bf.CRF(structure="ring").fit(X, y)

    class RingCRF(bf.CRF, structure="ring"):
        '''The same with a name.'''

Errors are :class:`InputError` in one sentence; callers put the number of the example in front.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np

from backfield.data.codecs import ArrayCodec, Codec
from backfield.data.format import Format
from backfield.data.kinds import ArrayFile
from backfield.data.label_sets import LabelSets
from backfield.data.windows import Window, read_window, shape_of
from backfield.errors import InputError
from backfield.graph import Graph
from backfield.indices import checked_csr
from backfield.registry import Component
from backfield.structures.constraints import Rules


@dataclass
class Instance:
    """One entry of X in the form that all structures share.

    Parameters
    ----------
    shape : tuple of int
        Shape of the labels: (T,) of a chain, (H, W) of an image. Variables are numbered row by row.
    n_factors : int
    node_features : (n, F) array or CSR matrix
    factor_features : (n_factors, D) array, optional
        Without it, factors have a constant only.
    node_types, factor_types : int arrays, optional
        Weights are tied per type.
    observed, weights, outputs : optional
        As in :class:`backfield.Sample`.
    graph : Graph, optional
        Where X brings its own graph.
    kernels : list of Points
        What each kernel over all pairs sees of the variables.
    parts : tuple of int, optional
        Where several entries of X follow one another (:meth:`Structure.join`), their numbers of variables.
    """

    shape: tuple[int, ...]
    n_factors: int
    node_features: Any
    factor_features: Any = None
    node_types: Any = None
    factor_types: Any = None
    observed: Any = None
    weights: Any = None
    outputs: Any = None
    graph: Graph | None = None
    kernels: list[Any] = field(default_factory=list)
    parts: tuple[int, ...] | None = None

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return math.prod(self.shape)

    @cached_property
    def starts(self) -> list[int]:
        """Where each of several entries of X starts, and the number of variables."""
        return list(accumulate(self.parts or (self.n_variables,), initial=0))


class BlockSize(NamedTuple):
    """What a type of variable or factor needs weights for; without ``n_outputs`` it is n_labels ** arity."""

    n_features: int
    arity: int
    n_outputs: int | None = None


class Structure(Component):
    """How data of one form become graphs with features, and predictions get the form of the data back."""

    room: ClassVar[str] = "structures"
    #: What an example and one of its variables are called.
    unit: ClassVar[tuple[str, str]] = ("example", "variable")
    #: Kinds of labels (of ``dtype.kind``): integers, and strings where a structure has them.
    label_kinds: ClassVar[str] = "biu"
    #: X says which labels each variable has, 0 .. its count - 1; else all variables have the classes that occur in y.
    fixed_labels: ClassVar[bool] = False
    #: Variables of a factor; structures with factors of several arities override :meth:`blocks`.
    arity: ClassVar[int] = 2
    #: Every graph is a path 0 - 1 - ... - n-1, for which there are faster evaluators.
    chains: ClassVar[bool] = False
    #: Axes along which an entry of X can be cut into tiles: those of its labels; 0 where it cannot.
    n_axes: ClassVar[int] = 0
    #: How an entry of X lies in a shard.
    codec: ClassVar[Codec] = ArrayCodec()
    #: Files are of this structure where nobody names one.
    claims_files: ClassVar[bool] = True
    #: Which files hold examples; packed folders always do.
    files: ClassVar[tuple[Format, ...]] = (ArrayFile(),)
    #: Files of other structures that it reads where it is named, by ``--model`` or by a model.
    files_if_named: ClassVar[tuple[Format, ...]] = ()

    def holds(self, x: Any, y: Any = None) -> bool:
        """Whether an entry of X (with these labels) is of this structure, where nobody says which it is."""
        return False

    def learn_names(self, X: Sequence[Any]) -> dict[str, int] | None:
        """Return the columns of named features in training data; None where features have no names."""
        return None

    def sample(self, x: Any, names: dict[str, int] | None = None) -> Instance:
        """Return the instance of an entry of X; ``names`` are those that :meth:`learn_names` returned."""
        raise NotImplementedError

    def samples(self, X: Sequence[Any], names: dict[str, int] | None = None) -> list[Instance] | None:
        """Return the instances of entries that are in memory; None where they are made one by one."""
        return None

    def join(self, X: Sequence[Any], names: dict[str, int] | None = None) -> Instance | None:
        """Return several entries of X as one instance, end to end, to learn or predict them at once; None: one by one."""
        return None

    def part(self, sample: Instance, first: int, last: int) -> Instance:
        """Return entries first .. last - 1 of those that :meth:`join` has joined."""
        raise NotImplementedError

    def graph(self, sample: Instance, n_labels: int) -> Graph:
        """Return the graph of an instance whose variables have ``n_labels`` labels each."""
        raise NotImplementedError

    def key(self, sample: Instance) -> Hashable | None:
        """Return what decides about the graph: it is built once for equal keys. None: built each time."""
        return sample.shape

    def acyclic(self, sample: Instance) -> bool:
        """Whether the graph of an instance is known to have no cycles: exact inference is cheap then."""
        return self.chains

    def n_labels(self, sample: Instance) -> int:
        """Return the largest number of labels of a variable; asked where X fixes them."""
        raise NotImplementedError

    def blocks(self, sample: Instance) -> tuple[dict[int, BlockSize], dict[int, BlockSize]]:
        """Return the types of variables and of factors that occur, and what each needs weights for."""
        nodes = _blocks("node", sample.node_types, sample.n_variables, sample.node_features, 1)
        factors = _blocks("factor", sample.factor_types, sample.n_factors, sample.factor_features, self.arity)
        return nodes, factors

    def kernel_energies(self) -> list[Any]:
        """Return what holds the weights of each kernel over all pairs; none in most structures."""
        return []

    def flat(self, y: Any, sample: Instance) -> np.ndarray | LabelSets:
        """Return the labels: (n,) values, an (n, L) mask of allowed labels or probabilities, or sets of values."""
        try:
            labels = np.asarray(y)
        except ValueError as error:
            raise InputError(f"labels must be an array of shape {sample.shape}.") from error
        values = labels.ndim == len(sample.shape) and labels.dtype.kind in self.label_kinds
        tables = labels.ndim == len(sample.shape) + 1 and labels.dtype.kind in "biuf"
        if not (values or tables):
            what = "integers or strings" if "U" in self.label_kinds else "integers"
            raise InputError(
                f"labels must be {what} of shape {sample.shape}, received {labels.dtype} of shape {labels.shape}."
            )
        if labels.shape[: len(sample.shape)] != sample.shape:
            raise InputError(f"labels have shape {labels.shape} and the {self.unit[0]} {sample.shape}; sizes must agree.")
        if tables:
            return labels.reshape(-1, labels.shape[-1])
        return labels if labels.dtype.kind == "U" else labels.astype(np.int64).reshape(-1)

    def extent(self, x: Any) -> tuple[int, ...]:
        """Return the shape of the labels of an entry of X, without reading it."""
        if self.n_axes == 0:
            raise InputError(
                f"tiles are for fields on pixels or voxels with few neighbours (grid, volume), not for {self.name}."
            )
        shape = shape_of(x, f"a tiled {self.unit[0]}")
        if len(shape) not in (self.n_axes, self.n_axes + 1) or 0 in shape:
            raise InputError(
                f"a tiled {self.unit[0]} must have {self.n_axes} axes and one of features, received shape {shape}."
            )
        return shape[: self.n_axes]

    def cut(self, x: Any, window: Window) -> Any:
        """Return a window of an entry of X, read into memory."""
        return read_window(x, window)

    def rules(self, labels: np.ndarray) -> Rules | None:
        """Return which of the labels of a model cannot follow each other, if there are such."""
        return None

    def shaped(self, values: Any, sample: Instance) -> Any:
        """Give values per variable the shape of the labels; lists (different label counts) stay lists."""
        return values.reshape(*sample.shape, *values.shape[1:]) if isinstance(values, np.ndarray) else values


def n_columns(features: Any, rows: int, kind: str) -> int:
    """Return F of features of nodes or factors that have shape (rows, F), without looking at their values."""
    what = "features" if kind == "node" else "features of factors"
    try:
        shape = np.shape(features) if not hasattr(features, "shape") else features.shape
    except ValueError as error:
        raise InputError(f"{what} must be a rectangular array.") from error
    if len(shape) != 2 or shape[0] != rows:
        raise InputError(f"{what} must have shape ({rows}, F), received {shape}.")
    return int(shape[1])


def checked_features(features: Any, rows: int, dtype: Any, kind: str) -> Any:
    """Return features of nodes or factors as (rows, F) of a type, dense or CSR, all finite."""
    n_columns(features, rows, kind)
    what = "features" if kind == "node" else "features of factors"
    if hasattr(features, "tocsr"):
        matrix = checked_csr(features.tocsr(), what).astype(dtype, copy=False)
        values = matrix.data
    else:
        matrix = np.asarray(features)
        if matrix.dtype.kind not in "biuf":
            raise InputError(f"{what} must be numbers, received dtype {matrix.dtype}.")
        matrix = np.ascontiguousarray(matrix, dtype=dtype)
        values = matrix
    if not np.isfinite(values).all():
        raise InputError(f"{what} hold {_not_finite(matrix)}; they must be finite.")
    return matrix


def _not_finite(matrix: Any) -> str:
    """Say which entry of (rows, F) features is not finite, and where it is."""
    if hasattr(matrix, "tocsr"):
        matrix = matrix.tocoo()
        first = int(np.flatnonzero(~np.isfinite(matrix.data))[0])
        row, column, value = matrix.row[first], matrix.col[first], matrix.data[first]
    else:
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        value = matrix[row, column]
    return f"{'NaN' if np.isnan(value) else value} in row {int(row)}, column {int(column)}"


def checked_types(kind: str, types: Any, count: int) -> np.ndarray:
    """Return the type of each variable or factor."""
    types = np.zeros(count, dtype=np.int64) if types is None else np.asarray(types)
    if types.shape != (count,) or types.dtype.kind not in "iu" or (count and types.min() < 0):
        raise InputError(f"{kind}_types must be {count} integers >= 0.")
    return types


def _blocks(kind: str, types: Any, count: int, features: Any, arity: int) -> dict[int, BlockSize]:
    width = 0 if features is None else n_columns(features, count, kind)
    if types is None:
        return {0: BlockSize(width, arity)} if count else {}
    return {int(each): BlockSize(width, arity) for each in np.unique(checked_types(kind, types, count))}
