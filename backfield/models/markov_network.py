"""A pairwise Markov network of the columns of a table: learn it from rows with missing values, ask it about any columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from backfield.constraints import Table, check, checked, instance, real, several, whole
from backfield.data.formats.named_tables import nearest
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.auto.descent import minimise
from backfield.kernels.compiling import clock
from backfield.models.build import frame
from backfield.models.columns import as_columns, encode, states_of
from backfield.models.model import Model
from backfield.models.structure import chow_liu, lasso
from backfield.models.table_objectives import Likelihood, Pseudolikelihood
from backfield.registry import Component

OBJECTIVES = ("pseudolikelihood", "likelihood")


#: What the parameters may be.
PARAMETERS: Table = {
    "edges": (instance("'chow_liu', 'lasso' or a list of pairs of columns", str, list, tuple, set, np.ndarray),),
    "objective": (instance("a name", str),),
    "inference": (instance("a spec such as 'exact' or 'loopy_bp(n_iter=50)', or a part", str, Component),),
    "l2": (real(0),),
    "alpha": (real(0),),
    "max_seconds": (real(0),),
    "random_state": (whole(0),),
}


class MarkovNetwork(BaseEstimator):
    """Distribution of all columns of a table, with one table of weights for each column and each edge.

    Parameters
    ----------
    edges : "chow_liu", "lasso" or list of pairs of column names
        Which columns are neighbours.
    objective : "pseudolikelihood" or "likelihood"
        What is maximised. ``likelihood`` goes through ``inference``: exact, or the surrogate likelihood of another method.
    inference : str
        The method of the library for ``likelihood`` and for predictions.
    l2 : float
        Penalty l2 |w|^2 on the mean loss per row.
    alpha : float
        Penalty of the lasso that chooses edges.
    max_seconds : float
        Time for the fit of the weights.
    random_state : int
        Which rows the lasso looks at, if there are many.

    Attributes
    ----------
    model_ : Model
        The fitted model: ``model_.query(...)``, ``model_.sample(...)``, ``model_.plot()``.
    edges_ : list of pairs of names
    value_ : float
        The penalised loss at the end.
    """

    def __init__(
        self,
        edges: str | Sequence[tuple[str, str]] = "chow_liu",
        objective: str = "pseudolikelihood",
        inference: str = "exact",
        l2: float = 1e-4,
        alpha: float = 0.01,
        max_seconds: float = 60.0,
        random_state: int = 0,
    ) -> None:
        self.edges = edges
        self.objective = objective
        self.inference = inference
        self.l2 = l2
        self.alpha = alpha
        self.max_seconds = max_seconds
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> MarkovNetwork:
        """Learn edges and weights from a table of categories; None and NaN are missing.

        Parameters
        ----------
        X : DataFrame, dict of columns, or (N, d) array
        """
        check(self.get_params(deep=False), PARAMETERS)
        if self.objective not in OBJECTIVES:
            raise InputError(f"objective must be one of {', '.join(OBJECTIVES)}; received {self.objective!r}.")
        columns = as_columns(X)
        self.states_ = states_of(columns)
        codes = encode(columns, self.states_)
        names, labels = list(self.states_), [len(part) for part in self.states_.values()]
        pairs = self._edges(codes, labels, names)
        graph = Graph(labels, pairs)
        n_weights = int(graph.layout.var_ptr[-1] + graph.layout.table_ptr[-1])
        loss = (
            Pseudolikelihood(codes, graph)
            if self.objective == "pseudolikelihood"
            else Likelihood(codes, graph, self.inference)
        )

        def penalised(w: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = loss(w)
            return value + self.l2 * float(w @ w), gradient + 2 * self.l2 * w

        w = minimise(penalised, np.zeros(n_weights), clock() + self.max_seconds, tol=1e-9)
        cut = int(graph.layout.var_ptr[-1])
        self.model_ = Model.from_potentials(Potentials.from_flat(graph, w[:cut].copy(), w[cut:].copy()), self.states_)
        self.edges_ = [(names[i], names[j]) for i, j in pairs]
        self.value_ = penalised(w)[0]
        self.n_features_in_ = len(names)
        return self

    def _edges(self, codes: np.ndarray, labels: list[int], names: list[str]) -> list[tuple[int, int]]:
        if isinstance(self.edges, str):
            if self.edges == "chow_liu":
                return chow_liu(codes, labels)
            if self.edges == "lasso":
                return lasso(codes, labels, self.alpha, self.random_state)
            raise InputError(f"edges must be 'chow_liu', 'lasso' or a list of pairs of columns; received {self.edges!r}.")
        out = set()
        for pair in checked("edges", self.edges, several("'chow_liu', 'lasso' or a list of pairs of columns")):
            ends = [self._number(name, names) for name in checked("an edge", pair, several("a pair of columns"))]
            if len(ends) != 2:
                raise InputError(f"an edge is a pair of columns, received {pair!r}.")
            if ends[0] == ends[1]:
                raise InputError(f"the edge {pair!r} joins a column with itself.")
            out.add((min(ends), max(ends)))
        return sorted(out)

    def _number(self, name: Any, names: list[str]) -> int:
        if not isinstance(name, str) or name not in names:
            raise InputError(f"there is no column {name!r}; {nearest(name, names)}")
        return names.index(name)

    def predict_proba(self, X: Any, columns: str | Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return for each of ``columns`` its distribution (N, states) in every row, given all other known columns.

        Without ``columns``: for those that have missing values somewhere; known values then count as such.
        """
        codes, wanted, hidden = self._asked(X, columns)
        out = {name: np.zeros((len(codes), len(self.states_[name]))) for name in wanted}
        answers: dict[bytes, dict[str, np.ndarray]] = {}
        for row, code in enumerate(codes):
            code = np.where(hidden, -1, code)
            key = code.tobytes()
            if key not in answers:
                answers[key] = self.model_.marginals(self._evidence(code), self.inference)
            for name in wanted:
                out[name][row] = answers[key][name]
        return out

    def _asked(self, X: Any, columns: str | Sequence[str] | None) -> tuple[np.ndarray, list[str], np.ndarray]:
        check_is_fitted(self, "model_")
        codes, names = encode(as_columns(X), self.states_), list(self.states_)
        if columns is None:
            return codes, [name for k, name in enumerate(names) if (codes[:, k] < 0).any()], np.zeros(len(names), dtype=bool)
        words = "the name of a column, or a list of names"
        wanted = [columns] if isinstance(columns, str) else list(checked("columns", columns, several(words)))
        hidden = np.zeros(len(names), dtype=bool)
        hidden[[self._number(name, names) for name in wanted]] = True
        return codes, wanted, hidden

    def _evidence(self, code: np.ndarray) -> dict[str, Any]:
        return {name: known[x] for (name, known), x in zip(self.states_.items(), code.tolist(), strict=True) if x >= 0}

    def predict(self, X: Any, columns: str | Sequence[str]) -> Any:
        """Return the most probable state of each of ``columns`` in every row, given all other known columns."""
        best = {name: p.argmax(axis=1) for name, p in self.predict_proba(X, columns).items()}
        return frame({name: [self.states_[name][x] for x in rows] for name, rows in best.items()})

    def impute(self, X: Any) -> Any:
        """Return the table with each missing value replaced by its most probable state given the known ones."""
        codes, wanted, _ = self._asked(X, None)
        for name, p in self.predict_proba(X).items():
            k = list(self.states_).index(name)
            codes[:, k] = np.where(codes[:, k] < 0, p.argmax(axis=1), codes[:, k])
        return frame({name: [known[x] for x in codes[:, k]] for k, (name, known) in enumerate(self.states_.items())})

    def score(self, X: Any, y: None = None) -> float:
        """Return the mean log-likelihood of the known values of a row."""
        check_is_fitted(self, "model_")
        codes = encode(as_columns(X), self.states_)
        known: dict[bytes, float] = {}
        total = 0.0
        for code in codes:
            key = code.tobytes()
            if key not in known:
                known[key] = self.model_.log_probability(self._evidence(code))
            total += known[key]
        return total / len(codes)
