"""Learning from labelled regions of images of any size: crops with a halo, whose loss is that of the whole images.

A loss that is a sum over variables sees the marginals of labelled variables alone, and these depend on what n sweeps reach.
So an image is cut into tiles, those without labels are left out, and of the others the box around their labels is kept, with
a halo in which labels are hidden: every labelled variable counts once, with the marginals that it has in the whole image.
Memory is that of the labelled regions and their halos.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from backfield.data.sequences import checked_sequence
from backfield.data.windows import Tile, Tiling, Window, checked_size, read_window, shape_of
from backfield.errors import InputError
from backfield.estimators._assembly import located
from backfield.estimators._fitting import checked_sample_weight
from backfield.estimators._settings import Settings
from backfield.estimators._tiles import halo_of
from backfield.gradients import Truncated
from backfield.graph.labeling import is_known
from backfield.objectives.marginal import Marginal, strategy
from backfield.structures import Instance


class Crops(NamedTuple):
    """Examples for a fit."""

    X: list[Any]
    y: list[np.ndarray]
    sample_weight: np.ndarray


def labelled_crops(settings: Settings, X: Any, y: Any, sample_weight: Any, tile: Any) -> Crops:
    """Return the labelled regions of images or volumes, refused where their losses do not add up to that of the whole."""
    _check(settings)
    n_axes = settings.structure.n_axes
    if len(getattr(X, "shape", ())) == n_axes + 1 > 1 and len(getattr(y, "shape", ())) == n_axes:
        X, y = [X], [y]
    X, y = checked_sequence(X, "X"), checked_sequence(y, "y")
    if len(X) != len(y):
        raise InputError(f"received {len(X)} examples but {len(y)} labelings.")
    weight = checked_sample_weight(sample_weight, len(X))
    found = Crops([], [], np.zeros(0))
    counts = []
    for number in range(len(X)):
        before = len(found.X)
        with located(number):
            for x, labels in _crops(settings, X[number], y[number], tile):
                found.X.append(x)
                found.y.append(labels)
        counts.append(len(found.X) - before)
    if not found.X:
        raise InputError("there is nothing to learn from: all labels are hidden (-1).")
    return found._replace(sample_weight=np.repeat(weight, counts))


def _check(settings: Settings) -> None:
    objective = settings.objective
    if not isinstance(objective, Marginal) or objective.loss.cliques or objective.per_example:
        raise InputError(
            f"loss={objective!r} is not a sum over variables, so it does not add up over tiles; use univariate_logistic, "
            "univariate_quadratic or smoothed_error."
        )
    if not isinstance(strategy(settings.setting), Truncated):
        raise InputError("learning from tiles differentiates the sweeps themselves; use gradient='truncated'.")
    if isinstance(settings.params["class_weight"], str):
        raise InputError("class_weight='balanced' looks at whole images, so it has no tiles; give a dict of weights.")


def _crops(settings: Settings, x: Any, labels: Any, tile: Any) -> Iterator[tuple[Any, np.ndarray]]:
    structure = settings.structure
    shape = structure.extent(x)
    if shape_of(labels, "y") != shape:
        raise InputError(f"labels have shape {shape_of(labels, 'y')} and the {structure.unit[0]} {shape}; sizes must agree.")
    graph = structure.graph(Instance(shape, 0, None), 2)
    inference = settings.with_sweeps(max(settings.sweep_candidates, default=None)).inference  # the halo serves all of them
    halo, step = halo_of(graph, inference.reach(graph))
    tiling = Tiling(shape, checked_size(tile, len(shape)), halo, step)
    for each in tiling:
        box = _labelled_box(read_window(labels, each.core), each.core)
        if box is not None:
            crop = tiling.around(box)
            yield structure.cut(x, crop.outer), _hidden_outside(labels, crop)


def _labelled_box(labels: np.ndarray, core: Window) -> Window | None:
    """Return the smallest box around the labels that are known."""
    places = np.nonzero(is_known(labels))
    if len(places[0]) == 0:
        return None
    return tuple(
        slice(part.start + int(at.min()), part.start + int(at.max()) + 1) for part, at in zip(core, places, strict=True)
    )


def _hidden_outside(labels: Any, crop: Tile) -> np.ndarray:
    known = read_window(labels, crop.core)
    out = np.full(tuple(part.stop - part.start for part in crop.outer), -1, np.int64)
    out[crop.inner] = known
    return out
