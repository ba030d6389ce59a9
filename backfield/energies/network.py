"""Networks of the user's as energies: theta = f(features; w) with f a ``torch.nn.Module`` and w its parameters.

On grids the module sees the image (H, W, F) and returns (H, W, K), so it may convolve; elsewhere it sees the rows of
one example (N, F) and returns (N, K). It is a function of w and the features alone: no random numbers, no statistics of
a batch. A copy of the module works in each thread, single-threaded, so a sum over examples has the same bytes for any
number of threads. Cost: one forward and one backward pass of the module per example; the graph of the last forward pass
of a thread is kept for its backward pass.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from backfield.energies.base import Energy
from backfield.errors import InputError


@dataclass(frozen=True, repr=False, eq=False)
class Network(Energy, name="network"):
    """A ``torch.nn.Module`` as unary or pairwise energy; it starts from the parameters it has.

    Parameters
    ----------
    module : torch.nn.Module
        (H, W, F) -> (H, W, L) on grids, (N, F) -> (N, L) elsewhere; as pairwise energy (F, D) -> (F, L * L), rows of the
        edges of one type. Parameters with ``requires_grad = False`` stay as they are.
    """

    module: Any = None

    def __repr__(self) -> str:
        return f"network(module={import_path(self.module)!r})"

    def bind(self) -> NetworkEnergy:
        """Return the energy of a copy of the module, checked."""
        if not is_module(self.module):
            raise InputError(f"network needs a torch.nn.Module: bf.Network(module); received {self.module!r}.")
        return NetworkEnergy(self.module)


class NetworkEnergy(Energy):
    """A module whose trainable parameters are a slice of w. Not registered: written as :class:`Network`."""

    whole: ClassVar[bool] = True
    linear: ClassVar[bool] = False

    def __init__(self, module: Any) -> None:
        _check_module(module)
        self.module = copy.deepcopy(module).eval()
        self.path = import_path(module)
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"network(module={self.path!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()

    def n_weights(self, n_features: int, n_outputs: int, intercept: bool) -> int:
        """Return the number of trainable parameters."""
        if n_features == 0:
            raise InputError("a network needs features: edge features (GridSample, Sample) where it is the pairwise energy.")
        return sum(parameter.numel() for parameter in _trainable(self.module))

    def start(self, n_features: int, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the parameters that the module has."""
        return self.flat(self.module)

    def flat(self, module: Any) -> np.ndarray:
        """Return the trainable parameters of a module of this kind, flat."""
        parts = [parameter.detach().numpy().reshape(-1).astype(np.float64) for parameter in _trainable(module)]
        return np.concatenate(parts) if parts else np.empty(0)

    def fitted(self, w: np.ndarray) -> Any:
        """Return a copy of the module with the weights w."""
        module = copy.deepcopy(self.module)
        _set(module, w)
        return module

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what a model file needs beside w: fixed parameters, buffers, and the shapes of the trainable ones."""
        trainable = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        out = {f"shape.{name}": np.array(p.shape, dtype=np.int64) for name, p in trainable.items()}
        state = self.module.state_dict()
        return out | {f"fixed.{name}": value.numpy() for name, value in state.items() if name not in trainable}

    @classmethod
    def from_arrays(cls, path: str, arrays: dict[str, np.ndarray], module: Any) -> NetworkEnergy:
        """Make an energy of a saved one from a module of the same class."""
        if isinstance(module, Network):
            module = module.module
        if not is_module(module):
            raise InputError(
                f"the model holds a network of the class {path}; loading runs no code, so pass a module of that class: "
                "backfield.load(path, unary=module), or pairwise=module."
            )
        import torch

        found = {name: tuple(p.shape) for name, p in module.named_parameters() if p.requires_grad}
        wanted = {key.removeprefix("shape."): tuple(a.tolist()) for key, a in arrays.items() if key.startswith("shape.")}
        if import_path(module) != path or found != wanted:
            raise InputError(
                f"the model holds a network of the class {path} with parameters {wanted}; received a "
                f"{import_path(module)} with "
                f"{found}."
            )
        energy = cls(module)
        fixed = {key.removeprefix("fixed."): torch.from_numpy(a) for key, a in arrays.items() if key.startswith("fixed.")}
        unknown = energy.module.load_state_dict(fixed, strict=False).unexpected_keys
        if unknown:
            raise InputError(f"the saved network has {', '.join(unknown)}, which the module that was passed lacks.")
        return energy

    def scores(self, w: np.ndarray, features: Any, n_outputs: int, intercept: bool) -> np.ndarray:
        """Return the output of the module, (N, K)."""
        return self._forward(w, features, n_outputs).detach().numpy().reshape(-1, n_outputs)

    def vjp(self, features: Any, d_scores: np.ndarray, intercept: bool, w: np.ndarray | None = None) -> np.ndarray:
        """Return the adjoint of the parameters."""
        if w is None:
            raise InputError("this learner needs energies that are linear in the weights; train a network by sgd or lbfgs.")
        import torch

        out = self._forward(w, features, d_scores.shape[1])
        parameters = _trainable(self._local.module)
        d_out = torch.from_numpy(np.ascontiguousarray(d_scores, dtype=features.dtype)).reshape(out.shape)
        with _OneThread():
            found = torch.autograd.grad(out, parameters, d_out, allow_unused=True)
        self.forget()
        parts = [
            np.zeros(p.numel()) if g is None else g.numpy().reshape(-1).astype(np.float64)
            for p, g in zip(parameters, found, strict=True)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def forget(self) -> None:
        """Drop the graph of the last forward pass of this thread."""
        self._local.last = None

    def _forward(self, w: np.ndarray, features: Any, n_outputs: int) -> Any:
        import torch

        if not isinstance(features, np.ndarray):
            raise InputError("a network needs dense features; received a sparse matrix.")
        local = self._local
        last = getattr(local, "last", None)
        if last is not None and last[0] is features and np.array_equal(last[1], w):
            return last[2]
        dtype = torch.from_numpy(np.empty(0, features.dtype)).dtype
        if getattr(local, "dtype", None) != dtype:
            local.module, local.dtype = copy.deepcopy(self.module).to(dtype), dtype
        _set(local.module, w)
        with _OneThread(), torch.enable_grad():
            out = local.module(torch.from_numpy(features))
        wanted = (*features.shape[:-1], n_outputs)
        if not isinstance(out, torch.Tensor) or tuple(out.shape) != wanted or out.dtype != dtype:
            got = f"{tuple(out.shape)} {out.dtype}" if isinstance(out, torch.Tensor) else type(out).__name__
            raise InputError(f"{self!r} must turn features {features.shape} into {wanted} of {dtype}; received {got}.")
        local.last = (features, w.copy(), out)
        return out


def is_module(value: Any) -> bool:
    """Whether something is a torch.nn.Module, without importing PyTorch."""
    return any(cls.__module__ == "torch.nn.modules.module" and cls.__name__ == "Module" for cls in type(value).__mro__)


def import_path(module: Any) -> str:
    """Return where the class of a module is imported from; a text that was saved stays as it is."""
    return module if isinstance(module, str) else f"{type(module).__module__}.{type(module).__qualname__}"


def _trainable(module: Any) -> list[Any]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _set(module: Any, w: np.ndarray) -> None:
    """Copy flat weights into the trainable parameters."""
    import torch

    at = 0
    with torch.no_grad():
        for parameter in _trainable(module):
            part = torch.from_numpy(np.array(w[at : at + parameter.numel()]))  # a copy: w may be read-only
            parameter.copy_(part.reshape(parameter.shape))
            at += parameter.numel()


def _check_module(module: Any) -> None:
    """Refuse modules that are more than a function of weights and features."""
    import torch

    for name, part in module.named_modules():
        random = isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.p > 0
        if part.training and (random or isinstance(part, torch.nn.modules.batchnorm._BatchNorm)):
            raise InputError(
                f"the network's {name or 'module'} ({type(part).__name__}) is not a function of the weights alone; use "
                "GroupNorm and no dropout, freeze it by module.eval(), or train with backfield.bridges.torch.CRFLayer."
            )
    for parameter in module.parameters():
        if parameter.device.type != "cpu" or not torch.isfinite(parameter).all():
            raise InputError("the network's parameters must be finite numbers on the CPU.")


class _OneThread:
    """PyTorch with one thread; worker threads keep it, as another thread's setting could cut in (MKL's is global)."""

    def __enter__(self) -> None:
        import torch

        self.before = torch.get_num_threads()
        if self.before > 1:
            torch.set_num_threads(1)

    def __exit__(self, *error: Any) -> None:
        if self.before > 1 and threading.current_thread() is threading.main_thread():
            import torch

            torch.set_num_threads(self.before)
