"""What a model file may say: types, sizes and numbers, checked before any of it is used.

A file may come from a stranger, and its checksum with it. Each check refuses in one sentence.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from backfield.energies.oracle_backed import OracleEnergy
from backfield.errors import InputError
from backfield.estimators._assembly import Classes
from backfield.estimators._settings import Settings
from backfield.structures import Structure
from backfield.training.weights import WeightLayout

#: Numbers of features and of entries of a table are below this.
_MOST = 2**40


def check_text(text: dict[str, Any]) -> None:
    """Refuse a text whose entries are not of their types."""
    for key, good in _ENTRIES.items():
        if not good(text.get(key)):
            raise InputError(f"the file is damaged: its entry {key!r} is missing or not of its type.")
    for kind in ("unary", "factors"):
        blocks = text["layout"].get(kind)
        if not isinstance(blocks, list) or not all(_is_block(block) for block in blocks):
            raise InputError(f"the file is damaged: its layout of {kind} is not a list of blocks.")


def _is_classes(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    numbers = all(type(each) is int and -(2**63) <= each < 2**63 for each in value)
    return (numbers or all(isinstance(each, str) for each in value)) and len(set(value)) == len(value)


def _is_names(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and len(set(value)) == len(value)


def _is_block(block: Any) -> bool:
    if not isinstance(block, list) or len(block) != 5:
        return False
    spec, extra, n_features, n_outputs, intercept = block
    sizes = type(n_features) is int and 0 <= n_features < _MOST and type(n_outputs) is int and 1 <= n_outputs < _MOST
    return isinstance(spec, str) and _is_extra(extra) and sizes and intercept in (0, 1)


def _is_extra(extra: Any) -> bool:
    if extra is None:
        return True
    if not isinstance(extra, dict) or set(extra) != {"eps", "function"} or not isinstance(extra["function"], dict | None):
        return False
    return type(extra["eps"]) in (int, float) and math.isfinite(extra["eps"])


def _is_trace(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


_ENTRIES = {
    "estimator": lambda value: isinstance(value, str),
    "params": lambda value: isinstance(value, dict),
    "classes": _is_classes,
    "layout": lambda value: isinstance(value, dict),
    "feature_names": _is_names,
    "trace": _is_trace,
    "converged": lambda value: value is None or isinstance(value, bool),
    "inference": lambda value: value is None or isinstance(value, str),
    "message": lambda value: value is None or isinstance(value, str),
    "preprocessing": lambda value: value is None or isinstance(value, dict),
}


def check_settings(settings: Settings) -> None:
    """Refuse parameters with which no prediction can be made."""
    _ = settings.structure, settings.inference, settings.decoder, settings.seed, settings.n_jobs
    if settings.dtype not in ("float32", "float64"):
        raise InputError(f"the dtype of the model is {settings.dtype!r}; it must be 'float32' or 'float64'.")


def check_blocks(structure: Structure, classes: Classes, layout: WeightLayout, names: list[str] | None) -> None:
    """Refuse blocks of weights that do not go with the classes, the named features or the functions of oracles."""
    for block in layout.unary:
        if not structure.fixed_labels and block.n_outputs != len(classes):
            raise InputError(f"the file is damaged: weights of {block.n_outputs} labels for {len(classes)} classes.")
        if names is not None and block.n_features != len(names):
            raise InputError(f"the file is damaged: weights of {block.n_features} features for {len(names)} names.")
    for block in layout.blocks:
        function = block.energy.function if isinstance(block.energy, OracleEnergy) else None
        if function is not None and function.n_classes != block.n_outputs:
            raise InputError(f"the file is damaged: a function of {function.n_classes} labels where {block.n_outputs} are.")


def finite(name: str, array: np.ndarray) -> np.ndarray:
    """Return numbers of a file that are finite."""
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise InputError(f"the file is damaged: its {name} must be finite numbers.")
    return array
