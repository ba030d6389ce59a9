"""A loss over many samples of one binary pairwise model as a function of its tables: what learners minimise in [S11].

All samples have one graph and the same inputs. What the inputs leave free is one graph, too, whose unary tables are sums of
the rows that the inputs select; a chunk of samples is a union of copies of it, one inference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from backfield.graph import Graph, Potentials
from backfield.graph.graph import union
from backfield.graph.labeling import as_labeling
from backfield.inference.base import Result
from backfield.objectives import Target, get_objective, make_setting
from backfield.training.execution import sum_over_chunks
from backfield.training.protocols import Evaluation

CHUNK = 50
L2 = 1e-5
BP = "loopy_bp(n_iter={n_iter}, tol=0.0001, schedule='{schedule}')"
#: Length of the steps of differences of gradients.
STEP = 1e-5
LIKELIHOOD = "surrogate_likelihood"


@dataclass
class Data:
    """Samples: inputs (m, n) with -1 where free, and labels (m, n) with -1 where no output."""

    observed: np.ndarray
    labels: np.ndarray

    def __getitem__(self, some: Any) -> Data:
        return Data(self.observed[some], self.labels[some])


class Conditional:
    """The model of edges (E, 2) given known values of the variables that are not ``free``."""

    def __init__(self, edges: np.ndarray, free: np.ndarray) -> None:
        number = np.cumsum(free) - 1
        count = free[edges].sum(axis=1)
        self.free, self.edges = free, edges
        self.both, self.neither = np.flatnonzero(count == 2), np.flatnonzero(count == 0)
        half = np.flatnonzero(count == 1)
        side = free[edges[half, 0]].astype(np.int64)  # of the known end
        end = number[edges[half, 1 - side]]
        order = np.argsort(end, kind="stable")
        self.half, self.turned, self.end = half[order], side[order] == 1, end[order]
        self.known = edges[self.half, side[order]]
        self.graph = Graph.from_edges(number[edges[self.both]], int(free.sum()), labels=2)
        self._unions: dict[int, Graph] = {}

    def union(self, copies: int) -> Graph:
        """Return the graph of some samples."""
        if copies not in self._unions:
            self._unions[copies] = union([self.graph] * copies)
        return self._unions[copies]

    def theta(self, tables: np.ndarray, x: np.ndarray) -> Potentials:
        """Return log-potentials of the free variables for samples ``x`` (m, n), which are read where known."""
        half = tables[self.half]
        half[self.turned] = half[self.turned].transpose(0, 2, 1)  # the known end first
        rows = half[np.arange(len(half)), x[:, self.known]]
        unary = np.zeros((len(x), self.graph.n_variables, 2))
        starts = np.flatnonzero(np.diff(self.end, prepend=-1))
        if len(starts):
            unary[:, self.end[starts]] = np.add.reduceat(rows, starts, axis=1)
        factors = np.broadcast_to(tables[self.both], (len(x), len(self.both), 2, 2))
        return Potentials.from_flat(self.union(len(x)), unary.reshape(-1), factors.reshape(-1))

    def constant(self, tables: np.ndarray, x: np.ndarray) -> float:
        """Return the sum over samples of what known pairs add to log Z."""
        first, second = x[:, self.edges[self.neither].T].transpose(1, 0, 2)
        return float(tables[self.neither, first, second].sum())

    def fold(self, d_theta: Potentials, x: np.ndarray, d_constant: float = 0.0) -> np.ndarray:
        """Return the adjoint (E, 2, 2) of the tables."""
        out = np.zeros((len(self.edges), 2, 2))
        out[self.both] = d_theta.factors_flat.reshape(len(x), -1, 2, 2).sum(axis=0)
        d_unary = d_theta.unary_flat.reshape(len(x), -1, 2)
        ones = np.einsum("ke,kex->ex", x[:, self.known], d_unary[:, self.end])
        half = np.stack([d_unary.sum(axis=0)[self.end] - ones, ones], axis=1)
        half[self.turned] = half[self.turned].transpose(0, 2, 1)
        out[self.half] = half
        if d_constant:
            for a in range(2):
                for b in range(2):
                    pairs = self.edges[self.neither]
                    out[self.neither, a, b] = d_constant * ((x[:, pairs[:, 0]] == a) & (x[:, pairs[:, 1]] == b)).sum(axis=0)
        return out


class ModelProblem:
    """The mean loss of samples + ``L2`` |w|^2; w holds the tables of all edges."""

    def __init__(self, edges: np.ndarray, data: Data, n_iter: int, n_jobs: int = 1, schedule: str = "flooding") -> None:
        self.edges, self.data, self.n_jobs = edges, data, n_jobs
        self.n_examples, self.n_weights, self.l2 = len(data.labels), 4 * len(edges), L2
        self.inference = BP.format(n_iter=n_iter, schedule=schedule)
        self.given_inputs = Conditional(edges, data.observed[0] < 0)
        self.objective_info: Any = None

    @cached_property
    def given_all(self) -> Conditional:
        """The model of the hidden variables: inputs and outputs known."""
        return Conditional(self.edges, (self.data.observed[0] < 0) & (self.data.labels[0] < 0))

    def minimising(self, loss: str) -> ModelProblem:
        """Return the problem of a loss."""
        return self._like(objective_info=get_objective(loss))

    def fingerprint(self) -> dict[str, str]:
        """Return nothing: these fits are not resumed."""
        return {}

    def _like(self, **changes: Any) -> ModelProblem:
        other = object.__new__(ModelProblem)
        other.__dict__ = self.__dict__ | changes
        return other

    def value_and_gradient(self, w: np.ndarray, batch: np.ndarray | None = None, seed: int = 0) -> Evaluation:
        """Return the mean loss of all samples or of a batch, and its gradient."""
        chosen = np.arange(self.n_examples) if batch is None else np.asarray(batch)
        evaluate = self._likelihood if self.objective_info.name == LIKELIHOOD else self._loss
        setting = make_setting(self.objective_info, self.inference, None)
        tables = w.reshape(-1, 2, 2)

        def some(first: int, last: int) -> tuple[float, np.ndarray]:
            value, gradient = 0.0, np.zeros_like(tables)
            for at in range(first * CHUNK, last * CHUNK, CHUNK):
                part, d_tables = evaluate(tables, self.data[chosen[at : at + CHUNK]], setting)
                value += part
                gradient += d_tables
            return value, gradient

        total = sum_over_chunks(some, -(-len(chosen) // CHUNK), self.n_jobs, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        value = total[0] / len(chosen) + L2 * float(w @ w)
        return Evaluation(value, total[1].ravel() / len(chosen) + 2 * L2 * w, float("nan"), 0)

    def hessian_vector(
        self, w: np.ndarray, direction: np.ndarray, batch: np.ndarray | None = None, seed: int = 0
    ) -> tuple[Evaluation, np.ndarray]:
        """Return value and gradient, and the second derivative along ``direction``, by differences of gradients."""
        here = self.value_and_gradient(w, batch, seed)
        length = float(np.linalg.norm(direction))
        if length == 0:
            return here, np.zeros_like(w)
        step = STEP * max(1.0, float(np.linalg.norm(w))) / length
        ahead, behind = (self.value_and_gradient(w + s * step * direction, batch, seed).gradient for s in (1, -1))
        return here, (ahead - behind) / (2 * step)

    def _loss(self, tables: np.ndarray, data: Data, setting: Any) -> tuple[float, np.ndarray]:
        """Return the sum of a loss on marginals over a chunk."""
        model, m = self.given_inputs, len(data.labels)
        theta = model.theta(tables, data.observed)
        labeling = as_labeling(theta.graph, data.labels[:, model.free].ravel())
        value, d_theta = self.objective_info.value_and_dtheta(theta, Target(labeling), setting)
        return m * float(value), m * model.fold(d_theta, data.observed)  # losses are means over the copies

    def _likelihood(self, tables: np.ndarray, data: Data, setting: Any) -> tuple[float, np.ndarray]:
        """Return the sum of A(theta) - A(theta, z), with the two marginals as its gradient, as the objective has it."""
        value, gradient = 0.0, np.zeros_like(tables)
        x = np.maximum(data.observed, data.labels)
        for sign, model in ((1, self.given_inputs), (-1, self.given_all)):
            run: Result = setting.inference.infer(model.theta(tables, x))
            value += sign * (run.log_partition + model.constant(tables, x))
            gradient += sign * model.fold(run.marginals, x, 1.0)
        return value, gradient

    def marginals(self, w: np.ndarray) -> np.ndarray:
        """Return p(x_i = 1 | inputs) of the outputs, (m, k)."""
        setting = make_setting(get_objective("mse"), self.inference, None)
        assert setting.inference is not None
        outputs = (self.data.labels[0] >= 0)[self.given_inputs.free]
        out = []
        for at in range(0, self.n_examples, CHUNK):
            x = self.data.observed[at : at + CHUNK]
            mu = setting.inference.infer(self.given_inputs.theta(w.reshape(-1, 2, 2), x)).marginals
            out.append(mu.unary[:, 1].reshape(len(x), -1)[:, outputs])
        return np.concatenate(out)
