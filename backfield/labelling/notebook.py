"""``bf.label``: the page of ``backfield label`` in a notebook, on the machine of its kernel.

The server runs in a thread of the kernel's process, and the page is shown in a frame. It is the page of the command, with
its token, strokes on disk and export; what was painted comes back as arrays and as a model.
"""

from __future__ import annotations

import html
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.features import as_rgb
from backfield.labelling.export import fit
from backfield.labelling.field import Field
from backfield.labelling.serve import Served, check_packages
from backfield.labelling.session import Session
from backfield.labelling.strokes import HIDDEN

#: Seconds that the server may need to start.
_PATIENCE = 60.0


def label(
    images: str | Path | Iterable[Any],
    labels: Sequence[str] = (),
    *,
    folder: str | Path | None = None,
    model: str | Path | None = None,
    height: int = 720,
) -> Labelling:
    """Paint labels on images in a notebook and watch a model learn; needs ``pip install 'backfield[label]'``.

    Parameters
    ----------
    images : folder, or list of arrays
        A folder of images or volumes as for ``backfield label``; or images (H, W) or (H, W, 3), or volumes (D, H, W).
    labels : names of the labels
    folder : where arrays and strokes on them are kept; by default a place that is deleted with the result
    model : an exported model to start from
    height : of the frame, in pixels

    Examples
    --------
    >>> session = bf.label(images, ["sky", "tree"])  # doctest: +SKIP
    >>> session  # the last line of a cell shows the page                    # doctest: +SKIP
    >>> crf, scribbles = session.model, session.scribbles  # doctest: +SKIP
    """
    check_packages()
    temporary = None
    if isinstance(images, str | Path):
        if folder is not None:
            raise InputError("a folder has a place already; folder= is for arrays.")
        place = Path(images)
    else:
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="backfield-label-")
            folder = temporary.name
        place = Path(folder)
        _write(place, list(images))
    session = Session(place, labels)
    try:
        served = Served(session, model=None if model is None else Path(model), framed=True)
    except BaseException:
        session.close()
        raise
    return Labelling(served, height, temporary)


class Labelling:
    """A session in a notebook: the last line of a cell shows the page.

    Attributes
    ----------
    folder : where images and strokes are
    url : of the page, for a tab of its own
    """

    def __init__(self, served: Served, height: int, temporary: Any = None) -> None:
        self.folder, self.url, self.height = served.session.folder, served.url, height
        self._served, self._temporary = served, temporary  # which is deleted with this object
        self._fitted: tuple[Any, Any] | None = None
        up = threading.Event()
        self._thread = threading.Thread(target=served.run, args=[up.set], name="label", daemon=True)
        self._thread.start()
        if not up.wait(_PATIENCE):
            self.close()
            raise InputError(f"the server of {self.folder} did not start within {_PATIENCE:.0f} seconds.")

    def _repr_html_(self) -> str:
        url, problems = html.escape(self.url), "".join(f"<p>{html.escape(each)}</p>" for each in self._session.problems)
        frame = f'<iframe src="{url}" width="100%" height="{self.height}" style="border: 1px solid #d8dee4"></iframe>'
        return f'{problems}{frame}<p><a href="{url}" target="_blank">in a tab of its own</a></p>'

    @property
    def scribbles(self) -> list[np.ndarray]:
        """What is painted now: an array of labels for each image or volume, -1 where nobody has painted."""
        out, first = [], 0
        for file in self._session.files:
            whole = file.whole([self._session.canvas(first + number).labels for number in range(len(file))])
            out.append(np.where(whole == HIDDEN, -1, whole.astype(np.int64)))
            first += len(file)
        return out

    @property
    def model(self) -> Any:
        """The model of what is painted now, as a fitted :class:`backfield.GridCRF`: the one that Export writes."""
        n_labels, maps = self._session.snapshot()
        state = n_labels, {number: revision for number, (_, revision) in maps.items()}
        if self._fitted is None or self._fitted[0] != state:
            painted = {number: labels for number, (labels, _) in maps.items()}
            start = self._served.export.model
            prior = None if start is None else Field.load(start, n_labels)
            found = fit(self._session.images, painted, prior, lambda: False).estimator(n_labels)
            self._fitted = state, found
        return self._fitted[1]

    def close(self) -> None:
        """End the server; what was painted can still be asked for."""
        self._served.stop()
        self._thread.join(timeout=_PATIENCE)

    @property
    def _session(self) -> Session:
        return self._served.session


def _write(folder: Path, images: list[Any]) -> None:
    """Write images as PNG, volumes as TIFF: what a session opens."""
    if not images:
        raise InputError("received no images; at least one is needed.")
    inner = folder / "images"
    inner.mkdir(parents=True, exist_ok=True)
    if any(inner.iterdir()):
        raise InputError(f"{inner} holds images already; label the folder, or give another one.")
    width = len(str(len(images) - 1))
    for number, image in enumerate(images):
        _write_one(inner / str(number).zfill(width), np.asarray(image))


def _write_one(path: Path, image: np.ndarray) -> None:
    if image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (1, 3, 4)):
        from PIL import Image

        pixels = image if image.dtype == np.uint8 else np.rint(as_rgb(image) * 255).astype(np.uint8)
        Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels).save(path.with_suffix(".png"))
    elif image.ndim == 3 and image.dtype.kind in "biuf":
        try:
            import tifffile
        except ImportError as error:
            raise InputError("volumes need the package tifffile: pip install 'backfield[volumes]'.") from error
        tifffile.imwrite(path.with_suffix(".tif"), image, photometric="minisblack", metadata={"axes": "ZYX"})
    else:
        what = f"{image.dtype} {image.shape}"
        raise InputError(f"an image has shape (H, W) or (H, W, 3), a volume (D, H, W); received {what}.")
