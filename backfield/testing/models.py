"""Small random models, and plain answers by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.graph import Graph, Potentials
from backfield.graph.conditioning import check_possible


def random_potentials(graph: Graph, rng: np.random.Generator, scale: float = 1.0) -> Potentials:
    """Normal potentials on any graph."""
    return Potentials(
        graph,
        [scale * rng.normal(size=count) for count in graph.labels],
        [scale * rng.normal(size=[graph.labels[i] for i in scope]) for scope in graph.factors],
    )


def random_graph(
    rng: np.random.Generator,
    n_max: int = 6,
    labels_max: int = 3,
    arity_max: int = 3,
    factors_max: int = 7,
    pairwise: bool = False,
) -> Graph:
    """A small graph: any mix of arities, label counts, parallel factors, isolated variables."""
    n = int(rng.integers(1, n_max + 1))
    labels = np.full(n, rng.integers(2, labels_max + 1)) if pairwise else rng.integers(1, labels_max + 1, size=n)
    factors = []
    for _ in range(int(rng.integers(0, factors_max + 1)) if n > 1 else 0):
        arity = 2 if pairwise else int(rng.integers(2, min(arity_max, n) + 1))
        factors.append(tuple(rng.choice(n, size=arity, replace=False)))
    return Graph(labels.tolist(), factors)


def random_tree(rng: np.random.Generator, n_max: int = 7, labels_max: int = 3, arity_max: int = 3) -> Graph:
    """A random acyclic factor graph of mixed arity, variables in random order."""
    n = int(rng.integers(1, n_max + 1))
    name = rng.permutation(n)
    factors, done = [], 1
    while done < n:
        size = min(int(rng.integers(1, arity_max)), n - done)
        scope = [name[rng.integers(done)], *name[done : done + size]]
        factors.append(tuple(rng.permutation(scope)))
        done += size
    order = rng.permutation(len(factors))
    return Graph(rng.integers(1, labels_max + 1, size=n).tolist(), [factors[c] for c in order])


def random_paths(rng: np.random.Generator, n_max: int = 6, labels_max: int = 4) -> Graph:
    """Disjoint paths: any numbering, orientation and label counts, parallel and missing edges."""
    name = rng.permutation(int(rng.integers(1, n_max + 1)))
    factors: list[Any] = []
    for pair in itertools.pairwise(name):
        factors += [tuple(rng.permutation(pair)) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
    return Graph(
        rng.integers(1, labels_max + 1, size=len(name)).tolist(), [factors[c] for c in rng.permutation(len(factors))]
    )


def _pairs(rng: np.random.Generator, n_max: int = 6) -> Graph:
    return random_graph(rng, n_max, pairwise=True)


def _binary_chain(rng: np.random.Generator, n_max: int = 6) -> Graph:
    return Graph.chain(int(rng.integers(2, n_max + 1)))


def _binary_grid(rng: np.random.Generator, n_max: int = 6) -> Graph:
    return Graph.grid(2, max(2, n_max // 2))


#: From the widest kind of graph to the narrowest: a part is tested on the first that it takes.
KINDS: tuple[Callable[..., Graph], ...] = (random_graph, random_tree, _pairs, random_paths, _binary_chain, _binary_grid)


def models(
    takes: Callable[[Potentials], Any], n: int, scale: float = 1.0, kinds: tuple[Any, ...] = KINDS, **options: Any
) -> Iterator[tuple[np.random.Generator, Potentials]]:
    """Yield ``n`` models, each of the first kind that ``takes`` does not refuse by InputError.

    AssertionError if there is no kind that a part takes.
    """
    refusal: Exception | None = None
    count = 0
    for seed in range(n):
        for kind in kinds:
            rng = np.random.default_rng(seed)
            theta = random_potentials(kind(rng, **options), rng, scale)
            try:
                takes(theta)
            except InputError as error:
                refusal = error
                continue
            count += 1
            yield rng, theta
            break
    if count == 0:
        raise AssertionError(f"Found: every model is refused: {refusal}")


def enumerate_model(theta: Potentials) -> tuple[float, Potentials]:
    """Return log Z and all marginals by plain enumeration."""
    graph, layout = theta.graph, theta.graph.layout
    states = list(itertools.product(*[range(count) for count in graph.labels]))
    scores = np.array([theta.score(np.array(state)) for state in states])
    top = scores.max()
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - top)
    log_z = top + np.log(weights.sum())
    mu = np.zeros(len(theta.vector()))
    n_unary = len(theta.unary_flat)
    for state, weight in zip(states, weights / weights.sum(), strict=True):
        x = np.array(state)
        mu[layout.var_ptr[:-1] + x] += weight
        if graph.n_factors:
            entry = np.add.reduceat(x[layout.scope] * layout.stride, layout.scope_ptr[:-1])
            mu[n_unary + layout.table_ptr[:-1] + entry] += weight
    return log_z, theta.like(mu)


def best_score(theta: Potentials) -> float:
    """Return the largest value theta·f(labels) of all labelings."""
    return max(theta.score(np.array(state)) for state in itertools.product(*[range(count) for count in theta.graph.labels]))


def forbid(theta: Potentials, rng: np.random.Generator, share: float) -> Potentials | None:
    """Forbid some entries; None where that leaves nothing."""
    values = theta.vector()
    values[rng.random(len(values)) < share] = -np.inf
    new = theta.like(values)
    try:
        check_possible(new)
    except InputError:
        return None
    return new if best_score(new) > -np.inf else None


def random_labels(graph: Graph, rng: np.random.Generator, hidden: bool = True) -> np.ndarray:
    """Return labels, the first of which is hidden."""
    labels = rng.integers(0, graph.labels)
    labels[0] = -1 if hidden else labels[0]
    return labels


def random_marginals(graph: Graph, rng: np.random.Generator) -> Potentials:
    """Any positive tables that sum to one; not consistent, as before convergence."""
    theta = random_potentials(graph, rng)
    unary = [np.exp(row) / np.exp(row).sum() for row in theta.unary]
    return Potentials(graph, unary, [np.exp(table) / np.exp(table).sum() for table in theta.factors])
