"""``pydensecrf.utils``: unary energies from labels and probabilities, features of kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from backfield.constraints import checked, exactly, flag, numbers, optional, real, several, whole
from backfield.errors import InputError

#: Largest count of labels or variables.
MOST = 2**31 - 1


def unary_from_labels(labels: Any, n_labels: int, gt_prob: float, zero_unsure: bool = True) -> np.ndarray:
    """Return costs (labels, variables) of a map of labels that are right with probability ``gt_prob``.

    With ``zero_unsure``, 0 means that nothing is known, and labels are 1 .. n_labels.
    """
    checked("n_labels", n_labels, whole(2, MOST))
    checked("zero_unsure", zero_unsure, flag)
    if not 0 < checked("gt_prob", gt_prob, real()) < 1:
        raise InputError(f"gt_prob must be within (0, 1), received {gt_prob!r}.")
    flat = np.asarray(checked("labels", labels, numbers("a map of integers"))).reshape(-1)
    last = n_labels if zero_unsure else n_labels - 1
    if flat.dtype.kind not in "iu" or (flat.size and not 0 <= int(flat.min()) <= int(flat.max()) <= last):
        raise InputError(f"labels must be integers 0 .. {last}, as n_labels says.")
    flat = flat.astype(np.int64)
    wrong = -np.log((1.0 - gt_prob) / (n_labels - 1))
    out = np.full((n_labels, len(flat)), wrong, dtype=np.float32)
    out[flat - 1 if zero_unsure else flat, np.arange(len(flat))] = -np.log(gt_prob)
    if zero_unsure:
        out[:, flat == 0] = -np.log(1.0 / n_labels)
    return out


def unary_from_softmax(sm: Any, scale: float | None = None, clip: float | None = 1e-5) -> np.ndarray:
    """Return costs (labels, variables) of probabilities whose first axis is the labels.

    ``scale`` mixes them with uniform ones: its share is theirs. They are kept above ``clip``.
    """
    p = np.asarray(checked("sm", sm, numbers("probabilities, whose first axis is the labels")))
    if p.size == 0 or not (p >= 0).all() or not np.isfinite(p).all():
        raise InputError("sm must be probabilities: finite numbers >= 0.")
    checked("clip", clip, real(0, 1), optional)
    if scale is not None:
        if not 0 < checked("scale", scale, real(), optional) <= 1:
            raise InputError(f"scale must be within (0, 1], received {scale!r}.")
        p = scale * p + (1 - scale) / p.shape[0]
    if clip is not None:
        p = np.clip(p, clip, 1.0)
    return -np.log(p).reshape(p.shape[0], -1).astype(np.float32)


def create_pairwise_gaussian(sdims: Sequence[float], shape: Sequence[int]) -> np.ndarray:
    """Return positions on a grid divided by their bandwidths: (axes, variables)."""
    mesh = _mesh(sdims, shape)
    return mesh.reshape(len(mesh), -1)


def create_pairwise_bilateral(sdims: Sequence[float], schan: Any, img: Any, chdim: int = -1) -> np.ndarray:
    """Return positions and channels of an image divided by their bandwidths: (axes + channels, variables).

    ``chdim`` is the axis of the channels; -1: there is none, the image has one channel.
    """
    image = np.asarray(checked("img", img, numbers("an image")))
    checked("chdim", chdim, whole(0, image.ndim - 1), exactly(-1))
    channels = (image[None] if chdim == -1 else np.moveaxis(image, chdim, 0)).astype(np.float32)
    scales = np.asarray(checked("schan", schan, real(), numbers("a number for each channel")), dtype=np.float32)
    scales = np.full(len(channels), scales) if scales.ndim == 0 else scales
    if scales.shape != (len(channels),) or not (scales > 0).all():
        raise InputError(f"schan must be a number or one for each of {len(channels)} channels, received {schan!r}.")
    channels = channels / scales.reshape(-1, *[1] * (channels.ndim - 1))
    features = np.concatenate([_mesh(sdims, channels.shape[1:]), channels])
    return features.reshape(len(features), -1)


def compute_unary(labels: Any, M: int, GT_PROB: float = 0.5) -> np.ndarray:
    """Return what :func:`unary_from_labels` does, under its old name."""
    return unary_from_labels(labels, M, GT_PROB)


def softmax_to_unary(sm: Any, GT_PROB: float = 1) -> np.ndarray:
    """Return what :func:`unary_from_softmax` does, under its old name."""
    return unary_from_softmax(sm, None if GT_PROB == 1 else GT_PROB, clip=None)


def _mesh(sdims: Sequence[float], shape: Sequence[int]) -> np.ndarray:
    sizes = list(checked("shape", shape, several("a list of sizes")))
    sigma = np.asarray(checked("sdims", sdims, numbers("a list of bandwidths")), dtype=np.float32)
    for n in sizes:
        checked("shape", n, whole(1, MOST))
    if sigma.shape != (len(sizes),) or not (sigma > 0).all():
        raise InputError(f"sdims must have a bandwidth for each of {len(sizes)} axes, received {sdims!r}.")
    if math.prod(map(int, sizes)) > MOST:
        raise InputError(f"shape asks for more than {MOST} variables.")
    mesh = np.stack(np.meshgrid(*(np.arange(n, dtype=np.float32) for n in sizes), indexing="ij"))
    return mesh / sigma.reshape(-1, *[1] * len(sizes))
