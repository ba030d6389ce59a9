"""A session: the images of a folder, their labels, and what strokes do to them. Slices of volumes are images.

Every change is on disk before the method that makes it returns. All methods may be called from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.labelling.files import Slice
from backfield.labelling.folder import Opened, lock, open_folder
from backfield.labelling.history import History
from backfield.labelling.labels import Label, added, changed, default_labels, read_labels, write_labels
from backfield.labelling.strokes import Box, Stroke

LABELS = "labels.json"


class Painted(NamedTuple):
    """A box of a map after a change, and the number of the change."""

    box: Box
    labels: np.ndarray
    revision: int


class Canvas:
    """The map of labels of one image: in memory, on disk, and its changes."""

    def __init__(self, image: Slice, labels: np.ndarray) -> None:
        self.image, self.labels = image, labels
        self.history = History()
        self.revision = 0

    def paint(self, stroke: Stroke) -> Painted:
        """Do a stroke."""
        box, after = stroke.change(self.labels)
        before = self.labels[box.slices].copy()
        if (before == after).all():
            return Painted(box, after, self.revision)
        painted = self._put(box, after)
        self.history.add(box, before, after)
        return painted

    def undo(self) -> Painted | None:
        """Take the last change back."""
        return self._move(self.history.undo, self.history.redo)

    def redo(self) -> Painted | None:
        """Do again what was taken back."""
        return self._move(self.history.redo, self.history.undo)

    def _move(self, forth: Callable[[], Any], back: Callable[[], Any]) -> Painted | None:
        found = forth()
        if found is None:
            return None
        try:
            return self._put(*found)
        except OSError:
            back()
            raise

    def _put(self, box: Box, values: np.ndarray) -> Painted:
        """Write the map with a box changed; where that fails, the map stays as it was."""
        labels = self.labels.copy()
        labels[box.slices] = values
        self.image.write(labels)
        self.labels = labels  # readers of the old array are not disturbed
        self.revision += 1
        return Painted(box, np.asarray(values), self.revision)


class Session:
    """Images, labels and scribbles of a folder.

    Parameters
    ----------
    folder : where the images or volumes are, in ``images/`` or in the folder itself
    labels : names of labels, for a folder that has none yet; or those that it has and more

    Attributes
    ----------
    files : images or volumes
    images : all slices of all files; their numbers are those of the methods
    problems : a sentence for each file that could not be opened
    """

    def __init__(self, folder: str | Path, labels: Sequence[str] = ()) -> None:
        self.folder = Path(folder)
        self._lock = threading.RLock()
        self._file = lock(self.folder)
        try:
            opened = open_folder(self.folder)
            self.files, self.images, self.problems = opened.files, opened.images, opened.problems
            self._canvases = {k: Canvas(self.images[k], painted) for k, painted in opened.painted.items()}
            self._painted = set(self._canvases)
            self.labels = self._open_labels(list(labels), opened)
            self.label_changes = 0
        except BaseException:
            self._file.close()
            raise

    def _open_labels(self, names: list[str], opened: Opened) -> list[Label]:
        """Return the labels that the folder has and those that are asked for; write them down."""
        kept = read_labels(self.folder / LABELS)
        used = opened.n_labels
        if kept is None:
            labels = default_labels(names or ["background", "object"], used)
        else:
            if names[: len(kept)] != [label.name for label in kept][: len(names)]:
                listed = ", ".join(label.name for label in kept)
                raise InputError(f"{self.folder / LABELS} has the labels {listed}; --labels may only add others after them.")
            labels = kept
            for name in [*names[len(kept) :], *(f"class {k}" for k in range(max(len(kept), len(names)), used))]:
                labels = added(labels, name)
        if len(labels) < 2:
            raise InputError(f"at least two labels are needed, received {[label.name for label in labels]}.")
        write_labels(self.folder / LABELS, labels)
        return labels

    def canvas(self, image: int) -> Canvas:
        """Return the map of an image."""
        with self._lock:
            if not 0 <= image < len(self.images):
                raise InputError(f"there is no image {image}; there are 0 .. {len(self.images) - 1}.")
            if image not in self._canvases:
                self._canvases[image] = Canvas(self.images[image], self.images[image].labels())
            return self._canvases[image]

    def paint(self, image: int, content: Any) -> Painted:
        """Do a stroke that somebody sent."""
        with self._lock:
            painted = self.canvas(image).paint(Stroke.parse(content, len(self.labels)))
            self._painted.add(image)
            return painted

    def undo(self, image: int) -> Painted | None:
        """Take the last change of an image back."""
        with self._lock:
            return self.canvas(image).undo()

    def redo(self, image: int) -> Painted | None:
        """Do again what was taken back."""
        with self._lock:
            return self.canvas(image).redo()

    def add_label(self, name: Any, colour: Any = None) -> None:
        """Add a label."""
        with self._lock:
            self._keep(added(self.labels, name, colour))

    def change_label(self, number: Any, name: Any = None, colour: Any = None) -> None:
        """Give a label another name or colour."""
        with self._lock:
            self._keep(changed(self.labels, number, name, colour))

    def _keep(self, labels: list[Label]) -> None:
        write_labels(self.folder / LABELS, labels)
        self.labels = labels
        self.label_changes += 1

    def snapshot(self) -> tuple[int, dict[int, tuple[np.ndarray, int]]]:
        """Return the number of labels, and map and revision of every image that has strokes (or had)."""
        with self._lock:
            canvases = ((k, self._canvases[k]) for k in sorted(self._painted))
            return len(self.labels), {k: (canvas.labels, canvas.revision) for k, canvas in canvases}

    def close(self) -> None:
        """Give the folder back to others."""
        self._file.close()
