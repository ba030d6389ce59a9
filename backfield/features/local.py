"""Features of pixels and voxels from what lies around them: Gaussian derivatives at several scales, and their eigenvalues.

With G_s the Gaussian of bandwidth s (in pixels, or in units of ``spacing``) and v a channel of an image or a volume:

    gaussian    G_s * v                                        1 number
    gradient    |grad G_s * v|                                 1
    laplacian   trace of the Hessian                           1
    hessian     eigenvalues of the matrix (d_i d_j G_s * v)    one per axis, the largest first
    structure   eigenvalues of G_2s * (grad grad')             one per axis, the largest first

Derivatives are in units of the scale (times s, s^2), so scales can be compared. At borders the image is mirrored. Every
number is a sum over a window of known width in one order, so a window of an image has the bits of the whole: see
:meth:`LocalFeatures.over`, which computes them window by window for images that do not fit into memory.

Cost: a separable filter is about 1 ns per pixel, axis and 10 taps (float32, one core); memory 4 F bytes per pixel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from backfield.constraints import is_one_of
from backfield.errors import InputError
from backfield.features.cache import Progress, transform_all
from backfield.features.lazy import LazyArray
from backfield.kernels.compile import exact_kernel, kernel
from backfield.scikit_learn import BaseEstimator, TransformerMixin

KINDS = ("intensity", "gaussian", "gradient", "laplacian", "hessian", "structure", "position")
#: Kinds that exist once, whatever the scales are.
_ONCE = ("intensity", "position")
#: Bandwidths beyond which a Gaussian is cut off.
_CUT = 3.0
#: Pixels whose features are put side by side at a time: they stay in the cache.
_TOGETHER = 8192
#: Places of one piece of a filtered line: it stays in the cache for all taps.
_BLOCK = 2048


class LocalFeatures(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Images (H, W[, C]) or volumes (D, H, W[, C]) -> features (..., F) float32 of their pixels or voxels.

    Parameters
    ----------
    scales : sequence of float
        Bandwidths of the Gaussians.
    kinds : sequence of str
        Some of ``intensity, gaussian, gradient, laplacian, hessian, structure, position``; features come in this order,
        scale by scale, channel by channel.
    n_axes : int
        2 for images, 3 for volumes; a further axis holds channels.
    spacing : sequence of float, optional
        Size of a voxel along each axis, in the units of ``scales``.

    Unsigned integers are divided by the largest number of their type; other numbers are taken as they are.
    """

    def __init__(
        self,
        scales: Sequence[float] = (1.0, 2.0, 4.0),
        kinds: Sequence[str] = ("intensity", "gaussian", "gradient", "hessian", "structure"),
        n_axes: int = 2,
        spacing: Sequence[float] | None = None,
    ) -> None:
        self.scales = scales
        self.kinds = kinds
        self.n_axes = n_axes
        self.spacing = spacing

    @property
    def reach(self) -> tuple[int, ...]:
        """How far a feature looks along each axis."""
        self._check()
        scaled = [kind for kind in self.kinds if kind not in _ONCE]
        widest = max(self.scales) if scaled else 0.0
        order = 2 if {"laplacian", "hessian"} & set(scaled) else 1
        first = [_radius(each, order) if scaled else 0 for each in self._bandwidths(widest)]
        second = [_radius(2 * each, 0) if "structure" in scaled else 0 for each in self._bandwidths(widest)]
        return tuple(a + b for a, b in zip(first, second, strict=True))

    def fit(self, images: Any = None, y: Any = None) -> Self:
        """Do nothing: there is nothing to learn."""
        return self

    def transform(self, images: Sequence[Any], progress: Progress | None = None) -> list[np.ndarray]:
        """Return the features of each image; ``progress(done, total)`` is called after each."""
        return transform_all(self.transform_one, images, progress)

    def transform_one(self, image: Any) -> np.ndarray:
        """Return the features of one image or volume."""
        return self.over(image)[...]

    def over(self, image: Any) -> LazyArray:
        """Return the features as an array whose windows are computed when they are asked for.

        ``image`` may be any array that is read by windows (numpy, memory map, zarr); no more than a window and what its
        features look at is ever read.
        """
        self._check()
        shape = tuple(int(n) for n in (image.shape if hasattr(image, "shape") else np.shape(image)))
        if len(shape) not in (self.n_axes, self.n_axes + 1) or 0 in shape:
            raise InputError(f"{self._what} has {self.n_axes} axes, and one more with channels; received shape {shape}.")
        channels = shape[self.n_axes] if len(shape) > self.n_axes else 1
        extent = shape[: self.n_axes]
        return LazyArray(image, extent, len(self._names(channels)), self.reach, _Maker(self, extent))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the features; ``input_features`` are those of the channels, one by default."""
        channels = ["value"] if input_features is None else [str(name) for name in input_features]
        return np.array([name.format(*channels) for name in self._names(len(channels))], dtype=object)

    def _names(self, n_channels: int) -> list[str]:
        names = [f"{{{c}}}" for c in range(n_channels)] if "intensity" in self.kinds else []
        for scale, c, kind in itertools.product(self.scales, range(n_channels), self._scaled):
            count = self.n_axes if kind in ("hessian", "structure") else 1
            names += [f"{kind}{k if count > 1 else ''}({{{c}}}, {scale:g})" for k in range(count)]
        return names + ([f"position{axis}" for axis in range(self.n_axes)] if "position" in self.kinds else [])

    @property
    def _scaled(self) -> list[str]:
        return [kind for kind in KINDS if kind in self.kinds and kind not in _ONCE]

    @property
    def _what(self) -> str:
        return "an image" if self.n_axes == 2 else "a volume"

    def _bandwidths(self, scale: float) -> list[float]:
        return [scale / size for size in ((1.0,) * self.n_axes if self.spacing is None else self.spacing)]

    def _check(self) -> None:
        if self.n_axes not in (2, 3):
            raise InputError(f"n_axes is 2 (images) or 3 (volumes), received {self.n_axes!r}.")
        unknown = [kind for kind in self.kinds if not is_one_of(kind, KINDS)]
        if unknown or not self.kinds or isinstance(self.kinds, str):
            raise InputError(f"kinds are some of {', '.join(KINDS)}, in a list; received {self.kinds!r}.")
        _check_positive("scales", self.scales, None)
        if self.spacing is not None:
            _check_positive("spacing", self.spacing, self.n_axes)


class _Maker:
    """Computes the features of a window from what was read around it."""

    def __init__(self, features: LocalFeatures, extent: tuple[int, ...]) -> None:
        self.features, self.extent = features, extent

    def __call__(self, block: np.ndarray, start: tuple[int, ...], inner: tuple[slice, ...]) -> np.ndarray:
        """Return (*window, F) of a block that begins ``reach`` before the window, mirrored where the image ends."""
        f = self.features
        size = tuple(part.stop - part.start for part in inner)
        channels = np.moveaxis(_as_float(block).reshape(*block.shape[: f.n_axes], -1), -1, 0)
        planes: list[np.ndarray] = []
        if "intensity" in f.kinds:
            planes += [channel[inner] for channel in channels]
        for scale, channel in itertools.product(f.scales, channels):
            planes += _at_scale(np.ascontiguousarray(channel), f._bandwidths(scale), float(scale), f._scaled, inner)
        if "position" in f.kinds:
            planes += _positions(start, size, self.extent)
        out = np.empty((*size, len(planes)), np.float32)
        rows = max(1, _TOGETHER // max(1, int(np.prod(size[1:]))))
        for first in range(0, size[0], rows):
            band = slice(first, first + rows)
            np.stack([plane[band] for plane in planes], axis=-1, out=out[band])
        return out


def _at_scale(
    v: np.ndarray, bandwidths: list[float], scale: float, kinds: list[str], inner: tuple[slice, ...]
) -> list[np.ndarray]:
    """Return the features of one channel at one scale, kind by kind."""
    n = v.ndim
    found: dict[str, list[np.ndarray]] = {}
    if "gaussian" in kinds:
        found["gaussian"] = [_filtered(v, bandwidths, (0,) * n, inner)]
    if "gradient" in kinds:
        first = [_filtered(v, bandwidths, _orders(n, k), inner) for k in range(n)]
        found["gradient"] = [np.sqrt(_sum_of_squares(first))]
    if {"laplacian", "hessian"} & set(kinds):
        pairs = list(itertools.combinations_with_replacement(range(n), 2))
        second = {pair: _filtered(v, bandwidths, _orders(n, *pair), inner) for pair in pairs}
        found["laplacian"] = [sum(second[k, k] for k in range(n))]  # type: ignore[list-item]
        found["hessian"] = _eigenvalues(second) if "hessian" in kinds else []
    if "structure" in kinds:
        found["structure"] = _structure(v, bandwidths, inner)
    return [plane for kind in kinds for plane in found[kind]]


def _structure(v: np.ndarray, bandwidths: list[float], inner: tuple[slice, ...]) -> list[np.ndarray]:
    n = v.ndim
    outer = [2 * each for each in bandwidths]
    margin = [_radius(each, 0) for each in outer]
    wide = tuple(slice(part.start - m, part.stop + m) for part, m in zip(inner, margin, strict=True))
    first = [_filtered(v, bandwidths, _orders(n, k), wide) for k in range(n)]
    middle = tuple(slice(m, side - m) for m, side in zip(margin, first[0].shape, strict=True))
    pairs = itertools.combinations_with_replacement(range(n), 2)
    return _eigenvalues({(a, b): _filtered(first[a] * first[b], outer, (0,) * n, middle) for a, b in pairs})


def _filtered(v: np.ndarray, bandwidths: list[float], orders: tuple[int, ...], inner: tuple[slice, ...]) -> np.ndarray:
    """Return Gaussian derivatives of the middle of an array, one axis after the other."""
    for axis, (sigma, order, part) in enumerate(zip(bandwidths, orders, inner, strict=True)):
        taps = _taps(sigma, order)
        reach = len(taps) // 2
        window = [slice(None)] * v.ndim
        window[axis] = slice(part.start - reach, part.stop + reach)
        source = np.ascontiguousarray(v[tuple(window)])
        shape = list(source.shape)
        shape[axis] = part.stop - part.start
        out = np.empty(shape, np.float32)
        outer, rest = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
        _convolve(taps, rest, source.reshape(outer, -1), out.reshape(outer, -1))
        v = out
    return v


def _taps(sigma: float, order: int) -> np.ndarray:
    """Return the taps of a derivative of a Gaussian, times sigma^order, whose moments are exact."""
    t = np.arange(-_radius(sigma, order), _radius(sigma, order) + 1)
    g = np.exp(-0.5 * (t / sigma) ** 2)
    g /= g.sum()
    if order == 1:
        g *= t
        g /= (g * t).sum()  # a slope of 1 gives 1
    elif order == 2:
        g *= t**2 / sigma**2 - 1
        g -= g.mean()
        g /= (g * t**2).sum() / 2
    return (g * sigma**order).astype(np.float32)


def _radius(sigma: float, order: int) -> int:
    return max(1, int(_CUT * sigma + 0.5 * order + 0.5))


def _orders(n: int, *axes: int) -> tuple[int, ...]:
    return tuple(sum(axis == k for axis in axes) for k in range(n))


def _sum_of_squares(parts: list[np.ndarray]) -> np.ndarray:
    total = parts[0] * parts[0]
    for part in parts[1:]:
        total += part * part
    return total


def _eigenvalues(matrix: dict[tuple[int, int], np.ndarray]) -> list[np.ndarray]:
    """Return the eigenvalues of symmetric 2 x 2 or 3 x 3 matrices, the largest first."""
    shape = matrix[0, 0].shape
    flat = [matrix[pair].reshape(-1) for pair in sorted(matrix)]
    out = np.empty((2 if len(flat) == 3 else 3, flat[0].size), np.float32)
    (_two if len(flat) == 3 else _three)(*flat, out)
    return [each.reshape(shape) for each in out]


def _positions(start: tuple[int, ...], size: tuple[int, ...], extent: tuple[int, ...]) -> list[np.ndarray]:
    """Return the place along each axis, in [0, 1] over the whole image."""
    out = []
    for axis, (first, count, length) in enumerate(zip(start, size, extent, strict=True)):
        place = (np.arange(first, first + count) / max(length - 1, 1)).astype(np.float32)
        out.append(np.broadcast_to(place.reshape([-1 if k == axis else 1 for k in range(len(size))]), size))
    return out


def _as_float(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind not in "biuf":
        raise InputError(f"an image holds numbers, received dtype {values.dtype}.")
    out = values.astype(np.float32)
    if values.dtype.kind == "u":
        out /= np.float32(np.iinfo(values.dtype).max)
    elif not np.isfinite(out).all():
        raise InputError("an image holds NaN, infinity, or numbers beyond float32.")
    return out


def _check_positive(name: str, values: Any, count: int | None) -> None:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    wrong = array.ndim != 1 or array.size == 0 or (count is not None and array.size != count)
    if wrong or not ((array > 0) & np.isfinite(array)).all():
        raise InputError(f"{name} must be {count or 'some'} positive numbers, received {values!r}.")


@kernel
def _convolve(taps, step, source, out):
    """Write sum_t taps[t] source[x + t step] for each line, four taps at a time."""
    count = out.shape[1]
    fours = len(taps) - len(taps) % 4
    for o in range(len(out)):
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            into = out[o, first:last]
            for x in range(len(into)):
                into[x] = out.dtype.type(0)
            for t in range(0, fours, 4):
                a, b, c, d = taps[t], taps[t + 1], taps[t + 2], taps[t + 3]
                at = first + t * step
                va, vb = source[o, at : at + len(into)], source[o, at + step : at + step + len(into)]
                vc = source[o, at + 2 * step : at + 2 * step + len(into)]
                vd = source[o, at + 3 * step : at + 3 * step + len(into)]
                for x in range(len(into)):
                    into[x] += (a * va[x] + b * vb[x]) + (c * vc[x] + d * vd[x])
            for t in range(fours, len(taps)):
                a = taps[t]
                va = source[o, first + t * step : first + t * step + len(into)]
                for x in range(len(into)):
                    into[x] += a * va[x]


@exact_kernel
def _two(a, b, c, out):
    half = a.dtype.type(0.5)
    for i in range(len(a)):
        mean, spread = half * (a[i] + c[i]), half * (a[i] - c[i])
        root = np.sqrt(spread * spread + b[i] * b[i])
        out[0, i] = mean + root
        out[1, i] = mean - root


@exact_kernel
def _three(a, b, c, d, e, f, out):
    """Eigenvalues of [[a, b, c], [b, d, e], [c, e, f]] by the cosine formula."""
    for i in range(len(a)):
        mean = (np.float64(a[i]) + d[i] + f[i]) / 3
        x, y, z = a[i] - mean, d[i] - mean, f[i] - mean
        off = np.float64(b[i]) * b[i] + np.float64(c[i]) * c[i] + np.float64(e[i]) * e[i]
        p = np.sqrt((x * x + y * y + z * z + 2 * off) / 6)
        if p == 0:
            out[0, i] = out[1, i] = out[2, i] = mean
            continue
        determinant = x * (y * z - np.float64(e[i]) * e[i]) - b[i] * (b[i] * z - np.float64(e[i]) * c[i])
        determinant += c[i] * (np.float64(b[i]) * e[i] - y * c[i])
        angle = np.arccos(min(1.0, max(-1.0, determinant / (2 * p * p * p)))) / 3
        high, low = mean + 2 * p * np.cos(angle), mean + 2 * p * np.cos(angle + 2.0943951023931953)
        out[0, i] = high
        out[1, i] = 3 * mean - high - low
        out[2, i] = low
