"""Where data lies, and its images: found, read, or refused in one line that says where to get it."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.limits import check_unpacked

#: Environment variable that names the folder with all data sets.
VARIABLE = "BACKFIELD_DATA"
#: Bytes of a pixel in memory, of which the library has two copies for a moment.
_PIXEL_BYTES = 4
#: Deflate makes a byte of at most so many; a pixel has one bit at least.
_DEFLATE = 1032
#: Looked at last: a folder beside the repository.
_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"


def data_dir(path: str | Path | None = None) -> Path:
    """Return the folder that holds the data sets: ``path``, else ``$BACKFIELD_DATA``, else ``../shared/data``.

    The last one lies beside the repository. A folder that is named must be there: the next one is not tried instead.
    """
    given = str(path) if path is not None else os.environ.get(VARIABLE)
    source = "--data" if path is not None else VARIABLE
    folder = Path(given).expanduser() if given else _BESIDE
    if folder.is_dir():
        return folder
    if given:
        raise InputError(
            f"the data folder {folder} (from {source}) does not exist; docs/data.md explains where to get the data."
        )
    raise InputError(
        f"there is no data folder: no --data, no {VARIABLE} and no {_BESIDE}; docs/data.md says where to get the data."
    )


def locate(name: str, data: str | Path | None, title: str, url: str) -> Path:
    """Return file or folder ``name`` of the data folder, or say what ``title`` is missing and that ``url`` has it."""
    path = data_dir(data) / name
    if path.exists():
        return path
    raise InputError(f"the {title} are missing: there is no {path}; get them from {url} as docs/data.md describes.")


def require(items: Sequence[Any], at_least: int, what: str, folder: Path) -> None:
    """Refuse a folder with fewer than ``at_least`` items."""
    if len(items) < at_least:
        raise InputError(f"{folder} has {len(items)} {what}, at least {at_least} are needed; is the copy complete?")


def read_image(path: str | Path) -> np.ndarray:
    """Return an image file as (H, W, 3) uint8; grey is repeated."""
    return np.asarray(open_picture(path).convert("RGB"))


def read_mask(path: str | Path) -> np.ndarray:
    """Return the (H, W) numbers of a mask file as they are stored: classes, not colours."""
    picture = open_picture(path)
    if picture.mode not in ("L", "P", "1", "I", "I;16"):
        raise InputError(f"{path}: a mask has one number per pixel, received an image of mode {picture.mode}.")
    return np.asarray(picture)


def open_picture(path: str | Path) -> Any:
    """Return a pillow image, read to its end."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("reading images needs pillow: pip install 'backfield[vision]'.") from error
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file.")
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:  # reads the header only
            check_pixels(path, picture)
            picture.load()
            return picture
    except InputError:
        raise
    except Image.DecompressionBombError as error:  # the limit of pillow
        raise InputError(f"{path}: cannot be read as an image: it declares more pixels than pillow reads.") from error
    except _DAMAGE as error:
        raise InputError(f"{path}: cannot be read as an image.") from error


#: What pillow raises for files that are damaged.
_DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, OverflowError, struct.error, zlib.error, MemoryError)


def check_pixels(path: str | Path, picture: Any) -> None:
    """Refuse a picture that declares more pixels than the limit, or than its bytes can hold."""
    pixels = picture.width * picture.height
    check_unpacked(path, _PIXEL_BYTES * pixels)
    if picture.format == "PNG" and pixels > _DEFLATE * 8 * os.path.getsize(path):
        raise InputError(f"{path}: cannot be read as an image: it declares more pixels than its data hold.")


def same_size(image: np.ndarray, mask: np.ndarray, image_path: Path, mask_path: Path) -> None:
    """Refuse a mask of another size than its image."""
    if image.shape[:2] != mask.shape:
        sizes = [f"{width}x{height}" for height, width in (image.shape[:2], mask.shape)]
        raise InputError(f"{mask_path} is {sizes[1]} pixels but {image_path} is {sizes[0]}.")


def seeded_split(n: int, n_train: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted indices of ``n_train`` random items out of ``n``, and of the others."""
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_train]), np.sort(order[n_train:])
