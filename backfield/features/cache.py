"""Features kept on disk, one ``.npy`` file per array, named by the hash of what they were made from.

The name is sha256(version, recipe, dtype, shape, bytes of the image): a changed image or parameter is another file, so
nothing in a cache ever becomes wrong and any of it may be deleted at any time. Arrays come back memory-mapped, so
the features of a data set need not fit in memory; files are written whole or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from backfield.atomic import replacing
from backfield.errors import InputError

#: Goes into every name: raise it when the numbers of any feature change.
VERSION = 1

Arrays = tuple[np.ndarray, ...]
Progress = Callable[[int, int], None]


class FeatureCache:
    """A folder of feature arrays.

    Parameters
    ----------
    folder : where the files are; it is made when the first one is written
    mmap : return arrays memory-mapped (read-only) instead of read into memory
    """

    def __init__(self, folder: str | Path, mmap: bool = True) -> None:
        self.folder = Path(folder)
        self.mmap = mmap

    def get(self, image: np.ndarray, recipe: str, n_arrays: int, compute: Callable[[], Arrays]) -> Arrays:
        """Return the ``n_arrays`` arrays that ``recipe`` makes of ``image``; compute and keep them where they are not."""
        paths = [self.folder / f"{_key(image, recipe)}-{k}.npy" for k in range(n_arrays)]
        kept = [self._load(path) for path in paths]
        if any(array is None for array in kept):
            for path, array in zip(paths, compute(), strict=True):
                _write(path, array)
            kept = [self._load(path) for path in paths]
        if any(array is None for array in kept):
            raise InputError(f"the feature cache {self.folder} is corrupt; delete it.")
        return tuple(array for array in kept if array is not None)

    def _load(self, path: Path) -> np.ndarray | None:
        try:
            return np.load(path, mmap_mode="r" if self.mmap else None, allow_pickle=False)
        except (OSError, ValueError, EOFError):  # absent, or truncated by a crash: recompute it
            return None


def _key(image: np.ndarray, recipe: str) -> str:
    digest = hashlib.sha256(f"{VERSION}|{recipe}|{image.dtype.str}|{image.shape}|".encode())
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


def _write(path: Path, array: np.ndarray) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot write the feature cache {path.parent}: {error.strerror or error}.") from error


class LazyFeatures(Sequence[Any]):
    """The features of a sequence of images, computed (or read from the cache) each time one is asked for.

    ``fit`` takes any sequence of examples, so this stands in for a list that would not fit in memory.

    Parameters
    ----------
    transform_one : image -> features, e.g. ``PixelFeatures(cache_dir=...).transform_one``
    images : any sequence of what ``transform_one`` takes
    """

    def __init__(self, transform_one: Callable[[Any], Any], images: Sequence[Any]) -> None:
        self.transform_one = transform_one
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> LazyFeatures: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return LazyFeatures(self.transform_one, self.images[index])
        return self.transform_one(self.images[index])


def transform_all(transform_one: Callable[[Any], Any], images: Sequence[Any], progress: Progress | None = None) -> list[Any]:
    """Return ``transform_one`` of each image; ``progress(done, total)`` is called after each, and errors name the image."""
    return list(_each(transform_one, checked_list(images), progress))


def _each(transform_one: Callable[[Any], Any], images: Sequence[Any], progress: Progress | None) -> Iterator[Any]:
    for k, image in enumerate(images):
        try:
            yield transform_one(image)
        except InputError as error:
            raise InputError(f"image {k}: {error}") from error
        if progress is not None:
            progress(k + 1, len(images))


def checked_list(images: Any) -> Sequence[Any]:
    """Refuse what is not a list of images, such as one image where a list of them is needed."""
    if isinstance(images, np.ndarray) and images.ndim < 4 and images.dtype != object:
        raise InputError(f"received one array of shape {images.shape}; a list of images is needed, or use transform_one.")
    if isinstance(images, str | bytes) or not hasattr(images, "__len__") or not hasattr(images, "__getitem__"):
        raise InputError(f"received {type(images).__name__}; a list of images is needed.")
    return images
