"""Model files: arrays and JSON in one safetensors file. Writing is atomic, reading runs no code.

The header's metadata holds one JSON text under ``backfield``: format, versions, the estimator's class and parameters
(parts as specs), classes, the layout of the weights and ``preprocessing_``, a dict of the user's (of the command line: how
features were made). Tensors are the weights. ``checksum`` beside it is over this text and the tensors; files of format 1
have none. Whatever the file says is checked (``_model_text``) before any of it reaches a kernel.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

from backfield.atomic import write_bytes
from backfield.constraints import check
from backfield.constraints import path as file_path
from backfield.data.formats.crfsuite import MAGIC, read_crfsuite
from backfield.energies.network import Network, NetworkEnergy, is_module
from backfield.energies.observed_constant import BoundConstant, ObservedConstant
from backfield.energies.observed_linear import BoundLinear, ObservedLinear
from backfield.energies.oracle_backed import OracleEnergy
from backfield.errors import InputError
from backfield.estimators._assembly import Classes, Learned, Reader
from backfield.estimators._fitting import Fitted
from backfield.estimators._model_text import check_blocks, check_settings, check_text, finite
from backfield.estimators.crf import CRF
from backfield.estimators.crfsuite_model import from_crfsuite
from backfield.estimators.multi_label import MultiLabelCRF
from backfield.features.columns import Columns
from backfield.lazy_names import homes
from backfield.limits import parse_json
from backfield.registry import Component, get, plain
from backfield.scikit_learn import check_is_fitted
from backfield.structures import Structure
from backfield.training.weights import WeightLayout

FORMAT = 2
#: What reading a file that is damaged, or that somebody has forged, may raise on the way to the checks.
_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RecursionError, MemoryError)


def save(estimator: CRF, path: Any) -> None:
    """Write a fitted estimator."""
    state = estimator._fitted
    if state is None:
        raise InputError(f"this {type(estimator).__name__} is not fitted yet; there is nothing to save.")
    learned = state.learned
    names = learned.reader.names
    text = {
        "format": FORMAT,
        "version": _version(),
        "estimator": type(estimator).__name__,
        "structure": repr(learned.reader.structure),
        "params": {key: _json_value(key, value) for key, value in estimator.get_params(deep=False).items()},
        "classes": learned.classes.values.tolist(),
        "layout": {kind: [_block(block) for block in learned.layout.of(kind)] for kind in ("unary", "factors")},
        "feature_names": None if names is None else list(names),
        "trace": state.trace,
        "converged": None if state.converged is None else bool(state.converged),
        "message": state.message,
        "inference": estimator.inference_,
        "preprocessing": state.preprocessing,
    }
    tensors = {"weights": np.ascontiguousarray(state.weights)}
    for kind in ("unary", "factors"):
        for number, block in enumerate(learned.layout.of(kind)):
            tensors |= {f"{kind}.{number}.{key}": np.ascontiguousarray(a) for key, a in _arrays(block.energy).items()}
    write(path, text, tensors)


def save_multi_label(estimator: MultiLabelCRF, path: Any) -> None:
    """Write a fitted classifier of label sets: a model without blocks, whose tensors are its coefficients."""
    check_is_fitted(estimator, "coef_")
    names = vars(estimator).get("feature_names_in_")
    text = {
        "format": FORMAT,
        "version": _version(),
        "estimator": "MultiLabelCRF",
        "params": {key: _json_value(key, value) for key, value in estimator.get_params(deep=False).items()},
        "classes": [0, 1],
        "layout": {"unary": [], "factors": []},
        "feature_names": None if names is None else [str(name) for name in names],
        "trace": estimator.trace_,
        "converged": bool(estimator.converged_),
        "preprocessing": None,
    }
    write(path, text, {key: np.ascontiguousarray(array) for key, array in estimator.arrays().items()})


def write(path: Any, text: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Write the text and the tensors of a model."""
    words = json.dumps(text)
    data = format_tensors(tensors, metadata={"backfield": words, "checksum": checksum(words, tensors)})
    try:
        write_bytes(path, _in_order(data))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; the old file is as it was.") from error


def load(path: Any, *, unary: Any = None, pairwise: Any = None) -> Any:
    """Read an estimator that :meth:`save` wrote.

    No code is run. A model with networks as energies holds their numbers and says where the class was imported from; pass
    a module of that class as ``unary`` or ``pairwise``, and the numbers are put into a copy of it. An estimator of another
    package comes back as a :class:`backfield.CRF` of the same structure. A ``.crfsuite`` model becomes a
    :class:`backfield.ChainCRF` that tags as CRFsuite does.
    """
    check({"path": path}, {"path": (file_path,)})
    data = _bytes(Path(path))
    if data.startswith(MAGIC):
        return _crfsuite(path, data)
    text, tensors = _read(Path(path), data)
    try:
        if text["estimator"] == "MultiLabelCRF":
            return _multi_label(text, tensors)
        estimator = _estimator(text)
        estimator.set_params(**{k: m for k, m in (("unary", unary), ("pairwise", pairwise)) if m is not None})
        check_settings(estimator._settings())
        estimator._fitted = _state(estimator._settings().structure, text, tensors, {"unary": unary, "factors": pairwise})
    except InputError as error:
        raise InputError(f"{path}: {_short(error)}") from error
    except _DAMAGE as error:
        raise InputError(f"{path}: the file is damaged or not a backfield model ({_short(error)}).") from error
    return estimator


def _in_order(data: bytes) -> bytes:
    """Return a safetensors file with its header in one order: equal models are equal files."""
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def checksum(text: str, tensors: dict[str, np.ndarray]) -> str:
    """Return the checksum of a model's text and tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _short(error: Exception) -> str:
    """Return a message as one line: a file may put anything into it."""
    text = " ".join(str(error).split())
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _multi_label(text: dict[str, Any], tensors: dict[str, np.ndarray]) -> MultiLabelCRF:
    """Return the classifier of label sets."""
    numbers = ("coef", "intercept", "couplings")
    arrays = {key: finite(key, array) if key in numbers else array for key, array in tensors.items()}
    estimator = MultiLabelCRF(**text["params"]).with_arrays(arrays)
    estimator.trace_, estimator.converged_, estimator.message_ = text["trace"], text["converged"], "read from a file"
    if text["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(text["feature_names"], dtype=object)
    return estimator


def _estimator(text: dict[str, Any]) -> CRF:
    """Return the estimator with its parameters, not fitted."""
    from backfield import estimators

    cls = getattr(estimators, text["estimator"]) if text["estimator"] in homes("backfield.estimators") else None
    if isinstance(cls, type) and issubclass(cls, CRF):
        return cls(**text["params"])
    if "structure" not in text:
        raise InputError(f"made by an estimator that this version does not know ({text['estimator']!r}).")
    known = inspect.signature(CRF.__init__).parameters
    params = {key: value for key, value in text["params"].items() if key in known}
    return CRF(**params | {"structure": text["structure"]})


def _state(structure: Structure, text: dict[str, Any], tensors: dict[str, np.ndarray], modules: dict[str, Any]) -> Fitted:
    """Return what was learned."""
    layout = WeightLayout()
    for kind in ("unary", "factors"):
        for number, (spec, extra, n_features, n_outputs, intercept) in enumerate(text["layout"][kind]):
            prefix = f"{kind}.{number}."
            arrays = {key.removeprefix(prefix): a for key, a in tensors.items() if key.startswith(prefix)}
            layout.add(kind, _energy(spec, extra, arrays, modules[kind], n_outputs), n_features, n_outputs, intercept)
    if not layout.unary:
        raise InputError("the file is damaged: variables have no energies.")
    for energy in structure.kernel_energies():
        layout.add("kernels", energy, 0, len(text["classes"]), False)
    weights = finite("weights", tensors["weights"])
    if weights.shape != (layout.n_weights,):
        raise InputError(f"the file is damaged: it holds {weights.shape} weights, and {layout.n_weights} are needed.")
    names = text.get("feature_names")
    reader = Reader(structure, None if names is None else Columns(zip(names, range(len(names)), strict=True)))
    classes = Classes(np.asarray(text["classes"]), structure.fixed_labels)
    check_blocks(structure, classes, layout, names)
    chosen = text.get("inference")
    learned = Learned(reader, classes, layout, inference=None if chosen is None else repr(get("inference", chosen)))
    message = text.get("message", "")
    return Fitted(learned, weights, text["trace"], text["converged"], message, preprocessing=text.get("preprocessing"))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the model {path}: {error.strerror}.") from error


def _crfsuite(path: Any, data: bytes) -> CRF:
    try:
        return from_crfsuite(read_crfsuite(data))
    except InputError as error:
        raise InputError(f"{path}: {error}.") from error


def _read(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        size = int.from_bytes(data[:8], "little")
        header = parse_json(data[8 : 8 + size]) if 0 < size <= len(data) - 8 else {}
        metadata = header.get("__metadata__", {})
        words = metadata.get("backfield", "null")
        text = parse_json(words)
        tensors = parse_tensors(data)
    except (SafetensorError, *_DAMAGE) as error:
        raise InputError(f"{path}: the file is damaged or not a backfield model.") from error
    if not isinstance(text, dict) or not _is_count(text.get("format")):
        raise InputError(f"{path}: not a backfield model.")
    if text["format"] > FORMAT:
        raise InputError(f"{path}: written by a newer backfield ({text.get('version')!s:.40}); update to read it.")
    if (text["format"] > 1 or "checksum" in metadata) and metadata.get("checksum") != checksum(words, tensors):
        raise InputError(f"{path}: the file is damaged: its checksum is wrong.")
    try:
        check_text(text)
    except InputError as error:
        raise InputError(f"{path}: {_short(error)}") from error
    return text, tensors


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _block(block: Any) -> list[Any]:
    extra = None
    if isinstance(block.energy, OracleEnergy):
        extra = {"eps": block.energy.eps, "function": block.energy.function and block.energy.function.meta()}
    return [repr(block.energy), extra, block.n_features, block.n_outputs, block.intercept]


def _arrays(energy: Any) -> dict[str, np.ndarray]:
    """Return what an energy holds beside the weights."""
    if isinstance(energy, BoundLinear):
        return {"ptr": energy.ptr, "labels": energy.labels}
    if isinstance(energy, BoundConstant):
        return {"places": energy.places}
    if isinstance(energy, OracleEnergy) and energy.function is not None:
        return energy.function.arrays()
    if isinstance(energy, NetworkEnergy):
        return energy.arrays()
    return {}


def _energy(spec: str, extra: dict[str, Any] | None, arrays: dict[str, np.ndarray], module: Any, n_outputs: int) -> Any:
    """Make an energy again from its spec and arrays; a network from a module of the user's."""
    if spec.startswith("network("):
        return NetworkEnergy.from_arrays(get("energies", spec).module, arrays, module)
    if extra is not None:
        oracle = get("oracles", spec)
        arrays = {key: finite(key, array) if array.dtype.kind == "f" else array for key, array in arrays.items()}
        function = oracle.function_class.from_arrays(arrays, extra["function"]) if extra["function"] else None
        return OracleEnergy(oracle, extra["eps"], function)
    energy = get("energies", spec)
    if isinstance(energy, ObservedConstant):
        return energy.bind(arrays["places"], n_outputs)
    return energy.bind(arrays["ptr"], arrays["labels"], n_outputs) if isinstance(energy, ObservedLinear) else energy


def _json_value(key: str, value: Any) -> Any:
    if isinstance(value, Component) or is_module(value):
        return repr(value if isinstance(value, Component) else Network(value))
    value = plain(value)
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
