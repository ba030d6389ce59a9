"""Central differences, and small models of every shape to take them on."""

import numpy as np

import backfield as bf
from backfield.inference.base import IterativeInference
from backfield.registry import lookup, names
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


def along(function, step):
    """Return the derivative of ``function`` at 0 by central differences of fourth order."""
    return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)


def error(theta, value, d_theta, rng, step=2e-4):
    """Return the relative error of a gradient along a random direction.

    Half of the direction is the gradient's own, so that the derivative is about as large as the gradient, and its
    relative error means something. Differences are blind to derivatives below 1e-5 of the value: rounding hides them.
    """
    direction = rng.normal(size=len(d_theta))
    direction /= np.linalg.norm(direction)
    size = np.linalg.norm(d_theta)
    if size > 0:
        direction += d_theta / size
    direction[~np.isfinite(theta.vector())] = 0
    measured = along(lambda t: value(theta.like(theta.vector() + t * direction)), step)
    return abs(measured - d_theta @ direction) / max(abs(measured), 1e-5 * abs(value(theta)), 1e-12)


def check(theta, labels, tolerance, seed=0, step=2e-4, **setting):
    """Assert that the gradient of a setting agrees with differences of its value."""
    _, d_theta = bf.value_and_gradient(theta, labels, **setting)

    def value(moved):
        return bf.value_and_gradient(moved, labels, **setting)[0]

    found = error(theta, value, d_theta.vector(), np.random.default_rng(seed), step)
    assert found <= tolerance, (theta.graph, setting, found)
