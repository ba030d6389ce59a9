"""A network with one hidden layer of sigmoids, fitted by stochastic gradients with PyTorch ([L13] §8).

    f(x, y) = (W sigma(U z + c) + a)_y,    z = (x - mean) / scale

Mini-batches of 1000 rows and momentum as in [L13], footnote 2: the new step is .1 times the new gradient plus .9 times the
old step. Differs from [L13]: features are standardised, and W starts at 0, so f does (a fit starts where the zero
function is and not above it). Numbers are float32; PyTorch is needed to fit only.

O(N H (F + K)) for an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from backfield.constraints import check_choice
from backfield.errors import InputError
from backfield.kernels.compile import kernel
from backfield.kernels.vector_math import vector_exp
from backfield.oracles.base import (
    Oracle,
    OracleFunction,
    OracleTask,
    check_columns,
    check_parameter,
    check_start,
    mixed_seed,
    require,
)

OPTIMIZERS = ("sgd", "adam")
STEPS = {"sgd": 0.25, "adam": 0.01}
#: Rows side by side in the kernel of the scores.
LANES = 128
#: Hidden numbers of a batch below which threads cost more than they bring: measured at 1000 x 100 on two busy cores, an
#: epoch takes ten times as long with two threads.
MANY = 500_000


class Layers(NamedTuple):
    """The arrays of a network, float32."""

    mean: np.ndarray
    scale: np.ndarray
    hidden_weights: np.ndarray
    hidden_bias: np.ndarray
    weights: np.ndarray
    bias: np.ndarray


class MlpFunction(OracleFunction):
    """A fitted network, and the number of epochs it has seen."""

    n_features: int

    def __init__(self, layers: Layers, n_epochs: int = 0) -> None:
        self.layers = layers
        self.n_epochs = n_epochs
        self.n_features = layers.hidden_weights.shape[1]
        self.n_classes = len(layers.weights)

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the outputs of the network, (N, K)."""
        features = np.ascontiguousarray(check_columns("mlp", features, self.n_features))
        scores = np.empty((len(features), self.n_classes))
        _network_scores(features, *self.layers, scores)
        return scores

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the layers."""
        return self.layers._asdict()

    def meta(self) -> dict[str, Any]:
        """Return the numbers of classes and of epochs."""
        return {"n_classes": self.n_classes, "n_epochs": self.n_epochs}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """Make the function again; needs no PyTorch."""
        layers = Layers(*(np.ascontiguousarray(arrays[key], dtype=np.float32) for key in Layers._fields))
        h, f = layers.hidden_weights.shape
        k = int(meta["n_classes"])
        if [x.shape for x in layers] != [(f,), (f,), (h, f), (h,), (k, h), (k,)]:
            raise InputError("mlp: the arrays of the layers do not match.")
        return cls(layers, int(meta["n_epochs"]))


@dataclass(frozen=True, repr=False)
class Mlp(Oracle, name="mlp"):
    """A network with one hidden layer, fitted by stochastic gradients; needs PyTorch.

    A fit goes on from the weights of ``start``. It need not lower the loss if the step is long.

    Parameters
    ----------
    hidden : int
        Units of the hidden layer.
    n_epochs : int
        Passes over the rows in one fit.
    step : float, optional
        Step size. [L13]: 0.25 for unary and 0.05 for pairwise terms. None: 0.25 with "sgd", 0.01 with "adam".
    momentum : float
        Share of the old step in the new one (only "sgd").
    batch : int
        Rows of a mini-batch.
    optimizer : {"sgd", "adam"}
    init_scale : float
        Standard deviation of the input of a hidden unit at the start. Few features with sharp thresholds want more (10
        to 30), many features less (1 to 2).
    """

    supports_soft_targets: ClassVar[bool] = True
    needs_extra: ClassVar[str | None] = "torch"
    function_class: ClassVar[type[OracleFunction]] = MlpFunction

    hidden: int = 100
    n_epochs: int = 5
    step: float | None = None
    momentum: float = 0.9
    batch: int = 1000
    optimizer: str = "sgd"
    init_scale: float = 3.0

    def __post_init__(self) -> None:
        for key in ("hidden", "n_epochs", "batch"):
            check_parameter("mlp", key, getattr(self, key), 1, whole=True)
        if self.step is not None:
            check_parameter("mlp", "step", self.step, 0)
        check_parameter("mlp", "momentum", self.momentum, 0, 1)
        check_parameter("mlp", "init_scale", self.init_scale, 0)
        check_choice("optimizer", self.optimizer, OPTIMIZERS, "mlp")

    def fit(self, task: OracleTask) -> MlpFunction:
        """Return the network after ``n_epochs`` more epochs."""
        torch = require("torch", "torch", "mlp")
        check_start("mlp", task.start, MlpFunction, task.n_classes, task.n_features)
        n_epochs = 0 if task.start is None else task.start.n_epochs
        generator = torch.Generator().manual_seed(mixed_seed(task.seed, n_epochs))
        layers = self._first(torch, task, generator) if task.start is None else task.start.layers
        z = ((task.features - layers.mean) / layers.scale).astype(np.float32)
        target = np.array(task.labels, dtype=np.int64 if np.ndim(task.labels) == 1 else np.float32)
        w = np.ones(len(z)) if task.weight is None else task.weight / np.mean(task.weight)
        rows = [torch.from_numpy(x) for x in (z, target, np.array(task.bias, np.float32), np.array(w, np.float32))]
        with _threads(torch, task.n_jobs if self.batch * self.hidden >= MANY else 1):
            parameters = [torch.from_numpy(x.copy()).requires_grad_() for x in layers[2:]]
            self._descend(torch, rows, parameters, generator)
        fitted = Layers(*layers[:2], *(p.detach().numpy() for p in parameters))
        return MlpFunction(fitted, n_epochs + self.n_epochs)

    def _first(self, torch: Any, task: OracleTask, generator: Any) -> Layers:
        """Return a network that is 0 everywhere, with random hidden units."""
        features, n_classes = task.features, task.n_classes
        mean, scale = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
        varies = scale > 1e-9 * np.abs(mean)
        deviation = self.init_scale / max(1.0, float(varies.sum())) ** 0.5
        u = deviation * torch.randn(self.hidden, task.n_features, generator=generator).numpy()
        c = self.init_scale * torch.randn(self.hidden, generator=generator).numpy()
        zero = np.zeros((n_classes, self.hidden)), np.zeros(n_classes)
        arrays = mean, np.where(varies, scale, 1), u, c, *zero
        return Layers(*(np.ascontiguousarray(x, dtype=np.float32) for x in arrays))

    def _descend(self, torch: Any, rows: list[Any], parameters: list[Any], generator: Any) -> None:
        """Move the parameters, in place, for ``n_epochs`` passes over the rows in random order."""
        step = STEPS[self.optimizer] if self.step is None else self.step
        adam = torch.optim.Adam(parameters, lr=step) if self.optimizer == "adam" else None
        last = [torch.zeros_like(p) for p in parameters]
        for _ in range(self.n_epochs):
            order = torch.randperm(len(rows[0]), generator=generator)
            shuffled = [x[order] for x in rows]
            for batch in zip(*(x.split(self.batch) for x in shuffled), strict=True):
                gradient = torch.autograd.grad(_batch_loss(torch, parameters, *batch), parameters)
                if adam is not None:
                    for p, g in zip(parameters, gradient, strict=True):
                        p.grad = g
                    adam.step()
                    continue
                with torch.no_grad():
                    for p, g, v in zip(parameters, gradient, last, strict=True):
                        v.mul_(self.momentum).add_(g, alpha=1 - self.momentum)
                        p.sub_(v, alpha=step)


def _batch_loss(torch: Any, parameters: list[Any], z: Any, target: Any, bias: Any, weight: Any) -> Any:
    u, c, w, a = parameters
    scores = torch.addmm(a, torch.sigmoid(torch.addmm(c, z, u.T)), w.T)
    return torch.nn.functional.cross_entropy(scores + bias, target, reduction="none") @ weight / len(weight)


@contextmanager
def _threads(torch: Any, n_jobs: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@kernel
def _network_scores(x, mean, scale, u, c, w, a, scores):
    """Write the outputs for each row of x; 128 rows at a time, side by side."""
    n_features, n_classes = x.shape[1], scores.shape[1]
    one = u.dtype.type(1)
    z, s = np.zeros((n_features, LANES), u.dtype), np.empty((n_classes, LANES), u.dtype)
    h = np.empty(LANES, u.dtype)
    for low in range(0, len(x), LANES):
        n = min(LANES, len(x) - low)
        for i in range(n):
            for j in range(n_features):
                z[j, i] = (x[low + i, j] - mean[j]) / scale[j]
        for k in range(n_classes):
            s[k, :] = a[k]
        for unit in range(len(u)):
            h[:] = c[unit]
            for j in range(n_features):
                b = u[unit, j]
                for i in range(LANES):
                    h[i] += b * z[j, i]
            for i in range(LANES):
                h[i] = one / (one + vector_exp(-h[i]))
            for k in range(n_classes):
                b = w[k, unit]
                for i in range(LANES):
                    s[k, i] += b * h[i]
        for i in range(n):
            for k in range(n_classes):
                scores[low + i, k] = s[k, i]
