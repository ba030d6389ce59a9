"""A folder of labelled images: ``images/`` and ``masks/`` with the same stems; a pixel of a mask is its class."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.atomic import replacing
from backfield.data.sequences import Lazy
from backfield.datasets import read_image, read_mask
from backfield.errors import InputError

#: Endings that are read; others in the folder are not looked at.
ENDINGS = (".png", ".jpg", ".jpeg")
#: The value of a mask's pixel whose class is not known.
DONT_CARE = 255


class ImageFolder(NamedTuple):
    """Stems, images (H, W, 3) uint8, and masks (H, W) int32 with -1 = don't care, or ``None`` if they were not asked for."""

    names: list[str]
    images: Any
    masks: Any


def read_image_folder(
    folder: str | Path, with_masks: bool = True, lazy: bool = False, positive: int | None = None
) -> ImageFolder:
    """Read the images of a folder, in the order of their names, and their masks.

    Parameters
    ----------
    folder
        Has ``images/`` and, ``with_masks``, ``masks/``. The images may also lie in the folder itself.
    with_masks
        Every image needs a mask of its size, and every mask an image.
    lazy
        Return sequences that read a file when they are asked for it.
    positive
        Pixels of masks with this number are class 1, all others class 0; else they are classes, and 255 = don't care.
    """
    folder = Path(folder)
    inner = folder / "images"
    if not inner.is_dir() and (not with_masks or (folder / "masks").is_dir()):
        inner = folder
    images = image_files(inner)
    names = sorted(images)
    if with_masks:
        masks = image_files(folder / "masks")
        _check_pairs(images, masks, folder)
    if lazy:
        files = [images[name] for name in names]
        wanted = [positive] * len(names)
        truth = Lazy(_read_mask, [masks[name] for name in names], files, wanted) if with_masks else None
        return ImageFolder(names, Lazy(_read_image, files), truth)
    pixels = [read_image(images[name]) for name in names]
    if not with_masks:
        return ImageFolder(names, pixels, None)
    return ImageFolder(names, pixels, [_mask(masks[n], images[n], x, positive) for n, x in zip(names, pixels, strict=True)])


def write_mask(path: str | Path, mask: np.ndarray, colours: bool = True, positive: int | None = None) -> None:
    """Write the (H, W) classes of an image's pixels as a PNG, 8 or 16 bits per pixel.

    A pixel is the number of its class. Those of 8 bits have a palette with ``colours``, so classes can be told apart
    by eye; without, they are grey. With ``positive``, class 1 is that number, all others are 0, and there is no palette.
    """
    from PIL import Image

    mask = np.asarray(mask)
    limit = 65536 if mask.size and mask.max() >= DONT_CARE else DONT_CARE
    if positive is not None:
        mask, limit = np.where(mask == 1, positive, 0), 256 if positive < 256 else 65536
    if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) < limit:
        raise InputError(f"{path}: a PNG holds classes 0 .. 65535, received {mask.min()} .. {mask.max()}.")
    with replacing(path) as file:
        picture = Image.fromarray(mask.astype(np.uint8 if limit <= 256 else np.uint16))
        if colours and limit == DONT_CARE:
            picture.putpalette(_palette())
        picture.save(file, format="PNG")


def _palette() -> list[int]:
    """Return the colours of PASCAL VOC: the bits of a class, from the lowest, are the high bits of red, green and blue."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    padded = np.concatenate([bits, np.zeros((256, 1), np.uint8)], axis=1).reshape(256, 3, 3)
    return (padded << np.array([7, 6, 5], np.uint8)[:, None]).sum(axis=1).ravel().tolist()


def image_files(folder: Path) -> dict[str, Path]:
    """Return the image files of a folder by their stems."""
    if not folder.is_dir():
        raise InputError(f"{folder.parent} has no folder {folder.name}/ with images in it.")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in ENDINGS or path.name.startswith("."):
            continue
        if path.stem in found:
            raise InputError(f"{path} and {found[path.stem].name} have the same stem; which of them is meant?")
        found[path.stem] = path
    if not found:
        raise InputError(f"{folder} is empty: it has no images ending in {', '.join(ENDINGS)}.")
    return found


def _check_pairs(images: dict[str, Path], masks: dict[str, Path], folder: Path) -> None:
    for mine, others, what, needed in ((images, masks, "mask", "masks"), (masks, images, "image", "images")):
        alone = sorted(set(mine) - set(others))
        if alone:
            more = f" ({len(alone) - 1} more are without one, too)" if len(alone) > 1 else ""
            raise InputError(f"{mine[alone[0]]} has no {what}: there is no {folder / needed / alone[0]}.png{more}.")


def _read_image(path: Path, number: int) -> np.ndarray:
    return read_image(path)


def _read_mask(path: Path, image_path: Path, positive: int | None, number: int) -> np.ndarray:
    return _mask(path, image_path, read_image(image_path), positive)


def _mask(path: Path, image_path: Path, image: np.ndarray, positive: int | None) -> np.ndarray:
    values = read_mask(path).astype(np.int32)
    if values.shape != image.shape[:2]:
        sizes = [f"{width}x{height}" for height, width in (values.shape, image.shape[:2])]
        raise InputError(f"{path} is {sizes[0]} pixels but {image_path} is {sizes[1]}; sizes must agree.")
    if positive is not None:
        return (values == positive).astype(np.int32)
    if values.min() < 0:
        raise InputError(f"{path} holds {values.min()}; a mask holds classes 0, 1, ... and {DONT_CARE} = don't care.")
    return np.where(values == DONT_CARE, np.int32(-1), values)
