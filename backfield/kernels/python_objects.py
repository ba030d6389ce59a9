"""Loops over Python's own lists and dicts, which an interpreter would run at a tenth of the speed.

Kernels here call the stable C interface of Python by the names of its functions, as the wrappers do that numba compiles
around every kernel; objects are their addresses. They keep the interpreter lock, look at objects that their caller holds,
and release what they make. An exception of Python never leaves them: they clear it and say that they could not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from backfield.kernels.compile import compiled_once


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return types.ExternalFunction(name, result(*arguments))


_P = types.intp
_list_item = _function("PyList_GetItem", _P, _P, _P)  # borrowed, as those of dicts
_dict_next = _function("PyDict_Next", types.intc, _P, _P, _P, _P)
_dict_item = _function("PyDict_GetItem", _P, _P, _P)
_dict_set = _function("PyDict_SetItem", types.intc, _P, _P, _P)
_hash = _function("PyObject_Hash", _P, _P)
_type = _function("PyObject_Type", _P, _P)
_joined = _function("PyUnicode_Concat", _P, _P, _P)
_number = _function("PyFloat_AsDouble", types.float64, _P)
_failed = _function("PyErr_Occurred", _P)
_forget = _function("PyErr_Clear", types.void)
_release = _function("Py_DecRef", types.void, _P)

#: Types of values that are numbers, the usual ones first.
_NUMBERS = np.array([id(each) for each in (float, bool, int, np.float64, np.float32, np.int64, np.bool_)], dtype=np.intp)


def hashes(objects: list[Any]) -> np.ndarray:
    """Return the hashes of objects that have one, as ``hash`` gives them."""
    out = np.empty(len(objects), dtype=np.int64)
    _hashes(id(objects), out)
    return out


def read_dicts(dicts: list[dict[str, Any]], count: int, separator: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Return hashes of the names and the values of the ``count`` entries of dicts, one dict after the other.

    A text as value belongs to the name, {"word": "the"} is ("word" + separator + "the", 1). None where a value is neither
    a number nor a text.
    """
    prefixes: dict[str, str] = {}
    found, values = np.empty(count, dtype=np.int64), np.empty(count)
    done = _read_dicts(id(dicts), len(dicts), id(separator), id(prefixes), id(str), _NUMBERS, found, values)
    return (found, values) if done else None


def _with_interpreter(function: Any) -> Any:
    return compiled_once(function, nogil=False)


@_with_interpreter
def _hashes(objects, out):
    for k in range(len(out)):
        out[k] = _hash(_list_item(objects, k))


@_with_interpreter
def _read_dicts(dicts, count, separator, prefixes, text, numbers, hashes, values):
    """Return whether all values were numbers or texts; ``prefixes`` keeps names with the separator."""
    found = np.zeros(3, np.intp)
    place, width, at = found.ctypes.data, found.itemsize, 0
    for k in range(count):
        each = _list_item(dicts, k)
        found[0] = 0
        while _dict_next(each, place, place + width, place + 2 * width):
            name, value = found[1], found[2]
            kind = _type(value)
            _release(kind)  # it lives as long as the value
            if kind == text:
                prefix = _dict_item(prefixes, name)
                if prefix == 0:
                    prefix = _joined(name, separator)
                    if prefix == 0:
                        _forget()
                        return False
                    failed = _dict_set(prefixes, name, prefix)
                    _release(prefix)
                    if failed != 0:
                        _forget()
                        return False
                whole = _joined(prefix, value)
                if whole == 0:
                    _forget()
                    return False
                hashes[at], values[at] = _hash(whole), 1.0
                _release(whole)
            else:
                known = False
                for number in numbers:
                    if kind == number:
                        known = True
                        break
                if not known:
                    return False
                values[at] = _number(value)
                if values[at] == -1.0 and _failed() != 0:
                    _forget()
                    return False
                hashes[at] = _hash(name)
            at += 1
    return True
