"""A pairwise Markov network of the columns of a table: learn it from rows with missing values, ask it about any columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from backfield.constraints import Table, check, checked, instance, real, several, whole
from backfield.data.formats.named_tables import nearest
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.kernels.compiling import clock
from backfield.models.build import frame
from backfield.models.columns import Columns
from backfield.models.learning import Weights, expectation_maximisation
from backfield.models.model import Model
from backfield.models.naming import Variables
from backfield.models.structure import chow_liu, lasso
from backfield.models.table_objectives import Pseudolikelihood, Rows
from backfield.models.tying import Tying
from backfield.registry import Component
from backfield.scikit_learn import BaseEstimator, check_is_fitted
from backfield.training.weights import MAX_RIDGE

#: What the parameters may be.
PARAMETERS: Table = {
    "edges": (instance("'chow_liu', 'lasso' or a list of pairs of columns", str, list, tuple, set, np.ndarray),),
    "objective": (instance("a name", str),),
    "inference": (instance("a spec such as 'exact' or 'loopy_bp(n_iter=50)', or a part", str, Component),),
    "l2": (real(0, MAX_RIDGE),),
    "alpha": (real(0),),
    "asked": (real(0, 1),),
    "tied": (instance("a list of lists of columns or edges", list, tuple),),
    "hidden": (instance("a mapping from names to states", Mapping, type(None)),),
    "max_seconds": (real(0),),
    "random_state": (whole(0),),
}


class MarkovNetwork(BaseEstimator):
    """Distribution of all columns of a table, with one table of weights for each column and each edge.

    Parameters
    ----------
    edges : "chow_liu", "lasso" or list of pairs of column names
        Which columns are neighbours.
    objective : "pseudolikelihood", "likelihood", or an objective of the library
        What is learned by. ``likelihood`` goes through ``inference``, exact or the surrogate likelihood of another method;
        with missing values it is that of the known ones (EM). Others, such as ``"univariate_logistic"``, are means over
        rows.
    inference : str
        The method of the library for the objective and for predictions.
    l2 : float
        Penalty l2 |w|^2 on the mean loss per row.
    alpha : float
        Penalty of the lasso that chooses edges.
    asked : float
        Under a loss on marginals: the share of known values that are asked for, given the others.
    tied : list of lists of columns, or of pairs of columns
        Tables that share their weights; the axes of a pair's table are in the order of its names.
    hidden : mapping
        Columns that nobody has seen, with their states or their number; ``edges`` are then given, and learning is by
        ``likelihood``.
    max_seconds : float
        Time for the fit of the weights.
    random_state : int
        Which rows the lasso looks at, if there are many; which values are asked for; where hidden columns start.

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
        asked: float = 0.5,
        tied: Sequence[Any] = (),
        hidden: Mapping[str, Any] | None = None,
        max_seconds: float = 60.0,
        random_state: int = 0,
    ) -> None:
        self.edges = edges
        self.objective = objective
        self.inference = inference
        self.l2 = l2
        self.alpha = alpha
        self.asked = asked
        self.tied = tied
        self.hidden = hidden
        self.max_seconds = max_seconds
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> MarkovNetwork:
        """Learn edges and weights from a table of categories; None and NaN are missing.

        Parameters
        ----------
        X : DataFrame, dict of columns, or (N, d) array
        """
        check(self.get_params(deep=False), PARAMETERS)
        columns = Columns(X)
        self.states_ = {**columns.states(), **self._hidden(columns)}
        codes = columns.encode(self.states_)
        names, labels = list(self.states_), [len(part) for part in self.states_.values()]
        pairs = self._edges(codes, labels, names)
        graph = Graph(labels, pairs)
        weights = Weights(Tying(graph, self.tied, lambda name: self._number(name, names)), self.l2)
        theta, self.value_ = self._learn(codes, graph, weights, clock() + self.max_seconds)
        cut = int(graph.layout.var_ptr[-1])
        self.model_ = Model.from_potentials(Potentials.from_flat(graph, theta[:cut], theta[cut:]), self.states_)
        self.edges_ = [(names[i], names[j]) for i, j in pairs]
        self.n_features_in_ = len(columns.values)
        return self

    def _hidden(self, columns: Columns) -> dict[str, list[Any]]:
        """Return the states of hidden columns, which need edges that are given and the likelihood."""
        if not self.hidden:
            return {}
        twice = next((name for name in self.hidden if name in columns.values), None)
        if twice is not None:
            raise InputError(f"column {twice!r} is in the table, so it is not hidden.")
        if isinstance(self.edges, str) or self.objective != "likelihood":
            raise InputError("hidden columns need edges as a list of pairs, and objective='likelihood'.")
        named = Variables(self.hidden)
        return {name: list(states) for name, states in zip(named.names, named.states, strict=True)}

    def _learn(self, codes: np.ndarray, graph: Graph, weights: Weights, deadline: float) -> tuple[np.ndarray, float]:
        if self.objective == "likelihood":
            start = weights.start(graph, codes, self.random_state)
            return expectation_maximisation(codes, graph, self.inference, weights, start, deadline)
        if self.objective == "pseudolikelihood":
            return weights.fit(Pseudolikelihood(codes, graph), deadline)
        loss = Rows(codes, graph, self.objective, self.inference, self.asked, self.random_state)
        return weights.fit(loss, deadline)

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
        if str(name) not in names:  # columns of a DataFrame may have numbers for names
            raise InputError(f"there is no column {name!r}; {nearest(name, names)}")
        return names.index(str(name))

    def predict_proba(self, X: Any, columns: str | Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Return for each of ``columns`` its distribution (N, states) in every row, given all other known columns.

        Without ``columns``: for those that have missing values somewhere; known values then count as such.
        """
        codes, wanted, hidden = self._asked(Columns(X), columns)
        return self._answers(np.where(hidden, -1, codes), wanted)

    def _answers(self, codes: np.ndarray, wanted: list[str]) -> dict[str, np.ndarray]:
        """Return the distributions of some columns, in closed form in the rows in which all neighbours are known."""
        names = list(self.states_)
        out = {name: np.zeros((len(codes), len(self.states_[name]))) for name in wanted}
        local = Pseudolikelihood(codes, self.model_.theta.graph)
        w = self.model_.theta.vector()
        open_rows = np.zeros(len(codes), dtype=bool)
        for name in wanted:
            i = names.index(name)
            known, p = local.conditional(i, w)
            out[name][known] = p
            seen = codes[:, i] >= 0
            out[name][seen] = np.eye(len(self.states_[name]))[codes[seen, i]]
            open_rows |= ~(known | seen)
        for row, inverse in _distinct(codes, np.flatnonzero(open_rows)):
            answers = self.model_.marginals(self._evidence(row), self.inference)
            for name in wanted:
                out[name][inverse] = answers[name]
        return out

    def _asked(self, columns: Columns, asked: str | Sequence[str] | None) -> tuple[np.ndarray, list[str], np.ndarray]:
        check_is_fitted(self, "model_")
        codes, names = columns.encode(self.states_), list(self.states_)
        hidden = np.zeros(len(names), dtype=bool)
        if asked is None:
            return codes, [name for k, name in enumerate(names) if (codes[:, k] < 0).any()], hidden
        words = "the name of a column, or a list of names"
        wanted = [asked] if isinstance(asked, str | int) else list(checked("columns", asked, several(words)))
        numbers = [self._number(name, names) for name in wanted]
        hidden[numbers] = True
        return codes, [names[k] for k in numbers], hidden

    def _evidence(self, code: np.ndarray) -> dict[str, Any]:
        return {name: known[x] for (name, known), x in zip(self.states_.items(), code.tolist(), strict=True) if x >= 0}

    def predict(self, X: Any, columns: str | Sequence[str]) -> Any:
        """Return the most probable state of each of ``columns`` in every row, given all other known columns."""
        table = Columns(X)
        codes, wanted, hidden = self._asked(table, columns)
        best = {name: p.argmax(axis=1) for name, p in self._answers(np.where(hidden, -1, codes), wanted).items()}
        return frame({name: [self.states_[name][x] for x in rows] for name, rows in best.items()}, table.index)

    def impute(self, X: Any) -> Any:
        """Return the table with each missing value replaced by its most probable state given the known ones."""
        table = Columns(X)
        codes, wanted, _ = self._asked(table, None)
        for name, p in self._answers(codes, wanted).items():
            k = list(self.states_).index(name)
            codes[:, k] = np.where(codes[:, k] < 0, p.argmax(axis=1), codes[:, k])
        filled = {name: [known[x] for x in codes[:, k]] for k, (name, known) in enumerate(self.states_.items())}
        order = [*table.values, *(name for name in filled if name not in table.values)]
        return frame({name: filled[name] for name in order}, table.index)

    def score(self, X: Any, y: None = None) -> float:
        """Return the mean log-likelihood of the known values of a row."""
        check_is_fitted(self, "model_")
        codes = Columns(X).encode(self.states_)
        total = 0.0
        for row, inverse in _distinct(codes, np.arange(len(codes))):
            total += len(inverse) * self.model_.log_probability(self._evidence(row))
        return total / len(codes)


def _distinct(codes: np.ndarray, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each different row among ``rows``, and where it stands."""
    places: dict[bytes, list[int]] = {}
    for row in rows.tolist():
        places.setdefault(codes[row].tobytes(), []).append(row)
    for same in places.values():
        yield codes[same[0]], np.array(same)
