"""Graphs and potentials for hypothesis: trees, cycles, parts without connection, lone variables, parallel factors."""

import numpy as np
from hypothesis import strategies as st

from backfield import Graph
from tests.models import random_potentials

#: Enumerated by tests: keep the number of labelings small.
MOST_LABELINGS = 3000


@st.composite
def label_counts(draw, n):
    """Label counts of n variables: all equal, or mixed (also 1)."""
    if draw(st.booleans()):
        return [draw(st.integers(2, 3))] * n
    return draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))


@st.composite
def trees(draw, n_max=7, arity_max=3):
    """Acyclic factor graphs, variables named in any order."""
    n = draw(st.integers(1, n_max))
    name = draw(st.permutations(range(n)))
    factors, done = [], 1
    while done < n:
        size = min(draw(st.integers(1, arity_max - 1)), n - done)
        if draw(st.integers(0, 5)):  # else the next variables start a part of their own
            factors.append((name[draw(st.integers(0, done - 1))], *name[done : done + size]))
        done += size
    factors = [tuple(draw(st.permutations(scope))) for scope in draw(st.permutations(factors))]
    return Graph(draw(label_counts(n)), factors)


@st.composite
def cycles(draw, n_max=6):
    """One cycle, edges in any orientation, and lone variables around it."""
    n = draw(st.integers(3, n_max))
    lone = draw(st.integers(0, 1))
    edges = [(i, (i + 1) % n) for i in range(n)]
    return Graph(draw(label_counts(n + lone)), [edge[:: draw(st.sampled_from([1, -1]))] for edge in edges])


@st.composite
def any_graphs(draw, n_max=6, arity_max=3, factors_max=7):
    """Any factors: parallel ones, several parts, lone variables, mixed arities."""
    n = draw(st.integers(1, n_max))
    scope = st.lists(st.integers(0, n - 1), min_size=2, max_size=min(arity_max, n), unique=True).map(tuple)
    factors = draw(st.lists(scope, max_size=factors_max)) if n > 1 else []
    if factors and draw(st.booleans()):
        factors.append(draw(st.sampled_from(factors)))
    return Graph(draw(label_counts(n)), factors)


def graphs():
    """Any of the above."""
    return st.one_of(trees(), cycles(), any_graphs()).filter(lambda graph: np.prod(graph.labels) <= MOST_LABELINGS)


@st.composite
def potentials(draw, of=None, scales=(0.1, 1.0, 5.0), forbidden=False):
    """Normal potentials on a drawn graph; with ``forbidden`` some entries -inf, such that label 0 stays possible."""
    graph = draw(graphs() if of is None else of)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    theta = random_potentials(graph, rng, draw(st.sampled_from(scales)))
    if not forbidden:
        return theta
    values = theta.vector()
    values[rng.random(len(values)) < 0.3] = -np.inf
    layout = graph.layout
    first = np.concatenate([layout.var_ptr[:-1], len(theta.unary_flat) + layout.table_ptr[:-1]])
    values[first] = 0.0  # the labeling 0, 0, ..., 0 is possible
    return theta.like(values)
