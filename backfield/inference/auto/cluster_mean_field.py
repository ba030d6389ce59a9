"""Mean field over clusters: a lower bound of log Z that is exact inside each cluster [SJ96].

Variables are cut into clusters, q(x) = prod_A q_A(x_A), and

    log Z >= sum_A H(q_A) + sum_c E_q[theta_c],      q_A(x_A) ~ exp( sum_{c: S_c meets A} E_{q of other clusters}[theta_c] )

is raised cluster by cluster, each by one exact inference. One cluster for each variable is naive mean field; fewer and
larger clusters come closer. It holds for any q. Where a state that q leaves possible is forbidden, the bound is -inf: the
start must then be a possible labeling.

[SJ96] Saul and Jordan, Exploiting tractable substructures in intractable networks, NIPS 1995.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.inference.exact.elimination import TooLargeError, eliminate
from backfield.inference.exact.junction import Exact
from backfield.inference.exact.junction_tree import free_scopes
from backfield.inference.exact.products import Products
from backfield.kernels.compiling import clock


class Piece(NamedTuple):
    """The part of a factor inside one cluster."""

    factor: int
    axes: tuple[int, ...]  # of the factor's table
    home: int  # factor of the cluster's graph, or -1 - variable where it is a unary table


class Cluster:
    """Some variables, the graph that factors leave on them, and the marginals of the last exact inference."""

    def __init__(self, theta: Potentials, variables: np.ndarray, parts: list[tuple[int, list[int], list[int]]]) -> None:
        self.variables = variables
        number = {int(v): k for k, v in enumerate(variables)}
        inner: list[list[int]] = []
        self.pieces: list[Piece] = []
        for c, axes, scope in parts:
            if len(axes) > 1:
                self.pieces.append(Piece(c, tuple(axes), len(inner)))
                inner.append([number[v] for v in scope])
            else:
                self.pieces.append(Piece(c, tuple(axes), -1 - number[scope[0]]))
        self.graph = Graph(theta.graph.labels[variables].tolist(), inner)
        self.unary = [np.asarray(theta.unary[v], dtype=np.float64) for v in variables]
        self.entropy = 0.0

    def solve(self, unary: list[np.ndarray], tables: list[np.ndarray], products: Products, memory: int) -> None:
        """Set marginals and entropy of the distribution with these potentials."""
        flat = np.concatenate([table.ravel() for table in tables]) if tables else np.zeros(0)
        theta = Potentials.from_flat(self.graph, np.concatenate(unary), flat)
        found = products.run(products.tables(theta.unary_flat, theta.factors_flat))
        if found is None:
            run = Exact(memory=memory).infer(theta)
            found = run.log_partition, run.marginals.vector()
        self.marginals = theta.like(found[1].copy())
        self.entropy = found[0] - theta.dot(self.marginals)


class ClusterMeanField:
    """Mean field over given clusters.

    Parameters
    ----------
    theta : Potentials
    clusters : list of arrays of variables
    beliefs : flat unary marginals to start from
    limit : int
        Most entries of all tables.
    """

    def __init__(self, theta: Potentials, clusters: list[np.ndarray], beliefs: np.ndarray, limit: int) -> None:
        self.theta, self.limit = theta, limit
        self.scopes = [scope.tolist() for scope in map(np.asarray, theta.graph.factors)]
        self.tables = list(theta.factors)
        self.clusters = split_up(theta, clusters)
        self.products = [Products(cluster.graph, limit) for cluster in self.clusters]
        self.cluster_of = _numbers(theta.graph.n_variables, clusters).tolist()
        rows = np.split(beliefs, theta.graph.layout.var_ptr[1:-1])
        self.inside: dict[tuple[int, int], np.ndarray] = {}  # (factor, cluster) -> marginal over its axes there
        self._start(rows)
        self.value = -np.inf

    def _start(self, rows: list[np.ndarray]) -> None:
        for k, cluster in enumerate(self.clusters):
            for piece in cluster.pieces:
                if len(piece.axes) < len(self.scopes[piece.factor]):
                    out = np.ones(())
                    for axis in piece.axes:
                        out = np.multiply.outer(out, rows[self.scopes[piece.factor][axis]])
                    self.inside[piece.factor, k] = out

    def _expected(self, piece: Piece, k: int) -> np.ndarray:
        """Return E over the other clusters of a factor's table, as a table over the axes inside cluster k."""
        table, scope = self.tables[piece.factor], self.scopes[piece.factor]
        if len(piece.axes) == len(scope):
            return table
        out, axes = table, list(range(len(scope)))
        for other in sorted({self.cluster_of[v] for v in scope} - {k}):
            theirs = [axis for axis in axes if self.cluster_of[scope[axis]] == other]
            q = self.inside[piece.factor, other]
            places = [axes.index(axis) for axis in theirs]
            out = _mean(out, q, places)
            axes = [axis for axis in axes if axis not in theirs]
        return out

    def sweep(self) -> float:
        """Update every cluster once and return the bound."""
        for k, cluster in enumerate(self.clusters):
            unary = [row.copy() for row in cluster.unary]
            tables: list[np.ndarray] = [np.zeros(0)] * cluster.graph.n_factors
            for piece in cluster.pieces:
                part = self._expected(piece, k)
                if piece.home < 0:
                    unary[-1 - piece.home] = unary[-1 - piece.home] + part
                else:
                    tables[piece.home] = part
            cluster.solve(unary, tables, self.products[k], 8 * self.limit)
            self._keep(k, cluster)
        return self._bound()

    def _keep(self, k: int, cluster: Cluster) -> None:
        rows, factors = cluster.marginals.unary, cluster.marginals.factors
        for piece in cluster.pieces:
            if len(piece.axes) < len(self.scopes[piece.factor]):
                q = rows[-1 - piece.home] if piece.home < 0 else factors[piece.home]
                self.inside[piece.factor, k] = np.asarray(q)

    def _bound(self) -> float:
        total = 0.0
        crossing: set[int] = set()
        for k, cluster in enumerate(self.clusters):
            total += cluster.entropy
            mu = cluster.marginals
            total += sum(_dot(row, q) for row, q in zip(cluster.unary, mu.unary, strict=True))
            for piece in cluster.pieces:
                if len(piece.axes) == len(self.scopes[piece.factor]):
                    total += _dot(self.tables[piece.factor], np.asarray(mu.factors[piece.home]))
                elif piece.factor not in crossing:
                    crossing.add(piece.factor)
                    total += _dot(self._expected(piece, k), self.inside[piece.factor, k])
        return total

    def raise_until(self, deadline: float, tol: float = 1e-9) -> float:
        """Sweep until the bound stops rising or the time is up; return the best value."""
        while True:
            try:
                value = self.sweep()
            except InputError:  # q forbids everything that is left to a cluster
                return self.value
            rise = value - self.value
            self.value = max(self.value, value)
            if clock() > deadline or not rise > tol * max(1.0, abs(value)):
                return self.value

    def beliefs(self) -> np.ndarray:
        """Return the flat unary marginals of q."""
        rows: list[np.ndarray] = [np.zeros(0)] * self.theta.graph.n_variables
        for cluster in self.clusters:
            for v, row in zip(cluster.variables.tolist(), cluster.marginals.unary, strict=True):
                rows[v] = np.asarray(row)
        return np.concatenate(rows)


def _numbers(n: int, clusters: list[np.ndarray]) -> np.ndarray:
    out = np.empty(n, dtype=np.int64)
    for k, variables in enumerate(clusters):
        out[variables] = k
    return out


def split_up(theta: Potentials, clusters: list[np.ndarray]) -> list[Cluster]:
    """Return the clusters, each with the parts of factors that lie in it."""
    number = _numbers(theta.graph.n_variables, clusters).tolist()
    parts: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in clusters]
    for c, scope in enumerate(map(np.asarray, theta.graph.factors)):
        for axis, v in enumerate(scope.tolist()):
            axes, inside = parts[number[v]].setdefault(c, ([], []))
            axes.append(axis)
            inside.append(v)
    return [
        Cluster(theta, variables, [(c, *pair) for c, pair in mine.items()])
        for variables, mine in zip(clusters, parts, strict=True)
    ]


def _mean(table: np.ndarray, q: np.ndarray, places: list[int]) -> np.ndarray:
    """Return sum over ``places`` of q times table, with 0 * -inf = 0."""
    moved = np.moveaxis(table, places, range(len(places)))
    flat, weight = moved.reshape(q.size, -1), q.reshape(-1)
    if np.isfinite(flat).all():
        out = weight @ flat
    else:
        used = weight > 0
        with np.errstate(invalid="ignore"):
            out = (weight[used, None] * flat[used]).sum(axis=0)
    return out.reshape(moved.shape[q.ndim :])


def _dot(table: np.ndarray, q: np.ndarray) -> float:
    used = q > 0
    return float((table[used] * q[used]).sum())


def cut(order: np.ndarray, count: int) -> list[np.ndarray]:
    """Cut an order of the variables into ``count`` clusters of neighbours in it."""
    return [np.sort(part) for part in np.array_split(order, count) if len(part)]


def cost(theta: Potentials, clusters: list[np.ndarray]) -> int:
    """Return the entries of all clusters' tables; more than can ever be held where one is hopeless."""
    total = 0
    for cluster in split_up(theta, clusters):
        try:
            total += eliminate(*free_scopes(cluster.graph), seconds=0.0).entries
        except TooLargeError as error:
            return error.entries
    return total
