"""Volumes on a page: three slices at right angles through one voxel, side by side as one picture.

(H, W) at depth d   |  (H, D) at column w
(D, W) at row h     |  empty
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Slices:
    """The three slices through the voxel ``at`` of volumes (D, H, W, ...)."""

    at: tuple[int, int, int]

    @classmethod
    def through_errors(cls, truth: np.ndarray, guess: np.ndarray) -> Slices:
        """Choose, along each axis, the slice with most errors; the middle where there are none."""
        wrong = (truth != guess) & (truth >= 0)
        counts = [wrong.sum(axis=tuple(k for k in range(3) if k != axis)) for axis in range(3)]
        places = [int(each.argmax()) if each.any() else len(each) // 2 for each in counts]
        return cls((places[0], places[1], places[2]))

    def picture(self, volume: Any) -> np.ndarray:
        """Return the slices of an input in grey (of its first channels, in colour where it has three), as uint8.

        No more than the slices is read. The range from the 1st to the 99th percentile of each channel is shown.
        """
        shown = self.montage(volume, 0)
        shown = shown[..., None] if shown.ndim == 2 else shown
        shown = (shown if shown.shape[-1] == 3 else shown[..., :1]).astype(np.float64)
        low, high = (np.nanpercentile(shown, q, axis=(0, 1)) for q in (1, 99))
        unit = np.nan_to_num((shown - low) / np.maximum(high - low, 1e-12))
        return np.repeat((255 * np.clip(unit, 0, 1)).astype(np.uint8), 3 // shown.shape[-1], axis=-1)

    def montage(self, volume: Any, fill: Any) -> np.ndarray:
        """Return the slices of a volume as one (H + D, W + D, ...) array."""
        d, h, w = self.at
        front = np.asarray(volume[d : d + 1])[0]
        top = np.asarray(volume[:, h : h + 1])[:, 0]
        side = np.asarray(volume[:, :, w : w + 1])[:, :, 0].swapaxes(0, 1)
        rows, columns, depth = front.shape[0], front.shape[1], top.shape[0]
        out = np.full((rows + depth, columns + depth, *front.shape[2:]), fill, dtype=front.dtype)
        out[:rows, :columns], out[rows:, :columns], out[:rows, columns:] = front, top, side
        return out
