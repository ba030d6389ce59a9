"""Model files: arrays and JSON in one safetensors file. Writing is atomic, reading runs no code.

The header's metadata holds one JSON text under ``backfield``: format, versions, the estimator's class and parameters
(parts as specs), classes, the layout of the weights and ``preprocessing_``, a dict of the user's (of the command line: how
features were made). Tensors are the weights.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

from backfield.energies.network import Network, NetworkEnergy, is_module
from backfield.energies.observed_linear import BoundLinear, ObservedLinear
from backfield.energies.oracle_backed import OracleEnergy
from backfield.errors import InputError
from backfield.registry import Component, get
from backfield.training.weights import WeightLayout

FORMAT = 1


def save(estimator: Any, path: Any) -> None:
    """Write a fitted estimator."""
    if not hasattr(estimator, "weights_"):
        raise InputError(f"this {type(estimator).__name__} is not fitted yet; there is nothing to save.")
    params = {key: _json_value(key, value) for key, value in estimator.get_params(deep=False).items()}
    names = getattr(estimator, "feature_names_", None)
    text = {
        "format": FORMAT,
        "version": _version(),
        "estimator": type(estimator).__name__,
        "params": params,
        "classes": estimator.classes_.tolist(),
        "layout": {kind: [_block(block) for block in getattr(estimator.layout_, kind)] for kind in ("unary", "factors")},
        "feature_names": None if names is None else list(names),
        "trace": estimator.trace_,
        "converged": bool(estimator.converged_) if hasattr(estimator, "converged_") else None,
        "preprocessing": getattr(estimator, "preprocessing_", None),
    }
    tensors = {"weights": np.ascontiguousarray(estimator.weights_)}
    for kind in ("unary", "factors"):
        for number, block in enumerate(getattr(estimator.layout_, kind)):
            tensors |= {f"{kind}.{number}.{key}": np.ascontiguousarray(a) for key, a in _arrays(block.energy).items()}
    write_atomically(path, format_tensors(tensors, metadata={"backfield": json.dumps(text)}))


def load(path: Any, *, unary: Any = None, pairwise: Any = None) -> Any:
    """Read an estimator that :meth:`save` wrote.

    No code is run. A model with networks as energies holds their numbers and says where the class was imported from; pass
    a module of that class as ``unary`` or ``pairwise``, and the numbers are put into a copy of it.
    """
    from backfield import estimators

    text, tensors = _read(Path(path))
    cls = getattr(estimators, text.get("estimator", ""), None)
    if cls is None:
        raise InputError(f"{path}: made by an estimator that this version does not know ({text.get('estimator')!r}).")
    try:
        modules = {"unary": unary, "factors": pairwise}
        for kind, module in (("unary", unary), ("pairwise", pairwise)):
            if module is not None:
                text["params"][kind] = module
        estimator = cls(**text["params"])
        estimator.classes_ = np.asarray(text["classes"])
        estimator.layout_ = WeightLayout()
        for kind in ("unary", "factors"):
            for number, (spec, extra, n_features, n_outputs, intercept) in enumerate(text["layout"][kind]):
                prefix = f"{kind}.{number}."
                arrays = {key.removeprefix(prefix): a for key, a in tensors.items() if key.startswith(prefix)}
                energy = _energy(spec, extra, arrays, modules[kind])
                estimator.layout_.add(kind, energy, n_features, n_outputs, intercept)
        estimator.weights_ = tensors["weights"]
        estimator.trace_ = text["trace"]
        estimator.converged_ = text["converged"]
        estimator.n_features_in_ = estimator.layout_.unary[0].n_features
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path}: the file is damaged or not a backfield model ({error}).") from error
    if estimator.weights_.shape != (estimator.layout_.n_weights,):
        raise InputError(f"{path}: the file is damaged: it holds {estimator.weights_.shape} weights.")
    if text.get("feature_names") is not None:
        estimator.feature_names_ = {name: k for k, name in enumerate(text["feature_names"])}
    if text.get("preprocessing") is not None:
        estimator.preprocessing_ = text["preprocessing"]
    return estimator


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the model {path}: {error.strerror}.") from error
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size]) if 0 < size <= len(data) - 8 else {}
        text = json.loads(header.get("__metadata__", {}).get("backfield", "null"))
        tensors = parse_tensors(data)
    except (SafetensorError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: the file is damaged or not a backfield model.") from error
    if not isinstance(text, dict) or "format" not in text:
        raise InputError(f"{path}: not a backfield model.")
    if text["format"] > FORMAT:
        raise InputError(f"{path}: written by a newer backfield ({text.get('version')}); update to read it.")
    return text, tensors


def write_atomically(path: Any, data: bytes) -> None:
    """Write a file so that a crash, a full disk or a missing right leaves the old one as it was."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:  # not mkstemp, whose files only their owner may read
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; the old file is as it was.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _block(block: Any) -> list[Any]:
    extra = None
    if isinstance(block.energy, OracleEnergy):
        extra = {"eps": block.energy.eps, "function": block.energy.function and block.energy.function.meta()}
    return [repr(block.energy), extra, block.n_features, block.n_outputs, block.intercept]


def _arrays(energy: Any) -> dict[str, np.ndarray]:
    """Return what an energy holds beside the weights."""
    if isinstance(energy, BoundLinear):
        return {"ptr": energy.ptr, "labels": energy.labels}
    if isinstance(energy, OracleEnergy) and energy.function is not None:
        return energy.function.arrays()
    if isinstance(energy, NetworkEnergy):
        return energy.arrays()
    return {}


def _energy(spec: str, extra: dict[str, Any] | None, arrays: dict[str, np.ndarray], module: Any) -> Any:
    """Make an energy again from its spec and arrays; a network from a module of the user's."""
    if spec.startswith("network("):
        return NetworkEnergy.from_arrays(get("energies", spec).module, arrays, module)
    if extra is not None:
        oracle = get("oracles", spec)
        function = oracle.function_class.from_arrays(arrays, extra["function"]) if extra["function"] else None
        return OracleEnergy(oracle, extra["eps"], function)
    energy = get("energies", spec)
    return energy.bind(arrays["ptr"], arrays["labels"]) if isinstance(energy, ObservedLinear) else energy


def _json_value(key: str, value: Any) -> Any:
    if isinstance(value, Component) or is_module(value):
        return repr(value if isinstance(value, Component) else Network(value))
    if isinstance(value, np.generic):
        return value.item()
    try:
        json.dumps(value)
    except TypeError as error:
        raise InputError(
            f"the parameter {key}={value!r} cannot be saved without running code on loading; save the classifier with its "
            "own library, and fit the field on its log-probabilities."
        ) from error
    return value


def _version() -> str:
    from backfield import __version__

    return __version__
