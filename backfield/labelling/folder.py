"""The folder of a session: its files, and the lock that keeps a second server away.

A folder holds pictures or volumes, as those of ``backfield fit`` do: with ``masks/`` it is one at every moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from backfield.data.formats.images import ENDINGS as PICTURES
from backfield.data.formats.images import image_files
from backfield.data.formats.stacks import by_stem, files_in
from backfield.errors import InputError
from backfield.labelling.files import Paintable, PictureFile, Slice, VolumeFile
from backfield.labelling.strokes import HIDDEN

LOCK = ".backfield-label.lock"


@dataclass
class Opened:
    """What a folder holds.

    Attributes
    ----------
    files : pictures or volumes
    images : all slices of all files
    painted : maps of labels of those that have some, by number
    problems : a sentence for each file that cannot be opened
    """

    files: list[Paintable] = field(default_factory=list)
    images: list[Slice] = field(default_factory=list)
    painted: dict[int, np.ndarray] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def n_labels(self) -> int:
        """How many labels the maps know: one more than the largest."""
        return max((int(labels[labels != HIDDEN].max()) + 1 for labels in self.painted.values()), default=0)

    def add(self, file: Paintable) -> None:
        """Take all slices of a file, or none."""
        maps = {len(self.images) + number: file.labels(number) for number in file.written()}
        self.painted |= {number: labels for number, labels in maps.items() if (labels != HIDDEN).any()}
        self.files.append(file)
        self.images += [Slice(file, number) for number in range(len(file))]


def open_folder(folder: Path) -> Opened:
    """Open the files of a folder (in ``images/`` or in itself); those that cannot be are named, unless all are."""
    inner = folder / "images" if (folder / "images").is_dir() else folder
    volumes = by_stem(files_in(folder))
    if volumes:
        _refuse_pictures(inner, next(iter(volumes.values())))
    kind, found = (VolumeFile, volumes) if volumes else (PictureFile, image_files(inner))
    masks = folder / "masks"
    masks.mkdir(exist_ok=True)
    opened = Opened()
    for name in sorted(found):
        try:
            opened.add(kind(found[name], masks))
        except InputError as error:
            opened.problems.append(str(error))
    if not opened.files:
        raise InputError(opened.problems[0])
    return opened


def lock(folder: Path) -> Any:
    """Return an open file that no other server of this folder has; refused where one runs."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; backfield label needs a folder of images or volumes.")
    file = open(folder / LOCK, "a")  # noqa: SIM115
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # no such locks on this system
        pass
    except OSError as error:
        file.close()
        raise InputError(f"another backfield label runs on {folder}; two would overwrite each other's strokes.") from error
    return file


def _refuse_pictures(inner: Path, volume: Path) -> None:
    for path in sorted(inner.iterdir()):
        if path.suffix.lower() in PICTURES:
            raise InputError(
                f"{inner} holds {path.name} and {volume.name}; pictures and volumes need a folder each, as for fit."
            )
