"""A model with names: variables and states as people call them, over ``Graph`` and ``Potentials``.

All answers come from the reduced model (``reduced``): queries and log-probabilities by any inference method, MAP, marginal
MAP and samples by exact elimination (``inference.exact.weighted``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from backfield.api import find_map
from backfield.constraints import Table as Constraints
from backfield.constraints import check, checked, instance, whole
from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import Restriction
from backfield.inference.exact.base import ImpossibleError
from backfield.models import build, files
from backfield.models.drawing import draw, html
from backfield.models.marginalise import summed_out
from backfield.models.naming import Variables
from backfield.models.posteriors import Posteriors
from backfield.models.reduced import NONE, UNARY, ReducedModel, is_exact
from backfield.models.table import Table, as_frame

#: What may be said to ``sample``.
SAMPLE: Constraints = {"n": (whole(1, 10**8),), "seed": (whole(0),)}


class Model:
    """A joint distribution over named variables.

    Parameters
    ----------
    variables : mapping
        The states of each variable: a list of names, or their number.
    factors : iterable of (names, table)
        Potentials >= 0 over some variables, one axis for each name.
    conditionals : mapping
        P(variable | parents): ``{"wet": (["rain", "sprinkler"], table)}``, the parents' axes first, or a table alone
        where there are no parents. Rows must sum to one.

    Examples
    --------
    >>> model = Model(
    ...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
    ...     conditionals={"rain": [0.8, 0.2], "wet": (["rain"], [[0.9, 0.1], [0.2, 0.8]])},
    ... )
    >>> round(model.log_probability({"wet": "yes"}), 3)
    -1.427
    """

    def __init__(
        self,
        variables: Mapping[str, Sequence[Hashable] | int],
        factors: Iterable[tuple[Sequence[str], Any]] = (),
        conditionals: Mapping[str, Any] | None = None,
    ) -> None:
        named = Variables(variables)
        self._set(named, *build.assemble(named, factors, {} if conditionals is None else conditionals))

    def _set(self, variables: Variables, theta: Potentials, conditional: np.ndarray) -> None:
        self.variables = variables
        #: The log-potentials, for all functions of the library; variables are numbered in the order of ``names``.
        self.theta = theta
        self._conditional = conditional

    @classmethod
    def _make(cls, variables: Variables, theta: Potentials, conditional: np.ndarray) -> Model:
        model = cls.__new__(cls)
        model._set(variables, theta, conditional)
        return model

    @classmethod
    def from_potentials(cls, theta: Potentials, variables: Mapping[str, Sequence[Hashable] | int] | None = None) -> Model:
        """Return a model of given log-potentials; without names variables are x0, x1, ... with states 0, 1, ..."""
        checked("theta", theta, instance("Potentials", Potentials))
        named = files.numbered(theta) if variables is None else Variables(variables)
        if not np.array_equal(named.labels, theta.graph.labels):
            raise InputError(f"{len(named)} variables are named, and their states counted; theta has other label counts.")
        return cls._make(named, theta, np.full(len(named), NONE, dtype=np.int64))

    @classmethod
    def read(cls, path: str | Path) -> Model:
        """Read .bif, .xmlbif (or .xml), .uai or .fg, each also packed (.gz)."""
        return cls._make(*files.read(path))

    @classmethod
    def from_pgmpy(cls, network: Any) -> Model:
        """Return the model of a discrete Bayesian network, Markov network or factor graph of pgmpy."""
        from backfield.models.pgmpy import read_pgmpy

        return cls(*read_pgmpy(network))

    def to_pgmpy(self) -> Any:
        """Return a network of pgmpy: Bayesian where every factor is P(v | parents), else a Markov network."""
        from backfield.models.pgmpy import make_pgmpy

        return make_pgmpy(self)

    def write(self, path: str | Path) -> None:
        """Write .bif, .xmlbif (or .xml), .uai or .fg, each also packed (.gz); the last two hold no names."""
        files.write(path, self)

    # What it is

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return self.variables.names

    @property
    def states(self) -> dict[str, tuple[Hashable, ...]]:
        """The states of each variable."""
        return dict(zip(self.variables.names, self.variables.states, strict=True))

    @property
    def is_directed(self) -> bool:
        """Whether the model is a Bayesian network: one table P(v | parents) for each variable, and no other."""
        return bool((self._conditional >= UNARY).all()) and int((self._conditional >= 0).sum()) == self.theta.graph.n_factors

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the parents of a variable that has P(variable | parents)."""
        i = self.variables.number(name)
        if self._conditional[i] == NONE:
            raise InputError(f"variable {name!r} has no table P({name} | ...) in this model.")
        c = int(self._conditional[i])
        return () if c < 0 else tuple(self.names[int(j)] for j in self.theta.graph.factors[c] if j != i)

    def conditional(self, name: str) -> tuple[list[str], np.ndarray]:
        """Return the parents of a variable and P(variable | parents), the parents' axes first."""
        parents = list(self.parents(name))
        i = self.variables.number(name)
        c = int(self._conditional[i])
        if c < 0:
            return parents, np.exp(self.theta.unary[i])
        axis = [int(j) for j in self.theta.graph.factors[c]].index(i)
        return parents, np.moveaxis(np.exp(self.theta.factors[c]), axis, -1)

    @cached_property
    def log_partition(self) -> float:
        """Log of the sum over all labelings; 0 for a Bayesian network."""
        return self._reduced(None, []).log_partition("exact")

    def __repr__(self) -> str:
        kind = "Bayesian network" if self.is_directed else "Markov network"
        return f"Model({kind}, {len(self.names)} variables, {self.theta.graph.n_factors} factors)"

    def _repr_html_(self) -> str:
        return html(self)

    def plot(self, ax: Any = None) -> Any:
        """Draw the graph with matplotlib and return the axes; parents stand above their children."""
        return draw(self, ax)

    # Answers

    def query(self, names: str | Sequence[str], given: Mapping[str, Any] | None = None, inference: Any = "exact") -> Any:
        """Return the joint distribution of some variables.

        Parameters
        ----------
        names : name or list of names
        given : mapping
            Evidence: a state for each known variable, or a list of its possible states.
        inference : Inference or str
            ``"exact"``, ``"auto(seconds=20)"``, or any method; other ones than exact approximate.

        Returns
        -------
        DataFrame or Table
            One row for each combination of states, with its ``probability``; a DataFrame where pandas is installed.
        """
        return as_frame(self.table(names, given, inference))

    def table(self, names: str | Sequence[str], given: Mapping[str, Any] | None = None, inference: Any = "exact") -> Table:
        """Return the joint distribution of some variables as a :class:`Table`, whether or not pandas is installed."""
        wanted = self.variables.numbers(names)
        if not wanted:
            raise InputError("a query names at least one variable.")
        known = self._posteriors.find(self.variables.allowed(given)) if is_exact(inference) and len(wanted) == 1 else None
        if known is not None:
            return Table(self.variables.part(wanted), known[wanted[0]].copy())
        with _evidence_named(given):
            part = self._reduced(given, wanted, joint=True)
            mu = part.marginals(inference)
        values = np.asarray(mu.factors[-1] if part.joint else mu.unary[part.number[wanted[0]]])
        return Table(self.variables.part(wanted), values / values.sum())

    def marginals(self, given: Mapping[str, Any] | None = None, inference: Any = "exact") -> dict[str, np.ndarray]:
        """Return the distribution of every variable, in the order of its states: one pass for all of them."""
        rows = self._posteriors.whole(self.variables.allowed(given)) if is_exact(inference) else None
        if rows is None:
            with _evidence_named(given):
                rows = self._reduced(given, range(len(self.names))).posteriors(inference)
        return {name: np.array(row) for name, row in zip(self.names, rows, strict=True)}

    def map_query(self, given: Mapping[str, Any] | None = None, solver: Any = "exact") -> dict[str, Hashable]:
        """Return the most probable states of all variables together, those of the evidence included.

        Parameters
        ----------
        given : mapping
            Evidence.
        solver : str or MapSolver
            ``"exact"`` (elimination), or a solver of the library, such as ``"max_product"`` for models of large width.
        """
        if is_exact(solver):
            return self.marginal_map(self.names, given)
        with _evidence_named(given):
            part = self._reduced(given, range(len(self.names)))
        found = np.zeros((1, 0), dtype=np.int64)
        if part.reduced is not None:
            found = find_map(part.reduced, solver).labels[None]
        return self.variables.assignment(part.labels(found, len(self.names))[0], range(len(self.names)))

    def marginal_map(self, names: str | Sequence[str], given: Mapping[str, Any] | None = None) -> dict[str, Hashable]:
        """Return the most probable states of some variables together, all others summed out (exact)."""
        wanted = self.variables.numbers(names)
        if not wanted:
            raise InputError("marginal_map names at least one variable.")
        with _evidence_named(given):
            part = self._reduced(given, wanted)
            found = np.zeros((1, 0), dtype=np.int64)
            if part.reduced is not None:
                free = [i for i in wanted if part.is_free(i)]
                elimination = part.elimination(last=free)
                weights = np.ones(part.reduced.graph.n_variables)
                weights[np.searchsorted(part.restriction.kept_variables, part.number[free])] = 0
                forward = elimination.forward(part.reduced.vector(), weights)
                if forward.value == -np.inf:
                    raise ImpossibleError
                found = forward.labels()[None]
        return self.variables.assignment(part.labels(found, len(self.names))[0], wanted)

    def sample(self, n: int, seed: int = 0, given: Mapping[str, Any] | None = None) -> Any:
        """Draw ``n`` independent rows of all variables, exactly; a DataFrame, or a dict of lists without pandas."""
        check({"n": n, "seed": seed}, SAMPLE)
        with _evidence_named(given):
            part = self._reduced(given, range(len(self.names)))
            found = np.zeros((n, 0), dtype=np.int64)
            if part.reduced is not None:
                elimination = part.elimination()
                forward = elimination.forward(part.reduced.vector(), np.ones(part.reduced.graph.n_variables))
                if forward.value == -np.inf:
                    raise ImpossibleError
                found = forward.samples(int(n), np.random.default_rng(seed))
        labels = part.labels(found, len(self.names))
        return build.frame({name: [self.variables.states[i][x] for x in labels[:, i]] for i, name in enumerate(self.names)})

    def log_probability(self, assignment: Mapping[str, Any], inference: Any = "exact") -> float:
        """Return log P of states of some or all variables, -inf where they are impossible."""
        try:
            part = self._reduced(assignment, []).log_partition(inference)
        except ImpossibleError:
            return -np.inf
        return part - self.log_partition

    # Other models

    def condition(self, given: Mapping[str, Any]) -> Model:
        """Return the model of the variables that the evidence leaves open; its log Z is that of the evidence."""
        allowed = self.variables.allowed(given)
        restriction = Restriction(self.theta.graph, allowed)
        reduced, constant = restriction.reduce(self.theta)
        if reduced is None:
            raise InputError("the evidence decides every variable; no model is left.")
        if constant == -np.inf:
            raise _impossible()
        unary = reduced.unary_flat.copy()
        unary[: reduced.graph.labels[0]] += constant
        kept = restriction.kept_variables
        theta = Potentials.from_flat(reduced.graph, unary, reduced.factors_flat)
        variables = Variables({self.names[i]: self._open(i, allowed) for i in kept.tolist()})
        return Model._make(variables, theta, self._conditionals_after(restriction, allowed, constant))

    def _open(self, i: int, allowed: np.ndarray) -> list[Hashable]:
        at = self.theta.graph.layout.var_ptr[i]
        return [state for x, state in enumerate(self.variables.states[i]) if allowed[at + x]]

    def _conditionals_after(self, restriction: Restriction, allowed: np.ndarray, constant: float) -> np.ndarray:
        """Tables stay P(v | parents) where nothing below v is known; those below evidence only lose parents."""
        graph = self.theta.graph
        above = ~np.logical_and.reduceat(allowed, graph.layout.var_ptr[:-1])
        stack = np.flatnonzero(above).tolist()
        while stack:
            c = int(self._conditional[stack.pop()])
            for u in graph.factors[c] if c >= 0 else ():
                if not above[u]:
                    above[u] = True
                    stack.append(int(u))
        out = np.full(len(restriction.kept_variables), NONE, dtype=np.int64)
        place = {int(c): k for k, c in enumerate(restriction.kept_factors)}
        for k, i in enumerate(restriction.kept_variables.tolist()):
            if not above[i] and self._conditional[i] != NONE:
                out[k] = place.get(int(self._conditional[i]), UNARY)
        if constant != 0:  # it was added to the first variable's table
            out[0] = NONE
        return out

    def marginalize(self, names: str | Sequence[str]) -> Model:
        """Return the model of the other variables: ``names`` are summed out."""
        gone = self.variables.numbers(names)
        left = [i for i in range(len(self.names)) if i not in set(gone)]
        if not left:
            raise InputError("every variable would be summed out; no model is left.")
        scopes, tables, unary, conditional = summed_out(self.theta, self._conditional, gone)
        number = {i: k for k, i in enumerate(left)}
        graph = Graph(self.variables.labels[left].tolist(), [[number[i] for i in scope] for scope in scopes])
        flat = np.concatenate([table.ravel() for table in tables]) if tables else np.zeros(0)
        theta = Potentials.from_flat(graph, np.concatenate([unary[i] for i in left]), flat)
        return Model._make(self.variables.part(left), theta, conditional[left])

    @cached_property
    def _posteriors(self) -> Posteriors:
        return Posteriors(self.theta)

    def _reduced(self, given: Mapping[str, Any] | None, wanted: Sequence[int], joint: bool = False) -> ReducedModel:
        return ReducedModel(self.theta, self._conditional, self.variables.allowed(given), wanted, joint)


@contextmanager
def _evidence_named(given: Mapping[str, Any] | None) -> Iterator[None]:
    """Say that the evidence is impossible where there is some and nothing is possible."""
    try:
        yield
    except ImpossibleError as error:
        raise (_impossible() if given else error) from error


def _impossible() -> InputError:
    return InputError("the evidence is impossible: the given states together have probability zero.")
