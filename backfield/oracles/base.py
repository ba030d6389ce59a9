"""What an oracle is: rows (features, label, bias) -> a function f that maximises the biased logistic objective.

    max_f  sum_k w_k [ f(x_k, y_k) + b_k(y_k) - log sum_y exp(f(x_k, y) + b_k(y)) ]        [L13] eq. (11)

The bias b_k carries the margin and the messages into a factor (eq. 14); f must be fitted *with* it and be scored
*without* it. ``checked_fit`` calls an oracle and finds out those that do not keep to this.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from backfield.errors import InputError
from backfield.oracles._softmax import BiasedLogistic
from backfield.registry import Component


class OracleFunction:
    """A fitted f: features -> one score for each class, and what is needed to save it without running code."""

    n_classes: int
    #: Columns of the features; None where they do not matter.
    n_features: int | None = None

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return f(x, y) as (N, K) for ``features`` (N, F), without any bias."""
        raise NotImplementedError

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that make up the function."""
        raise InputError(f"{type(self).__name__} cannot be saved: it has no arrays(), meta() and from_arrays().")

    def meta(self) -> dict[str, Any]:
        """Return what goes with ``arrays``: numbers and text that JSON can hold."""
        return {"n_classes": int(self.n_classes)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """Make the function again from ``arrays()`` and ``meta()``."""
        raise InputError(f"{cls.__name__} cannot be loaded: it has no arrays(), meta() and from_arrays().")


@dataclass(frozen=True, eq=False)
class OracleTask:
    """What an oracle is given: rows, the place to go on from, and how to work.

    Attributes
    ----------
    features : (N, F) floats
    labels : (N,) ints, or (N, K) target probabilities where ``supports_soft_targets``
    bias : (N, K) floats
        Added to the scores in the objective; no part of the function.
    weight : (N,) floats >= 0, optional
    start : OracleFunction, optional
        What this oracle returned before.
    seed : int
        Same seed and rows, same function.
    n_jobs : int
        Threads.
    """

    features: np.ndarray
    labels: np.ndarray
    bias: np.ndarray
    weight: np.ndarray | None = None
    start: Any = None
    seed: int = 0
    n_jobs: int = 1

    @property
    def n_classes(self) -> int:
        """K; a class need not occur among the labels."""
        return self.bias.shape[1]

    @property
    def n_features(self) -> int:
        """F."""
        return self.features.shape[1]

    def problem(self) -> BiasedLogistic:
        """Return the biased logistic loss of the rows."""
        return BiasedLogistic.of(self.labels, self.bias, self.weight)


class Sums(Protocol):
    """Rows with labels, biases and weights that are seen through sums alone: they may lie on many machines."""

    @property
    def n_features(self) -> int:
        """Columns of the features."""

    def mean_squares(self) -> np.ndarray:
        """Return the weighted mean of the square of each feature, (F,)."""

    def linear_gradient(self, w: np.ndarray, n_features: int) -> tuple[float, np.ndarray]:
        """Return the mean biased loss of f = W x and its gradient.

        ``w`` is (K, n_features), or has a column more, that of a constant; ``n_features`` is F, or 0 to use none.
        """


class Oracle(Component):
    """A method that fits a function class to the biased logistic objective."""

    room: ClassVar[str] = "oracles"
    #: Takes (N, K) target probabilities in the place of labels.
    supports_soft_targets: ClassVar[bool] = False
    #: Needs no rows but only sums over them, and has ``fit_sums``.
    sums: ClassVar[bool] = False
    #: The extra to install, as in ``pip install 'backfield[boost]'``.
    needs_extra: ClassVar[str | None] = None
    #: The class of the functions that ``fit`` returns; model files are read through its ``from_arrays``.
    function_class: ClassVar[type[OracleFunction]] = OracleFunction

    def fit(self, task: OracleTask) -> OracleFunction:
        """Return a function that makes the biased logistic objective of the rows large."""
        raise NotImplementedError

    def fit_sums(self, rows: Sums, *, n_classes: int, start: Any = None) -> OracleFunction:
        """Return the same function as ``fit`` from sums over the rows; only where ``sums``."""
        raise NotImplementedError


def objective(scores: np.ndarray, labels: np.ndarray, bias: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the mean biased logistic loss of ``scores`` (N, K): eq. (11) divided by minus the total weight."""
    return BiasedLogistic.of(labels, bias, weight).value(scores)


def shown(x: np.ndarray) -> str:
    """Return the type and shape of an array, for messages."""
    return f"{x.dtype} of shape {x.shape}"


def check_columns(name: str, features: np.ndarray, n_features: int) -> np.ndarray:
    """Return ``features`` as an array if it has the columns that the function was fitted on."""
    features = np.asarray(features)
    if features.ndim != 2 or features.shape[1] != n_features:
        raise InputError(f"{name}: features are {shown(features)}; (N, {n_features}) as in the fit are needed.")
    return features


def check_start(name: str, start: Any, kind: type[OracleFunction], n_classes: int, n_features: int | None) -> None:
    """Raise unless a fit can go on from ``start``."""
    if start is None:
        return
    if not isinstance(start, kind):
        raise InputError(f"{name}: start is a {type(start).__name__}; it goes on from a {kind.__name__} only.")
    if start.n_classes != n_classes or start.n_features != n_features:
        raise InputError(
            f"{name}: start has {start.n_features} features and {start.n_classes} classes, "
            f"the rows have {n_features} and {n_classes}."
        )


def check_parameter(name: str, key: str, value: Any, low: float, high: float = np.inf, whole: bool = False) -> None:
    """Raise unless the parameter is a number in [low, high]."""
    kinds: tuple[type, ...] = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= float(value) <= high:  # type: ignore[arg-type]
        what = "an integer" if whole else "a number"
        limits = f">= {low:g}" if high == np.inf else f"from {low:g} to {high:g}"
        raise InputError(f"{name}: {key} must be {what} {limits}, received {value!r}.")


def mixed_seed(seed: int, n_done: int) -> int:
    """A seed that changes as a function grows, so each fit draws other rows, whatever seed it is given."""
    return int(np.random.SeedSequence([seed, n_done]).generate_state(1)[0] >> 1)


def require(package: str, extra: str, name: str) -> Any:
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"{name} needs {package}, which cannot be imported ({error}): pip install 'backfield[{extra}]'."
        ) from error
