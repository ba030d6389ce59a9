"""Central differences, and small models of every shape to take them on."""

import numpy as np

import backfield as bf
from backfield.inference.base import IterativeInference
from backfield.registry import lookup, names
from backfield.testing.differences import along as along
from backfield.testing.differences import gradient_error
from backfield.testing.differences import relative_error as relative_error
from tests.models import random_graph, random_potentials


def graphs():
    """Grids, a cycle, a tree, random graphs, mixed arities and label counts, lone variables and parallel factors."""
    rng = np.random.default_rng(7)
    found = {
        "grid": bf.Graph.grid(3, 4),
        "grid of 3 labels": bf.Graph.grid(2, 3, labels=3),
        "cycle": bf.Graph.from_edges([(0, 1), (2, 1), (2, 3), (3, 0)], labels=3),
        "tree": bf.Graph.from_edges([(0, 1), (1, 2), (1, 3), (4, 3)]),
        "mixed": bf.Graph([2, 3, 2, 4, 1], [(0, 1), (1, 2, 3), (3, 4), (0, 3), (0, 2), (2, 0)]),
        "lone": bf.Graph([2, 2, 3], [(0, 1)]),
    }
    while len(found) < 8:
        graph = random_graph(rng, arity_max=4)
        if graph.n_factors > 2:
            found[f"random {len(found)}"] = graph
    return found


GRAPHS = graphs()


def example(graph, seed=0, scale=0.8):
    """Return theta and labels, of which the first is hidden and the second is not."""
    rng = np.random.default_rng([seed, graph.n_variables, graph.n_factors])
    theta = random_potentials(graph, rng, scale)
    labels = rng.integers(0, graph.labels)
    labels[0] = -1
    return theta, labels


def iterative_methods():
    """Names of the registered iterative methods."""
    return [name for name in names("inference") if issubclass(lookup("inference", name), IterativeInference)]


def takes(loss, graph):
    """Whether a loss is defined on a graph: some want binary variables."""
    return not (loss == "f_measure" and (graph.labels != 2).any())


def check(theta, labels, tolerance, seed=0, step=2e-4, **setting):
    """Assert that the gradient of a setting agrees with differences of its value."""
    found = gradient_error(theta, labels, seed, step, **setting)
    assert found <= tolerance, (theta.graph, setting, found)
