"""Predictions tile by tile, equal to those of the whole image to the bit, in the memory of a tile.

n sweeps carry information over a known number of edges (:meth:`Inference.reach`). A tile with a halo of that
width has in its middle the marginals of the whole image, provided that all else is as there: tiles begin at the same colour
of the schedule, rho is that of the grid, scores of a row do not depend on other rows, and the kernels are those that the
potentials of the whole image need. The last is not known before all tiles were seen: they start with the fastest kernels;
where the demands of all together ask for safer ones, which is rare, they are done again with these.

Cost: that of the whole, times ((t + 2 h) / t)^d for tiles of side t and a halo h in d dimensions.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from backfield.api import checked
from backfield.data.outputs import Output
from backfield.data.samples import GridSample
from backfield.data.windows import Tile, Tiling, Window, checked_size
from backfield.errors import InputError
from backfield.estimators._assembly import located
from backfield.estimators._predicting import Predictor
from backfield.graph import Graph, Potentials
from backfield.inference.conditioned import supported
from backfield.structures import Instance
from backfield.training.execution.cluster import Cluster, one_thread
from backfield.training.execution.threads import in_order


@dataclass(frozen=True, eq=False)
class TilePredictor:
    """A model that answers for tiles of one entry of X at a time: with labels, marginals, or both."""

    predictor: Predictor
    tile: Any
    labels: bool
    marginals: bool

    def __call__(self, x: Any, number: int, outs: tuple[Any, ...], n_jobs: int, cluster: Cluster | None) -> tuple[Any, ...]:
        """Return what was asked for, written to ``outs``: arrays, paths, or None for new arrays."""
        with located(number):
            tiling = self.tiling(x)
        outputs = [Output(out, tiling.shape, tiling.size) for out in outs]
        rung = 0
        try:
            while not self._run(x, number, tiling, rung, outputs, n_jobs, cluster):
                rung += 1
            return tuple(output.close() for output in outputs)
        except BaseException:
            for output in outputs:
                output.discard()
            raise

    def tiling(self, x: Any) -> Tiling:
        """Return the tiles of an entry of X, refused where tiles would not give the predictions of the whole."""
        learned, settings = self.predictor.assembler.learned, self.predictor.assembler.settings
        if self.labels and not settings.decoder.local:
            raise InputError(
                f"decoder={settings.decoder!r} looks at the whole image at once, so it has no tiles; use 'max_marginal', or "
                "predict_proba."
            )
        for block in learned.layout.blocks:
            if block.energy.whole:
                raise InputError(
                    f"{block.energy!r} sees the whole image; how far it looks is not known, so it has no tiles."
                )
        shape = learned.reader.structure.extent(x)
        graph = learned.reader.structure.graph(Instance(shape, 0, None), len(learned.classes))
        halo, step = halo_of(graph, settings.inference.reach(graph))
        size = checked_size(self.tile, len(shape))
        for length, t, h in zip(shape, size, halo, strict=True):
            if t < min(h, length):
                raise InputError(
                    f"tile={self.tile!r} is smaller than the halo of {h} pixels that {settings.inference!r} needs; use {h} "
                    "or more (several times as much wastes little)."
                )
        return Tiling(shape, size, halo, step)

    def piece(self, x: Any, inner: Window, number: int, rung: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the answers for the middle of what was cut out, and the demand of all of it."""
        assembler = self.predictor.assembler
        settings = assembler.settings
        sample = self.predictor.sample(x, number)
        theta = checked(self.predictor.theta(sample, number), settings.dtype)
        with located(number):
            if not theta.is_finite:
                raise InputError("tiles need finite potentials; there are some that forbid a label (-inf).")
        theta = supported(settings.inference, theta)
        beliefs, demand = settings.inference.piece(theta, rung)
        mu = Potentials.from_flat(theta.graph, beliefs, np.empty(0, theta.dtype))
        answers = []
        if self.labels:
            found = settings.decoder.decode(theta, mu)
            narrow = np.min_scalar_type(len(assembler.learned.classes))  # of positions of classes: few bytes to send
            answers.append(found.astype(narrow) if found.ndim == 1 else found)
        if self.marginals:
            answers.append(mu.unary)
        structure = assembler.learned.reader.structure
        return [np.ascontiguousarray(structure.shaped(each, sample)[inner]) for each in answers], demand

    def _run(
        self, x: Any, number: int, tiling: Tiling, rung: int, outputs: list[Output], n_jobs: int, cluster: Cluster | None
    ) -> bool:
        """Answer for all tiles with the kernels of a rung; return whether they are enough for the whole image."""
        settings, total = self.predictor.assembler.settings, None
        results = self._pieces(x, number, tiling, rung, n_jobs, cluster)
        for tile, (answers, demand) in zip(tiling, results, strict=True):
            total = demand if total is None else np.maximum(total, demand)
            if not settings.inference.enough(rung, total, settings.dtype):
                return False
            for output, answer in zip(outputs, answers, strict=True):
                output.write(tile.core, answer if answer.ndim > len(tiling.shape) else self._classes(output)[answer])
        return True

    def _classes(self, output: Output) -> np.ndarray:
        """Return the classes, in files in the smallest type that holds them."""
        values = self.predictor.assembler.learned.classes.values
        if output.path is None or values.dtype.kind not in "iu" or values.min() < 0:
            return values
        return values.astype(np.min_scalar_type(values.max()))

    def _pieces(
        self, x: Any, number: int, tiling: Tiling, rung: int, n_jobs: int, cluster: Cluster | None
    ) -> Iterator[tuple[list[np.ndarray], np.ndarray]]:
        if cluster is not None:
            return self._on_workers(x, number, tiling, rung, cluster)
        singles = [(k, k + 1) for k in range(len(tiling))]
        one: Callable[[int, int], Any] = lambda k, _: self.cut_piece(x, tiling[k], number, rung)  # noqa: E731
        return (one(*each) for each in singles) if n_jobs == 1 else in_order(one, singles, n_jobs)

    def cut_piece(self, x: Any, tile: Tile, number: int, rung: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Cut a tile out of an entry of X and answer for it."""
        return self.piece(self._cut(x, tile), tile.inner, number, rung)

    def _cut(self, x: Any, tile: Tile) -> Any:
        return self.predictor.assembler.learned.reader.structure.cut(x, tile.outer)

    def _on_workers(self, x: Any, number: int, tiling: Tiling, rung: int, cluster: Cluster) -> Iterator[Any]:
        """Send the model once, and x with it where it is no array in memory: workers then read what they need."""
        cluster.slots()
        far = _portable(x)
        shared = cluster.hold((self, far))
        tasks = ((shared, tile, None if far is not None else self._cut(x, tile), number, rung) for tile in tiling)
        return cluster.map(_on_worker, tasks, ahead=2)


def _on_worker(shared: tuple[TilePredictor, Any], tile: Tile, given: Any, number: int, rung: int) -> Any:
    predictor, x = shared
    with one_thread():
        if given is not None:
            return predictor.piece(given, tile.inner, number, rung)
        return predictor.cut_piece(x() if isinstance(x, _Mapped) else x, tile, number, rung)


@dataclass(frozen=True)
class _Mapped:
    """A memory map to be opened by another process: numpy would pickle what it holds."""

    path: str
    dtype: Any
    shape: tuple[int, ...]
    offset: int
    order: Any

    def __call__(self) -> np.memmap:
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)


def _portable(x: Any) -> Any:
    """Return what workers open x from; None where it is in memory here and cut here."""
    if isinstance(x, np.memmap) and isinstance(x.base, mmap.mmap) and x.filename is not None:
        order: Any = "C" if x.flags.c_contiguous else "F"
        return _Mapped(str(x.filename), x.dtype, x.shape, x.offset, order)
    return None if isinstance(x, np.ndarray | list | tuple | GridSample) else x


def halo_of(graph: Graph, reach: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how far a tile must look along each axis, and at multiples of what it may begin to see the same colours."""
    lattice = graph.lattice
    if lattice is None:
        raise InputError("tiles are for grids of pixels or voxels.")
    longest = (max(abs(offset[k]) for offset in lattice.offsets) for k in range(len(lattice.shape)))
    # One more: the outermost variables that matter need all of their edges.
    return tuple((reach + 1) * each for each in longest), lattice.periods
