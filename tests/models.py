"""Random models and plain reference answers for tests."""

import itertools

import numpy as np

from backfield import Graph, Potentials


def random_potentials(graph, rng, scale=1.0):
    """Normal potentials on any graph."""
    return Potentials(
        graph,
        [scale * rng.normal(size=count) for count in graph.labels],
        [scale * rng.normal(size=[graph.labels[i] for i in scope]) for scope in graph.factors],
    )


def random_graph(rng, n_max=6, labels_max=3, arity_max=3, factors_max=7, pairwise=False):
    """A small graph: any mix of arities, label counts, parallel factors, isolated variables."""
    n = int(rng.integers(1, n_max + 1))
    labels = np.full(n, rng.integers(2, labels_max + 1)) if pairwise else rng.integers(1, labels_max + 1, size=n)
    factors = []
    for _ in range(int(rng.integers(0, factors_max + 1)) if n > 1 else 0):
        arity = 2 if pairwise else int(rng.integers(2, min(arity_max, n) + 1))
        factors.append(tuple(rng.choice(n, size=arity, replace=False)))
    return Graph(labels, factors)


def random_tree(rng, n_max=7, labels_max=3, arity_max=3):
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
    return Graph(rng.integers(1, labels_max + 1, size=n), [factors[c] for c in order])


def enumerate_model(theta):
    """Return log Z and all marginals by plain enumeration."""
    graph, layout = theta.graph, theta.graph.layout
    states = list(itertools.product(*[range(count) for count in graph.labels]))
    scores = np.array([theta.score(np.array(state)) for state in states])
    top = scores.max()
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
