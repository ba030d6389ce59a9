"""Rings."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph
from backfield.structures.base import Instance, Structure


@dataclass(frozen=True, repr=False)
class Ring(Structure, name="ring"):
    """Closed chains, (T, F) arrays with (T,) labels; each position is joined to the next ``reach``."""

    reach: int = 1

    unit: ClassVar[tuple[str, str]] = ("ring", "bead")

    def sample(self, x, names=None):
        x = np.asarray(x)
        if x.ndim != 2 or len(x) <= 2 * self.reach:
            raise InputError(f"a ring must have shape (T, F) with T > {2 * self.reach}, received {x.shape}.")
        distance = np.repeat(np.arange(self.reach), len(x))
        return Instance((len(x),), len(distance), x, factor_types=distance)

    def graph(self, sample, n_labels):
        n = sample.n_variables
        t, distance = np.tile(np.arange(n), self.reach), np.repeat(np.arange(1, self.reach + 1), n)
        return Graph.from_edges(np.stack([t, (t + distance) % n], axis=1), n_variables=n, labels=n_labels)
