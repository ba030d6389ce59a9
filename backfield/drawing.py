"""Arrays -> matplotlib axes: labels, marginals, uncertainty, curves; and small tables for notebooks.

``backfield.plot`` is the public room; this one knows no graphs and no estimators, so everything may draw itself with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from backfield.errors import InputError

#: Colours of labels 0, 1, ... that colour-blind people can tell apart (Okabe and Ito 2008), repeated beyond eight labels.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
HIDDEN = (0.8, 0.8, 0.8, 1.0)


def axes(ax: Any = None, n: int = 1, size: tuple[float, float] = (3.6, 3.2)) -> Any:
    """Return the axes given, or new ones: one, or a row of ``n``."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'backfield[plots]'.") from error
    if ax is not None:
        return ax
    return pyplot.subplots(1, n, figsize=(size[0] * n, size[1]), layout="constrained")[1]


def palette(n_labels: int) -> np.ndarray:
    """Return (n_labels, 3) colours in [0, 1]."""
    from matplotlib.colors import to_rgb

    return np.array([to_rgb(COLOURS[k % len(COLOURS)]) for k in range(n_labels)])


def flat_picture(values: np.ndarray, n_axes: int) -> np.ndarray:
    """Return the middle slices of an array until ``n_axes`` axes of positions and the labels' are left."""
    while values.ndim > n_axes:
        values = values[len(values) // 2]
    return values


def draw_labels(ax: Any, labels: np.ndarray, names: Sequence[Any]) -> Any:
    """Draw positions of labels (-1: hidden) as an image, or as a strip for a sequence; the legend names them."""
    from matplotlib.patches import Patch

    picture = np.atleast_2d(flat_picture(np.asarray(labels), 2))
    colours = np.concatenate([palette(len(names)), [HIDDEN[:3]]])
    ax.imshow(colours[picture], interpolation="nearest", aspect=_aspect(labels))
    ax.legend(
        handles=[Patch(color=colours[k], label=str(name)) for k, name in enumerate(names)], fontsize="small", loc="best"
    )
    return _without_ticks(ax)


def draw_marginals(ax: Any, marginals: np.ndarray, names: Sequence[Any]) -> Any:
    """Draw (..., L) marginals.

    An image with two labels shows the probability of the second, one with more labels a mixture of their colours; a sequence
    is a map of labels by positions.
    """
    marginals = np.asarray(marginals, np.float64)
    if marginals.ndim == 2:
        image = ax.imshow(marginals.T, vmin=0, vmax=1, cmap="Blues", aspect="auto", interpolation="nearest")
        ax.set_yticks(range(len(names)), [str(name) for name in names])
        ax.set_xlabel("variable")
        ax.figure.colorbar(image, ax=ax, label="probability")
        return ax
    picture = flat_picture(marginals, 3)
    if picture.shape[2] == 2:
        image = ax.imshow(picture[..., 1], vmin=0, vmax=1, cmap="gray", interpolation="nearest")
        ax.figure.colorbar(image, ax=ax, label=f"P({names[1]})")
    else:
        ax.imshow(np.clip(picture @ palette(picture.shape[2]), 0, 1), interpolation="nearest")
    return _without_ticks(ax)


def entropy(marginals: np.ndarray) -> np.ndarray:
    """Return the entropy of (..., L) marginals relative to its largest value, log L."""
    p = np.asarray(marginals, np.float64)
    terms = np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0)
    return -terms.sum(axis=-1) / max(np.log(p.shape[-1]), 1e-12)


def draw_uncertainty(ax: Any, marginals: np.ndarray) -> Any:
    """Draw the entropy of marginals: an image, or a line for a sequence."""
    values = flat_picture(entropy(marginals), 2)
    if values.ndim == 1:
        ax.plot(values)
        ax.set(xlabel="variable", ylabel="uncertainty", ylim=(0, 1.02))
        return ax
    image = ax.imshow(values, vmin=0, vmax=1, cmap="magma", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, label="entropy / log L")
    return _without_ticks(ax)


def _aspect(labels: np.ndarray) -> str:
    return "auto" if np.ndim(labels) == 1 else "equal"


def _without_ticks(ax: Any) -> Any:
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def html_table(title: str, rows: Mapping[str, Any]) -> str:
    """Return a table of two columns for notebooks."""
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(k)}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items()
    )
    return f"<div><strong>{escape(title)}</strong><table>{body}</table></div>"
