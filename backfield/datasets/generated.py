"""Generated data: the denoising images of [L13] §8, and shapes under the two noises of [K05] §5.

Everything depends on the seed and on the number of the image only, so fewer images are the first of more.
"""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import numpy as np

from backfield.errors import InputError

#: Mixtures of two Gaussians (mean, standard deviation), half and half, for labels 0 and 1.
BIMODAL = (((0.08, 0.03), (0.46, 0.03)), ((0.55, 0.02), (0.42, 0.10)))
GAUSSIAN_SD = 0.3


class Denoising(NamedTuple):
    """Features (H, W, F), masks (H, W) int32, and features of horizontal (H, W-1, F) and vertical (H-1, W, F) edges."""

    features: list[np.ndarray]
    masks: list[np.ndarray]
    horizontal: list[np.ndarray]
    vertical: list[np.ndarray]


def denoising(n_images: int, size: int = 100, seed: int = 0, sd: float = 10.0, constant: bool = False) -> Denoising:
    """Return the denoising data of [L13] §8.

    White noise in [0, 1] is convolved with a Gaussian of standard deviation ``sd`` and rounded: y. A pixel has a feature
    uniform in [0, .9] where y = 0 and in [.1, 1] where y = 1; an edge has one uniform in [0, .8] where its ends are equal
    and in [.2, 1] where they are not.

    Parameters
    ----------
    n_images, size : how many square images of how many pixels a side; the paper has 16 + 16 of 100
    seed : for training and testing use two seeds, or split one set
    sd : of the Gaussian, in pixels
    constant : add the constant feature of the paper to pixels and edges; the estimators add their own
    """
    from scipy.ndimage import gaussian_filter  # .1 s, which readers of column files need not wait for

    # [L13] does not say what lies outside the image: here it is continued as on a torus, so y is alike everywhere.
    _positive(n_images=n_images, size=size)
    if not (isinstance(sd, Real) and 0 < sd < np.inf):
        raise InputError(f"sd must be a positive number, received {sd!r}.")
    data = Denoising([], [], [], [])
    for k in range(n_images):
        rng = np.random.default_rng((seed, k))
        y = (gaussian_filter(rng.random((size, size)), sd, mode="wrap") > 0.5).astype(np.int32)
        unary = 0.9 * rng.random((size, size)) + 0.1 * y
        edges = [0.8 * rng.random(cut.shape) + 0.2 * cut for cut in (y[:, 1:] != y[:, :-1], y[1:] != y[:-1])]
        data.masks.append(y)
        for found, values in zip((data.features, data.horizontal, data.vertical), (unary, *edges), strict=True):
            found.append(_with_constant(values, constant))
    return data


def _with_constant(values: np.ndarray, constant: bool) -> np.ndarray:
    columns = [values, np.ones_like(values)] if constant else [values]
    return np.stack(columns, axis=-1).astype(np.float32)


class Shapes(NamedTuple):
    """Noisy images (H, W, 1) and true masks for training and testing; ``test_shapes`` numbers the shape of each."""

    train: list[np.ndarray]
    train_masks: list[np.ndarray]
    test: list[np.ndarray]
    test_masks: list[np.ndarray]
    test_shapes: np.ndarray


def shapes(
    noise: str = "gaussian", n_train: int = 10, n_test: int = 50, size: int = 64, seed: int = 0, tiles: int = 1
) -> Shapes:
    """Return data as of [K05] §5-6: noisy copies of the first shape to train on, ``n_test`` of each of four to test on.

    Differs from [K05]: its images are not available; see :func:`binary_shapes` for these.

    Parameters
    ----------
    noise : ``"gaussian"`` (standard deviation .3 added to {0, 1}) or ``"bimodal"`` (for each label a mixture of two
        Gaussians, ``BIMODAL``)
    n_train, n_test, size, seed : how many noisy images, of which side, from which seed
    tiles : an image is made of so many shapes a side, each as much smaller: more boundary, more difficult
    """
    _positive(n_train=n_train, n_test=n_test, size=size, tiles=tiles)
    masks = binary_shapes(size, tiles)
    train = [add_noise(masks[0], noise, (seed, 0, k)) for k in range(n_train)]
    numbers = np.repeat(np.arange(len(masks)), n_test)
    test = [add_noise(masks[s], noise, (seed, 1, k)) for k, s in enumerate(numbers)]
    return Shapes(train, [masks[0]] * n_train, test, [masks[s] for s in numbers], numbers)


def binary_shapes(size: int = 64, tiles: int = 1) -> list[np.ndarray]:
    """Return four binary images of blobs and bars of different widths: (size, size) int32 with 1 = shape.

    A disc with a hole and a square; a cross with a bar; a hand-like comb; two crossing rings. With ``tiles`` > 1 each image
    is made of tiles x tiles small ones, each image in another order.
    """
    if tiles > 1:
        if size % tiles:
            raise InputError(f"{tiles} tiles do not fill an image of {size} pixels a side.")
        small = binary_shapes(size // tiles)
        numbers = range(tiles)
        return [np.block([[small[(k + 2 * i + j) % 4] for j in numbers] for i in numbers]) for k in range(len(small))]
    rows, columns = (np.mgrid[:size, :size] + 0.5) / size

    def disc(r: float, c: float, radius: float) -> np.ndarray:
        return (rows - r) ** 2 + (columns - c) ** 2 < radius**2

    def box(top: float, left: float, bottom: float, right: float) -> np.ndarray:
        return (rows > top) & (rows < bottom) & (columns > left) & (columns < right)

    first = (disc(0.36, 0.36, 0.26) & ~disc(0.36, 0.36, 0.11)) | box(0.62, 0.58, 0.9, 0.9)
    second = box(0.12, 0.22, 0.88, 0.4) | box(0.32, 0.08, 0.5, 0.62) | box(0.66, 0.62, 0.8, 0.94)
    fingers = box(0.1, 0.12, 0.6, 0.22) | box(0.06, 0.32, 0.6, 0.42) | box(0.06, 0.52, 0.6, 0.62)
    third = fingers | box(0.2, 0.74, 0.6, 0.84) | box(0.56, 0.12, 0.9, 0.84)
    rings = [disc(0.4, 0.36, 0.28) & ~disc(0.4, 0.36, 0.17), disc(0.6, 0.64, 0.28) & ~disc(0.6, 0.64, 0.17)]
    return [shape.astype(np.int32) for shape in (first, second, third, rings[0] | rings[1])]


def add_noise(mask: np.ndarray, noise: str, seed: int | tuple[int, ...]) -> np.ndarray:
    """Return a noisy version (H, W, 1) float32 of a binary image; ``noise`` is ``"gaussian"`` or ``"bimodal"``."""
    rng = np.random.default_rng(seed)
    mask = np.asarray(mask).astype(np.int64)
    if noise == "gaussian":
        values = mask + GAUSSIAN_SD * rng.standard_normal(mask.shape)
    elif noise == "bimodal":
        mean, sd = np.moveaxis(np.array(BIMODAL)[mask, rng.integers(2, size=mask.shape)], -1, 0)
        values = mean + sd * rng.standard_normal(mask.shape)
    else:
        raise InputError(f"noise is 'gaussian' or 'bimodal', received {noise!r}.")
    return values[..., None].astype(np.float32)


def _positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a positive integer, received {value!r}.")
