"""Rows for oracles: a label that depends on the first feature, and biases as messages give them."""

import numpy as np

from backfield.registry import names

ORACLES = ["zero", "constant", "linear", "boosted_trees", "mlp"]
PACKAGES = {"boosted_trees": "lightgbm", "mlp": "torch"}


def rows(n=600, n_features=3, n_classes=3, seed=0, bias_scale=2.0, margin=0.0):
    """Return features, labels and biases; ``margin`` is added to the bias of all classes but the label."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_features))
    logits = x[:, :1] * np.linspace(-2, 2, n_classes) + 0.3 * rng.normal(size=(n, n_classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    bias = bias_scale * rng.normal(size=(n, n_classes)) + margin
    bias[np.arange(n), y] -= margin
    return x, y, bias


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def reference_loss(scores, labels, bias, weight=None):
    """Eq. (11) as written, in plain numpy."""
    z = scores + bias
    top = z.max(axis=1)
    log_total = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
    target = labels if np.ndim(labels) == 2 else np.eye(bias.shape[1])[labels]
    return np.average(log_total - (target * z).sum(axis=1), weights=weight)


def built_in():
    """Names of the oracles that come with the package; tests register others."""
    return [name for name in names("oracles") if name in ORACLES]
