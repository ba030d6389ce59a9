"""Arrays -> pictures: labels and marginals in colour, PNG files without a library, a montage with captions."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backfield.atomic import write_bytes
from backfield.drawing import entropy

#: Colours of labels 0, 1, ...; with two labels, the marginals are mixtures of the first two.
_BRIGHT = np.array(
    [
        *((243, 236, 219), (29, 53, 87), (217, 119, 6), (13, 148, 136), (190, 24, 93), (101, 163, 13)),
        *((124, 58, 237), (2, 132, 199), (180, 83, 9), (100, 116, 139)),
    ],
    dtype=np.float64,
)
PALETTE = np.concatenate([_BRIGHT, 0.6 * _BRIGHT])
_HIDDEN = np.array([200, 200, 200], dtype=np.float64)
_WRONG, _RIGHT = np.array([185.0, 28.0, 28.0]), np.array([238.0, 240.0, 243.0])
# Confidence from low to high.
_RAMP = np.array([(38, 12, 60), (120, 28, 109), (207, 68, 70), (248, 149, 64), (252, 253, 191)], dtype=np.float64)


class Picture(NamedTuple):
    """Pixels (H, W, 3) uint8 and what stands below them."""

    caption: str
    pixels: np.ndarray


class Row(NamedTuple):
    """Pictures of one example, side by side."""

    name: str
    pictures: list[Picture]


def label_picture(positions: np.ndarray) -> np.ndarray:
    """Return (H, W) positions of labels, -1 = hidden, in colour."""
    return _bytes(np.where((positions < 0)[..., None], _HIDDEN, PALETTE[positions % len(PALETTE)]))


def marginal_picture(probabilities: np.ndarray) -> np.ndarray:
    """Return (H, W, L) marginals in colour: of two labels the mixture of their colours, of more the largest marginal."""
    if probabilities.shape[2] == 2:
        return _bytes(probabilities.astype(np.float64) @ PALETTE[:2])
    return _ramp(probabilities.max(axis=2))


def uncertainty_picture(probabilities: np.ndarray) -> np.ndarray:
    """Return the entropy of (H, W, L) marginals in colour: dark where the model is certain."""
    return _ramp(entropy(probabilities))


def error_picture(truth: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Return where (H, W) labels are wrong, in red; hidden ones are grey."""
    wrong = (truth != guess)[..., None]
    return _bytes(np.where((truth < 0)[..., None], _HIDDEN, np.where(wrong, _WRONG, _RIGHT)))


def reduced(pixels: np.ndarray, side: int = 360) -> np.ndarray:
    """Return a picture whose sides are at most ``side``: every k-th pixel."""
    step = max(1, -(-max(pixels.shape[:2]) // side))
    return pixels[::step, ::step]


def _ramp(values: np.ndarray) -> np.ndarray:
    at = np.clip(values, 0, 1) * (len(_RAMP) - 1)
    low = np.minimum(at.astype(np.int64), len(_RAMP) - 2)
    share = (at - low)[..., None]
    return _bytes(_RAMP[low] * (1 - share) + _RAMP[low + 1] * share)


def input_picture(image: np.ndarray) -> np.ndarray:
    """Return an image (H, W, C) as it is seen: in colour if it has three channels of bytes or in [0, 1], else the first."""
    image = np.asarray(image)
    if image.dtype == np.uint8 and image.shape[2] in (1, 3):
        return np.broadcast_to(image, (*image.shape[:2], 3)).copy()
    values = image.astype(np.float64)
    if image.shape[2] != 3 or values.min() < 0 or values.max() > 1:
        values = values[..., :1]
        values = (values - values.min()) / max(float(np.ptp(values)), 1e-12)
    return _bytes(255 * np.broadcast_to(values, (*image.shape[:2], 3)))


def encode_png(pixels: np.ndarray) -> bytes:
    """Return (H, W, 3) uint8 pixels as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # 0: rows as they are

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def data_uri(pixels: np.ndarray) -> str:
    """Return pixels as the address of an image that holds them."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode("ascii")


def montage(rows: Sequence[Row], scale: int = 2, gap: int = 12) -> np.ndarray:
    """Return rows of pictures on white, with captions above each column where pillow is there to write them.

    Captions are those of the first row.
    """
    height, width = rows[0].pictures[0].pixels.shape[:2]
    step_y, step_x, top = scale * height + gap, scale * width + gap, 34
    n_columns = max(len(row.pictures) for row in rows)
    out = np.full((top + len(rows) * step_y + gap, n_columns * step_x + gap, 3), 255, np.uint8)
    for r, row in enumerate(rows):
        for c, picture in enumerate(row.pictures):
            large = picture.pixels[:height, :width].repeat(scale, axis=0).repeat(scale, axis=1)
            y, x = top + r * step_y, gap + c * step_x
            out[y : y + large.shape[0], x : x + large.shape[1]] = large
    captions = [picture.caption for picture in rows[0].pictures]
    return _with_captions(out, captions, [gap + c * step_x + scale * width // 2 for c in range(n_columns)], top)


def write_png(path: str | Path, pixels: np.ndarray) -> None:
    """Write pixels to a file."""
    write_bytes(path, encode_png(pixels))


def _with_captions(pixels: np.ndarray, captions: list[str], centres: list[int], height: int) -> np.ndarray:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        return pixels
    picture = Image.fromarray(pixels)
    draw = ImageDraw.Draw(picture)
    font: Any = ImageFont.load_default(15)
    for caption, centre in zip(captions, centres, strict=True):
        draw.text((centre, height // 2), caption, fill=(40, 44, 52), font=font, anchor="mm")
    return np.asarray(picture)


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
