"""Contracts of oracles: rows with biases -> a function that predicts the labels when the bias is added."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np

from backfield.oracles import OracleTask, checked_fit, objective
from backfield.testing.contract import GENERAL, Contract, check, close, require


def check_oracle(part: Any) -> None:
    """Raise AssertionError unless an oracle keeps to the contracts of its room.

    Parameters
    ----------
    part : Oracle, class or str
        An oracle, its class, or its spec; the packages that it needs must be installed.
    """
    check("oracles", part, CONTRACTS)


def rows(
    n: int = 600, n_features: int = 3, n_classes: int = 3, seed: int = 0, bias_scale: float = 2.0, margin: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels that depend on the first of them, and biases as messages give them.

    ``margin`` is added to the bias of all classes but the label.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_features))
    logits = x[:, :1] * np.linspace(-2, 2, n_classes) + 0.3 * rng.normal(size=(n, n_classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    bias = bias_scale * rng.normal(size=(n, n_classes)) + margin
    bias[np.arange(n), y] -= margin
    return x, y, bias


def descent(oracle: Any) -> None:
    """A fit does not raise the biased loss, uses the bias, and returns (N, K) finite scores without the bias."""
    for n_classes in (2, 4):
        x, y, bias = rows(3000, n_classes=n_classes, margin=10)
        fit = checked_fit(oracle, OracleTask(x, y, bias, seed=3))
        require(fit.function.n_classes == n_classes, f"n_classes={fit.function.n_classes}")
        require(fit.loss <= fit.loss_before, f"a loss of {fit.loss:.4g}, {fit.loss_before:.4g} before the fit")
        close(objective(fit.scores, y, bias), fit.loss, 1e-10, "the loss and that of the scores")


def saving(oracle: Any) -> None:
    """A function is saved as arrays and JSON and comes back, also pickled, with the same scores."""
    x, y, bias = rows(1000)
    fit = checked_fit(oracle, OracleTask(x, y, bias, seed=3))
    arrays, meta = fit.function.arrays(), json.loads(json.dumps(fit.function.meta()))
    require(all(isinstance(a, np.ndarray) and a.dtype.kind in "fiu" for a in arrays.values()), "arrays that are no numbers")
    close(type(oracle).function_class.from_arrays(arrays, meta).scores(x), fit.scores, 0.0, "scores after loading")
    close(pickle.loads(pickle.dumps(fit.function)).scores(x), fit.scores, 0.0, "scores after pickling")


def going_on(oracle: Any) -> None:
    """A fit that goes on from ``start`` does not raise the loss and leaves the old function as it was."""
    x, y, bias = rows(3000, margin=10)
    first = checked_fit(oracle, OracleTask(x, y, bias))
    second = checked_fit(oracle, OracleTask(x, y, bias, start=first.function, seed=1))
    require(second.loss <= first.loss * (1 + 1e-9), f"a loss of {second.loss:.4g} after {first.loss:.4g}")
    close(first.function.scores(x), first.scores, 0.0, "scores of the old function")


def seeds(oracle: Any) -> None:
    """The same seed and rows give the same function."""
    x, y, bias = rows(5000)
    a, b = (oracle.fit(OracleTask(x, y, bias, seed=5, n_jobs=1)).scores(x) for _ in range(2))
    close(a, b, 0.0, "scores of two fits")


def few_rows(oracle: Any) -> None:
    """A class may be missing from the labels, rows may be few, and features may not vary."""
    for n in (1, 2, 7):
        x, _, bias = rows(n)
        fit = checked_fit(oracle, OracleTask(x, np.ones(n, dtype=int), bias))
        require(fit.loss <= fit.loss_before + 1e-12, f"a higher loss from {n} rows")
    x, y, bias = rows(2000)
    checked_fit(oracle, OracleTask(x, y, np.column_stack([bias, bias[:, 0]])))
    fit = checked_fit(oracle, OracleTask(np.ones((2000, 2)), y, bias))
    close(np.ptp(fit.scores, axis=0), np.zeros(3), 0.0, "scores of equal rows and one another")


def weights(oracle: Any) -> None:
    """Labels and biases of rows of weight 0 do not matter."""
    x, y, bias = rows(1000)
    weight = np.random.default_rng(0).integers(0, 3, 1000).astype(float)
    other_y, other_bias = y.copy(), bias.copy()
    other_y[weight == 0], other_bias[weight == 0] = 0, 100.0
    a = oracle.fit(OracleTask(x, y, bias, weight)).scores(x)
    b = oracle.fit(OracleTask(x, other_y, other_bias, weight)).scores(x)
    close(a, b, 1e-6, "scores")


def soft_targets(oracle: Any) -> None:
    """Where the oracle says ``supports_soft_targets``, one-hot probabilities are the same as labels."""
    if oracle.supports_soft_targets:
        x, y, bias = rows(2000)
        soft = checked_fit(oracle, OracleTask(x, np.eye(3)[y], bias))
        close(soft.scores, checked_fit(oracle, OracleTask(x, y, bias)).scores, 2e-3, "scores")


def types(oracle: Any) -> None:
    """Features in float32 are taken, and the rows are left as they were."""
    x, y, bias = rows(1000)
    before = x.copy(), y.copy(), bias.copy()
    checked_fit(oracle, OracleTask(x.astype(np.float32), y, bias))
    oracle.fit(OracleTask(x, y, bias))
    require(all((a == b).all() for a, b in zip(before, (x, y, bias), strict=True)), "other rows after the fit")


#: What must hold for every oracle, in the order in which it is checked.
CONTRACTS: tuple[Contract, ...] = (*GENERAL, descent, saving, going_on, seeds, few_rows, weights, soft_targets, types)
