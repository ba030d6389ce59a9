"""Posteriors of all variables at once, kept while the evidence stays the same.

People ask about one variable after the other. A pass through the junction tree answers for all of them, so its answers
are kept for the last evidence. Where the tree of the whole model is small, it is compiled once, and evidence is entered
as zeros: a pass then takes less time than to make the model smaller. Elsewhere the first question under new evidence is
answered by what it depends on, and the second one about the same evidence by a pass for all variables, through the tree of
the labels that the evidence leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from backfield.graph import Potentials
from backfield.inference.exact.base import ImpossibleError
from backfield.inference.exact.elimination import TooLargeError
from backfield.inference.exact.products import Products, Tables
from backfield.inference.exact.propagation import propagate
from backfield.models.reduced import MAX_PRODUCTS

#: Most entries of the whole model's tables for which it is worth while to pass through all of them.
SMALL = 2**18


class Posteriors:
    """Answers about the last evidence."""

    def __init__(self, theta: Potentials) -> None:
        self.theta = theta
        self._key: bytes | None = None
        self._rows: list[np.ndarray] | None = None

    def find(self, allowed: np.ndarray) -> Sequence[np.ndarray] | None:
        """Return the posteriors if they are known or worth computing for a question about one variable."""
        key = allowed.tobytes()
        if key == self._key and self._rows is None:  # asked for the second time
            self._rows = self._through_part(allowed)
        elif key != self._key:
            self._key, self._rows = key, self._through_whole(allowed)
        return self._rows

    def whole(self, allowed: np.ndarray) -> Sequence[np.ndarray] | None:
        """Return the posteriors; None where their tree is too large, or numbers underflow."""
        key = allowed.tobytes()
        if key != self._key:
            self._key, self._rows = key, self._through_whole(allowed)
        if self._rows is None:
            self._rows = self._through_part(allowed)
        return self._rows

    @cached_property
    def _compiled(self) -> tuple[Products, Tables] | None:
        try:
            products = Products(self.theta.graph, SMALL, variables_only=True, tries=1)
        except TooLargeError:
            return None
        return products, products.tables(self.theta.unary_flat, self.theta.factors_flat)

    def _through_whole(self, allowed: np.ndarray) -> list[np.ndarray] | None:
        if self._compiled is None:
            return None
        products, tables = self._compiled
        values = tables.values.copy()
        values[: len(allowed)] *= allowed
        return self._rows_of(products.run(Tables(values, tables.constant)))

    def _through_part(self, allowed: np.ndarray) -> list[np.ndarray] | None:
        try:
            left = propagate(self.theta, allowed)
            products = Products(self.theta.graph, MAX_PRODUCTS, allowed=left, variables_only=True)
        except (ImpossibleError, TooLargeError):  # the question itself will tell
            return None
        return self._rows_of(products.run(products.tables(self.theta.unary_flat, self.theta.factors_flat)))

    def _rows_of(self, found: tuple[float, np.ndarray] | None) -> list[np.ndarray] | None:
        return None if found is None else np.split(found[1], self.theta.graph.layout.var_ptr[1:-1])
