"""What all checks share: a contract is a function whose docstring is the sentence that must hold."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from backfield.errors import ConvergenceWarning, InputError
from backfield.registry import Component, get, lookup

#: part, data of the caller -> None; raises where the contract is broken.
Contract = Callable[..., None]


def check(room: str, part: Any, contracts: Iterable[Contract], *data: Any) -> None:
    """Run contracts on a part of ``room``, given as the part, its class or its spec, and data where they need any."""
    subject = get(room, part)
    for contract in contracts:
        keep(contract, subject, *data)


def keep(contract: Contract, part: Component, *data: Any) -> None:
    """Run one contract; whatever goes wrong becomes an AssertionError that names it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            contract(part, *data)
        except Exception as error:
            sentence = " ".join((contract.__doc__ or contract.__name__).split())
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(
                f"{part.room} {part!r} breaks the contract {contract.__name__!r}: {sentence} {kind}{error}"
            ) from error


def require(holds: Any, found: str) -> None:
    """Raise AssertionError with what was found unless it ``holds``."""
    if not holds:
        raise AssertionError(f"Found: {found}.")


def close(found: Any, wanted: Any, tolerance: float, what: str) -> None:
    """Raise AssertionError unless two arrays differ by at most ``tolerance``; NaN is far from everything."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    require(found.shape == wanted.shape, f"{what} have shape {found.shape}, not {wanted.shape}")
    difference = float(np.abs(found - wanted).max(initial=0.0))
    require(difference <= tolerance, f"{what} differ by {difference:.3g}, where {tolerance:.3g} is allowed")


def refuses(what: str, call: Callable[[], Any]) -> None:
    """Raise AssertionError unless ``call`` raises InputError with one line of text."""
    try:
        call()
    except InputError as error:
        require(str(error).strip() and "\n" not in str(error), f"{what} is refused by {str(error)!r}, which is not one line")
        return
    require(False, f"{what} is accepted")


def adapted(part: Any, **wanted: Any) -> Any:
    """Return the part with other values for those of the parameters that it has."""
    known = {field.name for field in dataclasses.fields(part)}
    return part.replace(**{key: value for key, value in wanted.items() if key in known})


def spec_round_trip(part: Any) -> None:
    """The repr of a part is a spec that reads back as an equal part, and the class is the one that is registered."""
    require(dataclasses.is_dataclass(part), "no dataclass; decorate the class with @dataclass(frozen=True, repr=False)")
    require(type(part).__dataclass_params__.frozen, "a dataclass that is not frozen")
    require(type(part).__repr__ is Component.__repr__, "a repr of the dataclass; give @dataclass repr=False")
    require(lookup(part.room, part.name) is type(part), f"{part.name!r} is registered for another class")
    for subject in (part, *_changed(part)):
        back = get(part.room, repr(subject))
        require(back == subject and repr(back) == repr(subject), f"{subject!r} comes back as {back!r}")


def _changed(part: Any) -> list[Any]:
    """Return the part with each number a little larger, where it takes that."""
    found = []
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                found.append(part.replace(**{field.name: value + 1 if isinstance(value, int) else value * 0.5}))
            except InputError:
                continue
    return found


def copies(part: Any) -> None:
    """A part can be pickled (threads and workers get copies) and copied, and copies are equal to it."""
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(part, protocol))
        require(back == part and type(back) is type(part), f"the copy is {back!r}")
    require(copy.deepcopy(part) == part, "a deep copy that is not equal")


def is_documented(part: Any) -> None:
    """A part has its own docstring, whose first line `backfield list` shows."""
    text = (type(part).__doc__ or "").strip().split("\n")[0]
    require(text and not text.startswith(f"{type(part).__name__}("), "no docstring")


#: Contracts of every part.
GENERAL: tuple[Contract, ...] = (spec_round_trip, copies, is_documented)
