"""Whoever adds which neighbours, the sum has the same bytes."""

import numpy as np
import pytest

from backfield.training.execution.threads import Node, join, total, tree_sum


def add(a, b):
    return a + b


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 13, 32, 63, 64])
def test_any_distribution_of_chunks_gives_the_same_bytes(count):
    rng = np.random.default_rng(count)
    leaves = rng.normal(size=count) * 10.0 ** rng.integers(-8, 8, count)
    expected = tree_sum(leaves, add)
    for workers in range(1, 6):
        home = rng.integers(0, workers, count) if workers % 2 else np.arange(count) * workers // count
        parts = [join((Node(c, 0, leaves[c]) for c in np.flatnonzero(home == worker)), add) for worker in range(workers)]
        nodes = sorted((node for part in parts for node in part), key=lambda node: node.start)
        assert total(join(nodes, add), add) == expected


def test_contiguous_ranges_come_back_as_few_nodes():
    nodes = join((Node(c, 0, 1.0) for c in range(21, 43)), add)
    assert sum(node.value for node in nodes) == 22 and len(nodes) <= 8
