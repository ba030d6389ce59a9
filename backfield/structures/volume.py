"""Voxels of volumes, each joined to its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.data.format import Format
from backfield.data.kinds import ArrayFile
from backfield.data.stack_folder import StackFolder
from backfield.structures.lattice import Gridded


@dataclass(frozen=True, repr=False)
class Volume(Gridded, name="volume"):
    """Volumes: (D, H, W, F) arrays, labels (D, H, W); 6, 18 or 26 neighbours, or offsets."""

    neighbours: Any = 6

    n_axes: ClassVar[int] = 3
    form: ClassVar[str] = "(D, H, W, F)"
    unit: ClassVar[tuple[str, str]] = ("volume", "voxel")
    files: ClassVar[tuple[Format, ...]] = (ArrayFile(), StackFolder(3))

    def holds(self, x: Any, y: Any = None) -> bool:
        """Whether x is a volume: four axes, or labels with three."""
        mask = y is not None and np.ndim(y) == 3 and np.asarray(y).dtype.kind in "iu"
        return np.ndim(x) == 4 or mask
