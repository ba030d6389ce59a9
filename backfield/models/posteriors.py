"""Posteriors of all variables at once, kept while the evidence stays the same.

People ask about one variable after the other. A pass through the junction tree answers for all of them, so its answers
are kept for the last evidence. Where the tree of the whole model is small, it is compiled once, and evidence is entered
as zeros: a pass then takes less time than to make the model smaller. Elsewhere the first question under new evidence is
answered by what it depends on, and the second one about the same evidence by a pass for all variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from backfield.errors import InputError
from backfield.graph import Potentials
from backfield.inference.exact.elimination import TooLargeError
from backfield.inference.exact.products import Products, Tables
from backfield.models.problem import Problem

#: Most entries of the whole model's tables for which it is worth while to pass through all of them.
SMALL = 2**18


class Posteriors:
    """Answers about the last evidence."""

    def __init__(self, theta: Potentials, conditional: np.ndarray) -> None:
        self.theta, self.conditional = theta, conditional
        self._key: bytes | None = None
        self._rows: list[np.ndarray] | None = None

    def find(self, allowed: np.ndarray) -> Sequence[np.ndarray] | None:
        """Return the posteriors if they are known or worth computing for a question about one variable."""
        key = allowed.tobytes()
        if key == self._key and self._rows is None:  # asked for the second time
            self._rows = self._reduced(allowed)
        elif key != self._key:
            self._key, self._rows = key, self._through_whole(allowed)
        return self._rows

    def whole(self, allowed: np.ndarray) -> Sequence[np.ndarray] | None:
        """Return the posteriors if they are known, or if the tree of the whole model is small."""
        key = allowed.tobytes()
        if key != self._key:
            self._key, self._rows = key, self._through_whole(allowed)
        return self._rows

    @cached_property
    def _compiled(self) -> tuple[Products, Tables] | None:
        try:
            products = Products(self.theta.graph, SMALL)
        except TooLargeError:
            return None
        return products, products.tables(self.theta.vector())

    def _through_whole(self, allowed: np.ndarray) -> list[np.ndarray] | None:
        if self._compiled is None:
            return None
        products, tables = self._compiled
        values = tables.values.copy()
        values[: len(allowed)] *= allowed
        found = products.run(Tables(values, tables.constant))
        if found is None:
            return None
        unary = found[1][: len(allowed)].copy()
        return np.split(unary, self.theta.graph.layout.var_ptr[1:-1])

    def _reduced(self, allowed: np.ndarray) -> list[np.ndarray] | None:
        try:
            return Problem(self.theta, self.conditional, allowed, range(self.theta.graph.n_variables)).posteriors("exact")
        except InputError:  # too wide as a whole, or impossible: the question itself will tell
            return None
