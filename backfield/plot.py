"""Plots for notebooks; each returns matplotlib axes, and draws into yours where you give some.

>>> bf.plot.calibration(crf, images, masks)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from backfield import drawing
from backfield.errors import InputError

if TYPE_CHECKING:
    from backfield.estimators import CRF

__all__ = ["calibration", "labels", "marginals", "trace", "uncertainty", "weights"]


def marginals(values: Any, names: Sequence[Any] | None = None, ax: Any = None) -> Any:
    """Draw marginals.

    Parameters
    ----------
    values : array (..., L) or Result
        Marginals of an image (H, W, L), of a volume (its middle slice is shown) or of a sequence (n, L); or what
        :func:`backfield.infer` returned.
    names : list, optional
        Names of the labels.
    ax : matplotlib axes, optional
        Where to draw.
    """
    values = _marginals(values)
    return drawing.draw_marginals(drawing.axes(ax), values, _names(names, values.shape[-1]))


def uncertainty(values: Any, ax: Any = None) -> Any:
    """Draw the entropy of marginals, relative to that of a uniform distribution; ``values`` as for :func:`marginals`."""
    return drawing.draw_uncertainty(drawing.axes(ax), _marginals(values))


def labels(values: Any, names: Sequence[Any] | None = None, ax: Any = None) -> Any:
    """Draw labels 0, 1, ... of an image or a sequence; -1 is hidden and grey."""
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise InputError(f"labels are integers; received {values.dtype}.")
    return drawing.draw_labels(drawing.axes(ax), values, _names(names, int(values.max(initial=0)) + 1))


def calibration(crf: CRF, X: Any, y: Any, ax: Any = None, name: str | None = None) -> Any:
    """Draw the reliability diagram of a fitted model: accuracy against confidence, with 95 % intervals over examples.

    Call it again with the same ``ax`` to compare models. Hidden labels (-1) are left out.
    """
    from backfield.metrics import Tally

    tally = Tally(crf.classes_)
    for truth, (guess, probabilities) in zip(y, crf.predict_each(X), strict=True):
        tally.add(truth, guess, probabilities)
    bins = tally.metrics().calibration
    assert bins is not None  # probabilities were given
    ax = drawing.axes(ax)
    if not ax.lines:
        ax.plot([0, 1], [0, 1], color="0.7", linestyle="--", linewidth=1)
    used = bins.share > 0
    low, high = (np.clip(bins.accuracy[used] + sign * 1.96 * bins.spread[used], 0, 1) for sign in (-1, 1))
    label = f"{name or type(crf).__name__}: ECE {bins.error:.3f}"
    (line,) = ax.plot(bins.confidence[used], bins.accuracy[used], marker="o", markersize=4, label=label)
    ax.fill_between(bins.confidence[used], low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    ax.legend(fontsize="small")
    return ax


def trace(crf: CRF, what: str = "objective", ax: Any = None) -> Any:
    """Draw the learning curve of a fitted model: one column of ``crf.trace_`` against iterations."""
    rows = [(k, row[what]) for k, row in enumerate(crf.trace_) if row.get(what) is not None]
    if not rows:
        known = sorted({key for row in crf.trace_ for key, value in row.items() if isinstance(value, int | float)})
        raise InputError(f"the trace has no {what!r}; it holds {', '.join(known)}.")
    ax = drawing.axes(ax)
    ax.plot(*zip(*rows, strict=True), label=what)
    ax.set(xlabel="iteration", ylabel=what)
    return ax


def weights(crf: CRF, n: int = 20, ax: Any = None) -> Any:
    """Draw the ``n`` largest weights of a fitted model as bars, named by their feature and labels."""
    w, names = crf.weights_, _weight_names(crf)
    top = np.argsort(-np.abs(w))[:n][::-1]
    ax = drawing.axes(ax, size=(4.8, 1.2 + 0.22 * len(top)))
    ax.barh(range(len(top)), w[top], color=[drawing.COLOURS[5 if value > 0 else 6] for value in w[top]])
    ax.set_yticks(range(len(top)), [names[k] for k in top], fontsize="small")
    ax.set_xlabel("weight")
    return ax


def _weight_names(crf: CRF) -> list[str]:
    """Return a name for each weight: block, feature and label where a block has one weight for each of them."""
    columns = {k: name for name, k in (crf.feature_names_ or {}).items()}
    names: list[str] = []
    for kind, blocks in (("", crf.layout_.unary), ("edge ", crf.layout_.factors)):
        for block in blocks:
            n_rows = block.n_features + block.intercept
            if block.stop - block.start != n_rows * block.n_outputs:
                names += [f"{kind}weight {k}" for k in range(block.stop - block.start)]
                continue
            features = [str(columns.get(k, f"x{k}")) if not kind else f"x{k}" for k in range(block.n_features)]
            features += ["constant"] * block.intercept
            labels = _outputs(crf.classes_, block.n_outputs)
            names += [f"{kind}{feature}: {label}" for feature in features for label in labels]
    return names


def _outputs(classes: np.ndarray, n_outputs: int) -> list[str]:
    if n_outputs == len(classes):
        return [str(label) for label in classes]
    if n_outputs == len(classes) ** 2:
        return [f"{a} {b}" for a in classes for b in classes]
    return [str(k) for k in range(n_outputs)]


def _marginals(values: Any) -> np.ndarray:
    from backfield.inference.base import Result

    values = np.asarray(values.shaped() if isinstance(values, Result) else values, np.float64)
    if values.ndim < 2 or not np.all((values >= 0) & (values <= 1 + 1e-6)):
        raise InputError(f"marginals are an array (..., labels) of probabilities; received shape {values.shape}.")
    return values


def _names(names: Sequence[Any] | None, n_labels: int) -> Sequence[Any]:
    if names is None:
        return range(n_labels)
    if len(names) < n_labels:
        raise InputError(f"there are {n_labels} labels, but {len(names)} names.")
    return names
