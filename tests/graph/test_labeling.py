"""Labels as people have them: known, hidden, or sets."""

import numpy as np
import pytest

from backfield import Graph, InputError
from backfield.graph.labeling import as_labeling, factor_entries, one_hot

CHAIN, MIXED = Graph.chain(3, 3), Graph([2, 3, 1], [(0, 1), (2, 1, 0)])


def test_labels_with_holes():
    labeling = as_labeling(CHAIN, [2, -1, 0])
    assert labeling.labels.tolist() == [2, -1, 0] and labeling.known.tolist() == [True, False, True]
    assert labeling.allowed.tolist() == [False, False, True] + [True] * 3 + [True, False, False]
    assert not labeling.has_sets
    assert as_labeling(CHAIN, labeling) is labeling
    for dtype in (np.int8, np.uint16, np.int64):
        assert as_labeling(CHAIN, np.array([2, 1, 0], dtype=dtype)).labels.tolist() == [2, 1, 0]


def test_masks():
    mask = np.array([[False, True, False], [True, True, True], [True, False, True]])
    labeling = as_labeling(CHAIN, mask)
    assert labeling.labels.tolist() == [1, -1, -1] and labeling.has_sets
    np.testing.assert_array_equal(labeling.allowed, mask.ravel())
    assert not as_labeling(CHAIN, mask[[0, 1, 1]]).has_sets  # all true means hidden, one true means known
    ragged = as_labeling(MIXED, [[True, True], np.array([True, False, True]), [True]])
    assert ragged.labels.tolist() == [-1, -1, 0] and ragged.has_sets


@pytest.mark.parametrize("labels", [[0, 0], [0, 0, 3], [0, 0, -2], [0.0, 1.0, 2.0], [[0], [1, 2], [1]], None, "abc"])
def test_bad_labels(labels):
    with pytest.raises(InputError, match=r"^labels"):
        as_labeling(CHAIN, labels)


def test_the_message_names_what_was_asked_for():
    with pytest.raises(InputError, match=r"^observed\[1\] is 5; variable 1 has labels 0 \.\. 2"):
        as_labeling(CHAIN, [0, 5, 0], "observed")


def test_indicators():
    unary, factors = one_hot(MIXED, np.array([1, 2, 0]))
    assert unary.tolist() == [0, 1, 0, 0, 1, 1]
    assert np.flatnonzero(factors).tolist() == [5, 6 + 5]
    unary, factors = one_hot(MIXED, np.array([1, -1, 0]))
    assert unary.tolist() == [0, 1, 0, 0, 0, 1] and not factors.any()


def test_entries():
    entries, complete = factor_entries(MIXED, np.array([1, 2, 0]))
    assert entries.tolist() == [5, 11] and complete.all()
    assert factor_entries(MIXED, np.array([1, -1, 0]))[1].tolist() == [False, False]
    assert factor_entries(Graph([2]), np.array([0]))[0].shape == (0,)
