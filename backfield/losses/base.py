"""What a loss on marginals is: mu, labels -> value and d_mu.

Conventions
-----------
``mu``        marginals, flat as in :class:`~backfield.graph.Potentials`; complex numbers are differentiated through
``labeling``  what is known: labels, -1 where hidden; or sets of allowed labels, which only logistic losses take
``weights``   ``None``, one number per variable (n,), or one per variable and label (flat); the weight of a clique is the
              mean of those of its variables; of a set of labels, the mean over its labels
values        sums over variables or cliques; hidden variables, and cliques with a hidden variable, contribute nothing
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.labeling import Labeling, factor_entries
from backfield.kernels.compile import kernel
from backfield.registry import Component


class Loss(Component):
    """A loss on marginals."""

    room: ClassVar[str] = "losses"
    #: Looks at the marginals of factors.
    cliques: ClassVar[bool] = False
    #: Can be differentiated twice.
    smooth: ClassVar[bool] = True
    #: One number per example (a mean over its outputs, an F-measure), not a sum over variables.
    per_example: ClassVar[bool] = False
    #: Takes sets of allowed labels.
    sets: ClassVar[bool] = False

    def value_and_dmu(self, mu: Potentials, labeling: Labeling, weights: np.ndarray | None) -> tuple[Any, Potentials]:
        """Return the value and its derivative; factor tables of ``d_mu`` are left empty by univariate losses."""
        raise NotImplementedError

    def check(self, labeling: Labeling) -> None:
        """Refuse labels that the loss cannot take."""
        if labeling.has_sets and not self.sets:
            raise InputError(f"{self.name} takes one label per variable or -1, not sets of labels; use a logistic loss.")

    def check_seen(self, seen: np.ndarray) -> None:
        """Refuse a data set whose labels, of which ``seen`` occur, teach the loss nothing."""


def unary_entries(graph: Graph, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the variables that have a label, and the flat unary entry that it selects."""
    if graph.n_labels is not None:
        known, entries = np.empty(len(labels), np.int64), np.empty(len(labels), np.int64)
        count = _known_entries(labels, graph.n_labels, known, entries)
        return known[:count], entries[:count]
    known = np.flatnonzero(labels >= 0)
    return known, graph.layout.var_ptr[known] + labels[known]


@kernel
def _known_entries(labels, n_labels, known, entries):
    """One call that needs no interpreter: threads that ask for it after every step wait for each other."""
    count = 0
    for i in range(len(labels)):
        known[count], entries[count] = i, i * n_labels + labels[i]
        count += labels[i] >= 0
    return count


def label_weights(graph: Graph, weights: np.ndarray | None, variables: np.ndarray, entries: np.ndarray) -> Any:
    """Return the weight of each labelled variable."""
    if weights is None:
        return 1.0
    return weights[variables] if len(weights) == graph.n_variables else weights[entries]


def variable_weights(graph: Graph, weights: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return one weight per variable: the mean over its allowed labels."""
    if len(weights) == graph.n_variables:
        return weights
    start = graph.layout.var_ptr[:-1]
    return np.add.reduceat(np.where(allowed, weights, 0), start) / np.add.reduceat(allowed.astype(np.int64), start)


def clique_weights(graph: Graph, weights: np.ndarray | None, allowed: np.ndarray, cliques: np.ndarray) -> Any:
    """Return the weight of each clique: the mean over its variables."""
    if weights is None:
        return 1.0
    if len(cliques) == 0:
        return np.empty(0)
    layout = graph.layout
    each = variable_weights(graph, weights, allowed)[layout.scope]
    return (np.add.reduceat(each, layout.scope_ptr[:-1]) / np.diff(layout.scope_ptr))[cliques]


def clique_entries(graph: Graph, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the cliques without a hidden variable, and the flat table entry that labels select in them."""
    entries, complete = factor_entries(graph, labels)
    cliques = np.flatnonzero(complete)
    return cliques, entries[cliques]


def unary_only(graph: Graph, d_unary: np.ndarray) -> Potentials:
    """Return adjoints of the variables' marginals alone."""
    return Potentials.from_flat(graph, d_unary, d_unary[:0])


def tables_only(mu: Potentials, d_factors: np.ndarray) -> Potentials:
    """Return adjoints of the factors' marginals alone."""
    return Potentials.from_flat(mu.graph, np.zeros_like(mu.unary_flat), d_factors)


def safe(p: np.ndarray, w: Any) -> np.ndarray:
    """Return probabilities so far from zero that log p and w / p stay finite where a marginal underflowed."""
    floor = (np.finfo(p.dtype).tiny * np.maximum(1, 4 * w)).astype(p.real.dtype)
    return np.where(p.real < floor, floor, p) if p.dtype.kind == "c" else np.maximum(p, floor)


def minus_log(p: np.ndarray, w: Any) -> Any:
    """Return - sum w log p."""
    logs = np.log(p)
    return -np.dot(logs, w) if isinstance(w, np.ndarray) else -w * logs.sum()


def sigmoid(z: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-z)), without overflow."""
    small = np.exp(np.where(z.real > 0, -z, z))
    return np.where(z.real > 0, 1, small) / (1 + small)
