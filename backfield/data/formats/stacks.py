"""Images and volumes in NIfTI, TIFF and zarr files, read by windows and written with the geometry of the input.

A :class:`Stack` looks like an array (``shape``, ``dtype``, windows by ``[...]``) with channels last. zarr, TIFF and plain
NIfTI are read where a window lies; ``.nii.gz`` has no inner places and is unpacked once. What a file declares is compared
with the limit of ``backfield.limits`` before it is read; whatever a damaged file makes a library raise becomes one sentence.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.atomic import replacing_path
from backfield.data.outputs import Output
from backfield.errors import InputError
from backfield.limits import VARIABLE, check_unpacked, max_bytes, parse_json

#: Endings that are read.
ENDINGS = (".nii.gz", ".nii", ".tiff", ".tif", ".zarr")
#: The value of a mask whose class is not known, as in masks of pictures.
DONT_CARE = 255
#: A zarr array of three axes may be an image with at most so many channels, or a volume.
_MOST_CHANNELS = 16


class Opened(NamedTuple):
    """What a file holds: an array, the axis of its channels, the size of a voxel, and what a copy of it needs."""

    array: Any
    axes: str  # one letter per axis; "c": channels, "?": not known
    spacing: tuple[float, ...] | None
    header: Any = None
    folder: Path | None = None  # of the chunks of a zarr array


def ending_of(path: str | Path) -> str:
    """Return the ending by which a path is a stack; empty where it is none."""
    name = Path(path).name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending) and len(name) > len(ending)), "")


def stem_of(path: str | Path) -> str:
    """Return the name without its ending."""
    return Path(path).name[: -len(ending_of(path))]


def files_in(folder: Path) -> list[Path]:
    """Return the stacks in a folder's ``images/``, or in the folder itself."""
    inner = folder / "images"
    inner = inner if inner.is_dir() else folder
    if not inner.is_dir():
        return []
    return [path for path in sorted(inner.iterdir()) if ending_of(path) and not path.name.startswith(".")]


def by_stem(files: list[Path]) -> dict[str, Path]:
    """Return stacks by their names without endings; two of one name are refused."""
    found: dict[str, Path] = {}
    for path in files:
        if stem_of(path) in found:
            raise InputError(f"{path} and {found[stem_of(path)].name} have the same stem; which of them is meant?")
        found[stem_of(path)] = path
    return found


class Stack:
    """An image (``n_axes=2``) or a volume (3) in a file.

    Attributes
    ----------
    path : Path
    shape : tuple of int
        Of the axes, and of the channels where there are some.
    dtype : numpy dtype
    spacing : tuple of float or None
        Size of a pixel or voxel along each axis, where the file says it.
    order : tuple of int
        The axes as pictures have them: slices, rows, columns. NIfTI has columns first.
    header : object
        What the format keeps beside the numbers (affine of NIfTI).
    """

    def __init__(self, path: str | Path, n_axes: int) -> None:
        self.path, self.n_axes = Path(path), n_axes
        with _foreign(self.path):
            opened = _open(self.path)
            self._array, self._channel = opened.array, _channel_axis(opened.axes, n_axes, self.path)
            shape = [int(n) for n in self._array.shape]
            self.dtype = np.dtype(self._array.dtype)
        self.order = _picture_order(opened.axes.replace("c", "")[:n_axes])
        if self._channel is not None:
            shape.append(shape.pop(self._channel))
        self.shape, self.header, self._folder = tuple(shape), opened.header, opened.folder
        self.spacing = _checked_spacing(opened.spacing, n_axes, self.path)
        if 0 in self.shape or self.dtype.kind not in "biuf":
            raise InputError(f"{self.path}: must hold numbers, received {self.dtype} of shape {self.shape}.")

    def __reduce__(self) -> Any:
        return Stack, (self.path, self.n_axes)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        parts = [part for part in (index if isinstance(index, tuple) else (index,)) if part is not Ellipsis]
        window = [slice(*part.indices(n)) for part, n in zip(parts, self.shape, strict=False)]
        window += [slice(0, n) for n in self.shape[len(window) :]]
        self._check_size(window)
        if self._channel is not None:
            window.insert(self._channel, window.pop())
        if self._folder is not None:
            self._check_chunks(self._folder, window)
        with _foreign(self.path):
            found = np.asarray(self._array[tuple(window)])
        return found if self._channel is None else np.moveaxis(found, self._channel, -1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self[...]
        return values if dtype is None else values.astype(dtype, copy=False)

    def _check_size(self, window: list[slice]) -> None:
        wanted = math.prod(len(range(*part.indices(n))) for part, n in zip(window, self.shape, strict=True))
        chunks = getattr(self._array, "chunks", None) or (0,)
        declared = max(wanted, math.prod(chunks)) * self.dtype.itemsize
        if self.path.is_file():
            check_unpacked(self.path, declared)
        elif declared > max_bytes():
            raise InputError(
                f"{self.path} declares {declared} bytes to be read at once, more than the limit of {max_bytes()}; use "
                f"tiles, or set {VARIABLE}."
            )

    def _check_chunks(self, folder: Path, window: list[slice]) -> None:
        """Refuse files of chunks that are larger than their numbers: what they unpack to is not limited."""
        sizes = [max(int(n), 1) for n in getattr(self._array, "shards", None) or self._array.chunks]  # zarr 2 has no shards
        most = _most_packed(math.prod(sizes) * self.dtype.itemsize)
        ranges = [range(part.start // n, -(-part.stop // n)) for part, n in zip(window, sizes, strict=True)]
        for place in itertools.product(*ranges):
            for file in _chunk_files(folder, place):
                if file.is_file() and file.stat().st_size > most:
                    raise InputError(
                        f"{self.path}: the chunk {file.name} has more bytes than its numbers need; it is damaged."
                    )


def _chunk_files(folder: Path, place: tuple[int, ...]) -> Iterator[Path]:
    """Yield where a chunk may be: zarr 2 and 3, with dots or slashes."""
    for mark in "./":
        name = mark.join(map(str, place))
        yield folder / name
        yield folder / f"c{mark}{name}"


def _most_packed(declared: int) -> int:
    """Return the bytes that packed numbers may have: hardly more than they have unpacked."""
    return 2 * declared + 2**16


def possible_axes(path: str | Path) -> tuple[int, ...]:
    """Return how many axes a file may have beside channels: 2 (an image), 3 (a volume), or both."""
    with _foreign(Path(path)):
        opened = _open(Path(path))
    n = len(opened.axes)
    if "?" not in opened.axes:
        return (n - opened.axes.count("c"),)
    if opened.spacing is not None:
        return (len(opened.spacing),)
    if n == 3:
        return (2, 3) if opened.array.shape[-1] <= _MOST_CHANNELS else (3,)
    return {2: (2,), 4: (3,)}.get(n, ())


def read_mask(path: str | Path, image: Stack) -> np.ndarray:
    """Return the classes of an image or volume as int32, -1 where they are not known (255, or negative)."""
    mask = Stack(path, image.n_axes)
    shape = mask.shape[:-1] if len(mask.shape) > image.n_axes and mask.shape[-1] == 1 else mask.shape
    if shape != image.shape[: image.n_axes]:
        raise InputError(f"{path} has shape {shape} but {image.path} has {image.shape[: image.n_axes]}; sizes must agree.")
    values = mask[...].reshape(shape)
    if values.dtype.kind == "f":
        if not np.isfinite(values).all() or (values != np.round(values)).any() or abs(values).max() > 2**31 - 1:
            raise InputError(f"{path}: a mask holds classes, which are integers; received other numbers.")
    elif values.size and int(values.max()) > 2**31 - 1:
        raise InputError(f"{path}: classes must be below 2**31, received {values.max()}.")
    labels = values.astype(np.int32)
    return np.where((labels == DONT_CARE) | (labels < 0), np.int32(-1), labels)


def write_stack(path: str | Path, values: np.ndarray, like: Stack) -> None:
    """Write labels or probabilities (one more axis) in the format that the path names, whole or not at all.

    The geometry is that of ``like``: the affine of NIfTI, the spacing of a TIFF.
    """
    path, ending = Path(path), ending_of(path)
    values = _narrow(np.asarray(values))
    if ending == ".zarr":
        output = Output(path, values.shape, (256,) * 2 if values.ndim == 2 else (64,) * values.ndim)
        output.write(tuple(slice(0, n) for n in values.shape), values)
        output.close()
        return
    with replacing_path(path) as temporary:
        (_write_nifti if ending.startswith(".nii") else _write_tiff)(temporary, values, like)


def _narrow(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return values.astype(np.float32, copy=False)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    return values.astype(
        next(t for t in (np.uint8, np.int16, np.int32, np.int64) if np.iinfo(t).min <= low <= high <= np.iinfo(t).max)
    )


@contextmanager
def _foreign(path: Path) -> Iterator[None]:
    """Turn what a library raises about a file into one sentence."""
    try:
        yield
    except InputError:
        raise
    except ImportError as error:
        raise InputError(
            f"{path} needs the packages for volumes: pip install 'backfield[volumes]' ({error.name})."
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except Exception as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path}: cannot be read as {_NAMES[ending_of(path)]}; the file is damaged ({reason}).") from error


_NAMES = {".nii.gz": "NIfTI", ".nii": "NIfTI", ".tif": "TIFF", ".tiff": "TIFF", ".zarr": "zarr", "": "a stack"}


def _package(name: str) -> Any:
    """Import a package of the extra ``volumes``."""
    return importlib.import_module(name)


def _open(path: Path) -> Opened:
    if not path.exists():
        raise InputError(f"{path}: no such file.")
    ending = ending_of(path)
    return {".zarr": _open_zarr, ".tif": _open_tiff, ".tiff": _open_tiff}.get(ending, _open_nifti)(path)


def _open_nifti(path: Path) -> Opened:
    nibabel = _package("nibabel")
    image = nibabel.load(path)
    voxels = _Voxels(path, image)
    axes = "xyzc" if len(voxels.shape) == 4 else "xyz"[: len(voxels.shape)] if len(voxels.shape) < 4 else "?" * 5
    with nibabel.openers.ImageOpener(path) as file:
        header = type(image.header).from_fileobj(file, check=False)  # checked, a size of 0 would have become 1
    return Opened(voxels, axes, tuple(abs(float(z)) for z in header.get_zooms()[: min(3, len(voxels.shape))]), image)


class _Voxels:
    """The numbers of a NIfTI file, as its header scales them; a packed file is unpacked on the first request, and kept."""

    def __init__(self, path: Path, image: Any) -> None:
        self.path, self.proxy, self.kept = path, image.dataobj, None
        shape = tuple(int(n) for n in image.shape)
        while len(shape) > 3 and shape[-1] == 1:
            shape = shape[:-1]
        if len(shape) < 2 or min(shape) < 1:
            raise InputError(f"{path}: a NIfTI file has two or more axes of positive sizes; the header declares {shape}.")
        stored = np.dtype(image.header.get_data_dtype())
        self.shape, self.declared = shape, math.prod(shape) * stored.itemsize
        scaled = (float(self.proxy.slope), float(self.proxy.inter)) != (1.0, 0.0)
        self.dtype = np.dtype(np.float64) if scaled else stored
        self.packed = path.name.lower().endswith(".gz")
        size = path.stat().st_size
        if not self.packed and self.declared + int(self.proxy.offset) > size:
            raise InputError(
                f"{path}: declares {self.declared} bytes of voxels from byte {int(self.proxy.offset)} on, but has {size} in "
                "all; it is cut short, or its header is damaged."
            )

    def __getitem__(self, window: Any) -> np.ndarray:
        if self.kept is None and (self.packed or tuple(self.proxy.shape) != self.shape):
            check_unpacked(self.path, self.declared)
            self.kept = np.asanyarray(self.proxy).reshape(self.shape)
        return np.asarray((self.proxy if self.kept is None else self.kept)[window])


def _open_tiff(path: Path) -> Opened:
    tifffile = _package("tifffile")
    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        letters, shape = series.axes, tuple(int(n) for n in series.shape)
        spacing = _tiff_spacing(file, len(letters.replace("C", "").replace("S", "")))
        plain = series.dataoffset is not None
        for page in () if plain else series.pages:
            if page is not None and max(page.databytecounts) > _most_packed(math.prod(page.chunks) * page.dtype.itemsize):
                raise InputError(f"{path}: a page has more bytes than its pixels need; the file is damaged.")
    keep = [k for k, letter in enumerate(letters) if shape[k] > 1 or letter in "YX"]
    axes = "".join("c" if letters[k] in "CS" else "z" if letters[k] in "ZQIT" else letters[k].lower() for k in keep)
    array: Any = tifffile.memmap(path, mode="r") if plain else _tiff_windows(path)
    if tuple(array.shape) != tuple(shape[k] for k in keep):
        array = np.asarray(array[...]).reshape([shape[k] for k in keep])
    return Opened(array, axes, spacing)


def _tiff_windows(path: Path) -> Any:
    """Return an array that reads the pages or tiles of a window; without zarr, all of it."""
    tifffile = _package("tifffile")
    try:
        zarr = _package("zarr")
    except ImportError:
        return tifffile.imread(path)
    return zarr.open(tifffile.imread(path, aszarr=True, level=0), mode="r")


def _tiff_spacing(file: Any, n_axes: int) -> tuple[float, ...] | None:
    """Return the size of a voxel as ImageJ writes it: pixels per unit, and the distance of slices."""
    meta, tags = file.imagej_metadata or {}, file.pages[0].tags
    if "spacing" not in meta or "XResolution" not in tags:
        return None
    per_unit = [tags[name].value for name in ("YResolution", "XResolution")]
    plane = [denominator / numerator if numerator else 0.0 for numerator, denominator in per_unit]
    return (float(meta["spacing"]), *plane)[-n_axes:]


def _open_zarr(path: Path) -> Opened:
    zarr = _package("zarr")
    _refuse_pickles(path, "")
    found = zarr.open(str(path), mode="r")
    if hasattr(found, "shape"):
        spacing = found.attrs.get("spacing")
        return Opened(found, "?" * found.ndim, None if spacing is None else tuple(spacing), folder=path)
    scales = found.attrs.get("multiscales") or found.attrs.get("ome", {}).get("multiscales")
    if not scales:
        raise InputError(f"{path}: is a zarr group without an image (OME multiscales); name the array inside it.")
    first = scales[0]["datasets"][0]
    inner = str(first["path"]).replace("\\", "/").strip("/")
    _refuse_pickles(path, inner)
    array = found[inner]
    names = [axis if isinstance(axis, str) else axis["name"] for axis in scales[0].get("axes", [])]
    sizes = next((t["scale"] for t in first.get("coordinateTransformations", []) if t["type"] == "scale"), None)
    if len(names) != array.ndim:
        return Opened(array, "?" * array.ndim, None, folder=path / inner)
    spatial = [k for k, name in enumerate(names) if name != "c"]
    axes = "".join("c" if name == "c" else "z" for name in names)
    spacing = None if sizes is None else tuple(float(sizes[k]) for k in spatial)
    return Opened(array, axes, spacing, folder=path / inner)


def _refuse_pickles(path: Path, inner: str) -> None:
    """Refuse arrays whose chunks are pickles: reading one would run code."""
    for name in (".zarray", ".zmetadata", "zarr.json"):
        file = path / inner / name
        if file.is_file() and "pickle" in json.dumps(parse_json(file.read_bytes())).lower():
            raise InputError(f"{path}: its chunks are pickles, which run code when read; write it with another codec.")


def _channel_axis(axes: str, n_axes: int, path: Path) -> int | None:
    """Return which axis holds channels; None where none does."""
    if "c" in axes and len(axes) == n_axes + 1:
        return axes.index("c")
    if len(axes) == n_axes and "c" not in axes:
        return None
    if "?" in axes and len(axes) == n_axes + 1:
        return n_axes
    what = {2: "an image", 3: "a volume"}[n_axes]
    raise InputError(f"{path}: {what} has {n_axes} axes, and one more with channels; this file has {len(axes)} axes.")


def _picture_order(axes: str) -> tuple[int, ...]:
    """Return slices, rows, columns among axes with these letters; those that are not known keep their places."""
    return tuple(sorted(range(len(axes)), key=lambda k: {"y": 1, "x": 2}.get(axes[k], 0)))


def _checked_spacing(spacing: Any, n_axes: int, path: Path) -> tuple[float, ...] | None:
    if spacing is None:
        return None
    try:
        sizes = tuple(float(size) for size in spacing)
    except (TypeError, ValueError):
        sizes = ()
    if len(sizes) != n_axes or not all(0 < size < math.inf for size in sizes):
        raise InputError(f"{path}: the spacing of its voxels must be {n_axes} positive numbers, received {spacing!r}.")
    return sizes


def _write_nifti(path: Path, values: np.ndarray, like: Stack) -> None:
    nibabel = _package("nibabel")
    if isinstance(like.header, nibabel.spatialimages.SpatialImage):
        header = like.header.header.copy()
        header.set_data_dtype(values.dtype)
        header["scl_slope"], header["scl_inter"] = np.nan, np.nan
        image = type(like.header)(values, like.header.affine, header)
    else:
        spacing = like.spacing or (1.0,) * like.n_axes
        image = nibabel.Nifti1Image(values, np.diag([*spacing, *[1.0] * (4 - len(spacing))]))
    nibabel.save(image, path)


def _write_tiff(path: Path, values: np.ndarray, like: Stack) -> None:
    tifffile = _package("tifffile")
    axes = "ZYX"[-like.n_axes :] + "C" * (values.ndim - like.n_axes)
    options: dict[str, Any] = {"metadata": {"axes": axes}, "photometric": "minisblack"}
    if like.spacing is not None and values.ndim == 3 == like.n_axes and values.dtype in (np.uint8, np.float32):
        options |= {"imagej": True, "resolution": tuple(1 / size for size in like.spacing[:0:-1])}
        options["metadata"] = options["metadata"] | {"spacing": like.spacing[0]}
    tifffile.imwrite(path, values, **options)
