"""A joint distribution over a few named variables, for people without pandas."""

from __future__ import annotations

import importlib.util
from collections.abc import Hashable
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.models.naming import Variables

#: Rows that are shown; the middle of longer tables is left out.
MAX_ROWS = 40


@dataclass(frozen=True, eq=False)
class Table:
    """Probabilities of all combinations of states; ``table["yes", "on"]`` is one of them.

    Attributes
    ----------
    variables : Variables
    values : ndarray
        One axis for each variable, in order.
    """

    variables: Variables
    values: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return self.variables.names

    def __getitem__(self, states: Any) -> float:
        states = states if isinstance(states, tuple) else (states,)
        if len(states) != len(self.names):
            raise InputError(f"the table is over {', '.join(self.names)}: {len(self.names)} states are needed.")
        return float(self.values[tuple(self.variables.label(i, state) for i, state in enumerate(states))])

    def rows(self) -> list[tuple[tuple[Hashable, ...], float]]:
        """Return (states, probability), the last variable fastest."""
        return list(zip(product(*self.variables.states), self.values.ravel().tolist(), strict=True))

    def to_pandas(self) -> Any:
        """Return a DataFrame: one column of states for each variable, and ``probability``."""
        import pandas

        columns = zip(*product(*self.variables.states), strict=True)
        frame = dict(zip(self.names, map(list, columns), strict=True))
        return pandas.DataFrame({**frame, "probability": self.values.ravel()})

    def _shown(self) -> list[list[str]]:
        rows = [[*map(str, states), f"{p:.6g}"] for states, p in self.rows()]
        if len(rows) > MAX_ROWS:
            half = MAX_ROWS // 2
            rows = rows[:half] + [["..."] * len(rows[0])] + rows[-half:]
        return [[*self.names, "probability"], *rows]

    def __repr__(self) -> str:
        shown = self._shown()
        width = [max(len(row[k]) for row in shown) for k in range(len(shown[0]))]
        lines = ["  ".join(word.ljust(width[k]) for k, word in enumerate(row)).rstrip() for row in shown]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = self._shown()
        body = "".join("<tr>" + "".join(f"<td>{escape(word)}</td>" for word in row) + "</tr>" for row in rows)
        return f"<table><tr>{''.join(f'<th>{escape(word)}</th>' for word in head)}</tr>{body}</table>"


def as_frame(table: Table) -> Any:
    """Return a DataFrame where pandas is installed, else the table."""
    return table if importlib.util.find_spec("pandas") is None else table.to_pandas()
