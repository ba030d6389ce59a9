"""Names of variables and of their states, and the sentences about names that nobody knows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from backfield.constraints import checked, several, whole
from backfield.data.formats.named_tables import nearest
from backfield.errors import InputError

#: States that a number may stand for; lists may be longer.
MOST = 10**6


class Variables:
    """An ordered set of named variables, each with named states.

    Parameters
    ----------
    states : mapping
        The states of each variable: a sequence of different names, or their number (then they are 0, 1, ...).
    """

    def __init__(self, states: Mapping[str, Sequence[Hashable] | int]) -> None:
        if not isinstance(states, Mapping) or not states:
            raise InputError("variables must be a mapping from at least one name to its states.")
        self.names: tuple[str, ...] = tuple(states)
        self.states: tuple[tuple[Hashable, ...], ...] = tuple(_states(name, given) for name, given in states.items())
        self.labels = np.array([len(part) for part in self.states], dtype=np.int64)
        self._number = {name: i for i, name in enumerate(self.names)}
        self._label = [{state: x for x, state in enumerate(part)} for part in self.states]

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: Any) -> int:
        """Return the number of a variable."""
        i = self._number.get(name) if isinstance(name, str) else None
        if i is None:
            raise InputError(f"there is no variable {name!r}; {nearest(name, self.names)}")
        return i

    def numbers(self, names: Any, what: str = "names") -> list[int]:
        """Return the numbers of different variables; one name stands for a list of it."""
        if isinstance(names, str):
            names = [names]
        checked(what, names, several("a list of names of variables"))
        numbers = [self.number(name) for name in names]
        if len(set(numbers)) < len(numbers):
            twice = next(i for i in numbers if numbers.count(i) > 1)
            raise InputError(f"{what} lists the variable {self.names[twice]!r} twice.")
        return numbers

    def label(self, i: int, state: Any) -> int:
        """Return the number of a state of variable ``i``; where states are strings, ``str(state)`` counts."""
        known = self._label[i]
        x = known.get(state) if isinstance(state, Hashable) else None
        if x is None:
            x = known.get(str(state))
        if x is None:
            raise InputError(f"variable {self.names[i]!r} has no state {state!r}; {nearest(state, self.states[i])}")
        return x

    def allowed(self, given: Mapping[str, Any] | None) -> np.ndarray:
        """Return which labels evidence allows (flat); a value is a state, or a list or set of possible states."""
        mask = np.ones(int(self.labels.sum()), dtype=bool)
        start = np.cumsum(self.labels) - self.labels
        for name, value in _evidence(given).items():
            i = self.number(name)
            several = isinstance(value, list | set | frozenset | np.ndarray)
            labels = [self.label(i, state) for state in (value if several else [value])]
            if not labels:
                raise InputError(f"the evidence leaves variable {name!r} no state.")
            mask[start[i] : start[i] + self.labels[i]] = False
            mask[start[i] + np.array(labels)] = True
        return mask

    def assignment(self, labels: np.ndarray, numbers: Iterable[int]) -> dict[str, Hashable]:
        """Return names and states of some variables of a labeling of all."""
        return {self.names[i]: self.states[i][int(labels[i])] for i in numbers}

    def part(self, numbers: Sequence[int]) -> Variables:
        """Return some of the variables."""
        return Variables({self.names[i]: self.states[i] for i in numbers})


def _states(name: Any, given: Any) -> tuple[Hashable, ...]:
    if not isinstance(name, str):
        raise InputError(f"names of variables are strings, received {name!r}.")
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        given = range(int(checked(f"the number of states of {name!r}", given, whole(1, MOST))))
    checked(f"the states of {name!r}", given, several("a list of states, or their number"))
    states = tuple(given)
    if not states:
        raise InputError(f"variable {name!r} has no states; at least 1 is needed.")
    try:
        different = len(set(states))
    except TypeError as error:
        raise InputError(f"the states of {name!r} must be values such as texts or integers: {error}.") from error
    if different < len(states):
        twice = next(state for state in states if states.count(state) > 1)
        raise InputError(f"variable {name!r} lists the state {twice!r} twice.")
    return states


def _evidence(given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"given must map names of variables to states, received {type(given).__name__}.")
    return given
