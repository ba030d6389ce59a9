"""Losses of a decoded output ([S11] §5.1): L1, mean squared error and F-measure, with decoders that can be differentiated.

Over the k labelled variables, with the soft-argmax s(x) = mu(x)^(1/t) / sum_x' mu(x')^(1/t) at temperature t:

    l1          (1/k) sum_i ( 1 - s_i(y_i) )                     decoder max; |y_i - y*_i| for binary variables
    mse         (1/k) sum_i sum_x ( mu_i(x) - [x = y_i] )^2 / 2    decoder identity; (y_i - y*_i)^2 for binary variables
    f_measure   1 - F,  F = 2 sum_i y_i o_i / (sum_i y_i + sum_i o_i),  o_i = sigmoid( (mu_i(1) - tau) / t )

where tau is the threshold of a decoder: halfway between the least probable variable that it calls positive and the next.
For the balanced one that is the median of mu_i(1); for an odd number of variables, the middle one. Derivatives go through
those two variables; how many are positive is a constant almost everywhere.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.graph.labeling import Labeling
from backfield.losses._thresholds import expected_count, independent_samples, sampled_count, threshold_elements
from backfield.losses.base import Loss, label_weights, safe, sigmoid, unary_entries, unary_only

THRESHOLDS = ("balanced", "expected", "sampled")


def _check_temperature(loss: Any) -> None:
    if not (isinstance(loss.temperature, int | float) and 0 < loss.temperature < np.inf):
        raise InputError(f"{loss.name}: temperature must be a positive number, received {loss.temperature!r}.")


def _outputs(loss: Loss, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, ...]:
    """Return the labelled variables, their entries, and their weights, which sum to one."""
    variables, entries = unary_entries(mu.graph, labeling.labels)
    if len(variables) == 0:
        raise InputError(f"{loss.name} is a mean over labelled variables, and all are hidden.")
    w = np.broadcast_to(label_weights(mu.graph, weights, variables, entries), len(entries))
    if w.sum() == 0:
        raise InputError(f"{loss.name} is a weighted mean, and all weights are zero.")
    return variables, entries, w / w.sum()


def _blocks(mu: Potentials) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(mu.graph.labels)[:-1]])


@dataclass(frozen=True, repr=False)
class L1(Loss, name="l1"):
    """Mean absolute error of the soft-argmax at a ``temperature``; the share of errors as it goes to zero."""

    temperature: float = 0.1

    per_example: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_temperature(self)

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the mean error and its derivative."""
        variables, entries, w = _outputs(self, mu, labeling, weights)
        p, sizes = safe(mu.unary_flat, 1 / self.temperature), mu.graph.labels
        score = np.log(p) / self.temperature
        top = np.maximum.reduceat(score.real, _blocks(mu))
        s = np.exp(score - np.repeat(top, sizes))
        s /= np.repeat(np.add.reduceat(s, _blocks(mu)), sizes)
        # d s(y) / d mu(x) = s(y) ([x = y] - s(x)) / (t mu(x))
        d_own = np.zeros(mu.graph.n_variables, s.dtype)
        d_own[variables] = -w * s[entries] / self.temperature
        d_unary = -np.repeat(d_own, sizes) * s / p
        d_unary[entries] += d_own[variables] / p[entries]
        return (w * (1 - s[entries])).sum(), unary_only(mu.graph, d_unary.astype(mu.dtype, copy=False))


@dataclass(frozen=True, repr=False)
class MSE(Loss, name="mse"):
    """Mean squared error of the marginals themselves (a fractional prediction)."""

    per_example: ClassVar[bool] = True

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the mean squared error and its derivative."""
        variables, entries, w = _outputs(self, mu, labeling, weights)
        each = np.zeros(mu.graph.n_variables)
        each[variables] = w
        difference = mu.unary_flat.copy()
        difference[entries] -= 1
        d_unary = (np.repeat(each, mu.graph.labels) * difference).astype(mu.dtype, copy=False)
        return (d_unary * difference).sum() / 2, unary_only(mu.graph, d_unary)


@dataclass(frozen=True, repr=False)
class FMeasure(Loss, name="f_measure"):
    """One minus the F-measure of label 1, decoded by a threshold on the marginals; of a batch, the mean over its graphs.

    Parameters
    ----------
    temperature : float
        Of the sigmoid that stands for the step at the threshold.
    threshold : {"balanced", "expected", "sampled"}
        The decoder to train for: ``balanced_threshold``, ``expected_f`` or ``sampled_threshold``.
    n_samples, seed : int
        For ``sampled``: labels are drawn independently from the marginals.
    """

    temperature: float = 0.1
    threshold: str = "balanced"
    n_samples: int = 100
    seed: int = 0

    per_example: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_temperature(self)
        check_choice("threshold", self.threshold, THRESHOLDS, "f_measure")
        for key, least in (("n_samples", 1), ("seed", 0)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"f_measure: {key} must be an integer >= {least}, received {value!r}.")

    def check_seen(self, seen: np.ndarray) -> None:
        """Refuse data without a positive."""
        if (seen == 0).any() and not (seen == 1).any():
            raise InputError("f_measure needs positives: no variable has the label 1, and F is 0 whatever is predicted.")

    def _elements(self, b: np.ndarray) -> np.ndarray:
        """Return the two variables whose mean is the threshold."""
        if self.threshold == "balanced":
            order = np.argsort(b.real, kind="stable")
            return order[[(len(b) - 1) // 2, len(b) // 2]]
        if self.threshold == "expected":
            return threshold_elements(b, expected_count(b))
        return threshold_elements(b, sampled_count(b, independent_samples(b, self.n_samples, self.seed)))

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return 1 - F and its derivative."""
        variables, entries, w = _outputs(self, mu, labeling, weights)
        if (mu.graph.labels[variables] != 2).any():
            raise InputError("f_measure is for binary variables: label 1 is positive.")
        w = w * len(variables)
        positive = entries - labeling.labels[variables] + 1
        b, y = mu.unary_flat[positive], labeling.labels[variables]
        d_unary = np.zeros_like(mu.unary_flat)
        parts = _parts(mu, variables)
        value = 0.0 * b[0]
        for part in parts:
            loss, d_b = self._loss(b[part], y[part], w[part])
            value += loss / len(parts)
            d_unary[positive[part]] = d_b / len(parts)
        return value, unary_only(mu.graph, d_unary)

    def _loss(self, b: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return 1 - F of one example and its derivative with respect to b."""
        middle = self._elements(b)
        o = sigmoid((b - b[middle].mean()) / self.temperature)
        both, total = (w * y * o).sum(), (w * y).sum() + (w * o).sum()
        if total.real < 1e-12:
            return 0.0 * both, np.zeros_like(b)
        d_o = -2 * w * (y / total - both / total**2)
        d_b = d_o * o * (1 - o) / self.temperature
        np.add.at(d_b, middle, -d_b.sum() / 2)
        return 1 - 2 * both / total, d_b


def _parts(mu: Potentials, variables: np.ndarray) -> list[slice]:
    """Return the labelled variables of each graph of a union: each has its own F-measure."""
    if mu.graph.parts is None:
        return [slice(0, len(variables))]
    cuts = np.searchsorted(variables, mu.graph.parts)
    return [slice(a, b) for a, b in itertools.pairwise(cuts.tolist()) if b > a]
