import itertools
import re

import numpy as np
import pytest

import backfield as bf
from backfield.data.formats import read_fg
from tests.data.files.data import folder
from tests.models import enumerate_model

GOOD = """# a comment
3

2
4 1
2 3
5
0 1
1 2   # another
2 3
5 6
4 5

1
1
3
2
0 0.5
2 1.5

0


1
0 4
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "model.fg"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_the_first_variable_is_fastest_and_gaps_become_one_label(file):
    theta = read_fg(file(GOOD))
    assert theta.graph == bf.Graph([1, 3, 1, 1, 2], [(4, 1)])
    np.testing.assert_allclose(np.exp(theta.factors[0]), [[1, 3, 5], [2, 0, 6]])
    np.testing.assert_allclose(np.exp(theta.unary[1]), [0.5, 0, 1.5])
    assert enumerate_model(theta)[0] == pytest.approx(np.log(4 * (0.5 * 3 + 1.5 * 11)))


DAMAGED = {
    "empty": ("", "is empty"),
    "only comments": ("# 3\n\n", "is empty"),
    "binary": (bytes(range(256)), "is not a number"),
    "negative count": ("-1", "'-1'"),
    "huge count": ("1000000000000", "ends early"),
    "nothing named": ("0", "names no variable"),
    "truncated": (GOOD[: GOOD.index("4 5")], "ends early"),
    "huge arity": ("1 1000000000 0 2 1 0 1", "1000000000 variables"),
    "huge table": ("1\n2\n0 1\n1000000 1000000\n1\n0 1", r"line 5: the table of factor 0 has 1e\+12 entries"),
    "endless table": ("1 40 " + " ".join(map(str, range(40))) + " 1000000000000" * 40 + " 1 0 1", "inf entries"),
    "huge variable": ("1\n1\n1000000000000\n2\n1\n0 1", "variable 1000000000000"),
    "no labels": ("1\n1\n0\n0\n0", "variable 0 has 0 labels"),
    "other label count": (GOOD.replace("1\n1\n3\n", "1\n1\n2\n"), "variable 1 has 2 labels in factor 1 and 3 before"),
    "twice": (GOOD.replace("4 1\n", "4 4\n"), "factor 0 names a variable twice"),
    "index": (GOOD.replace("5 6\n", "6 6\n"), "line 11: factor 0 lists entry 6; it has 0 .. 5"),
    "same index": (GOOD.replace("5 6\n", "4 6\n"), "factor 0 lists an entry twice"),
    "fractional index": (GOOD.replace("5 6\n", "4.5 6\n"), "'4.5'"),
    "negative": (GOOD.replace("5 6\n", "5 -6\n"), "factor 0 holds -6"),
    "nan": (GOOD.replace("5 6\n", "5 nan\n"), "factor 0 holds nan"),
    "word": (GOOD.replace("5 6\n", "5 six\n"), "line 11: 'six' is not a number"),
    "trailing": (GOOD + "7\n", "1 numbers too many"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_clear_error(file, case):
    text, message = DAMAGED[case]
    with pytest.raises(bf.InputError, match=message) as caught:
        read_fg(file(text))
    assert "model.fg" in str(caught.value)


@pytest.mark.parametrize("name", ["hoi1", "hoi2", "hoi3", "hoi4", "twofactors", "zeroes1"])
def test_small_files_of_libdai(name):
    theta = read_fg(folder("libdai_tests") / f"{name}.fg")
    log_z, mu = enumerate_model(theta)
    assert np.isfinite(log_z) and np.isfinite(mu.vector()).all()


def test_a_bayesian_network_keeps_its_conditional_probabilities():
    theta = read_fg(folder("libdai_tests") / "alarm.fg")
    for table in theta.factors:
        # Each table sums to one over its child; two of them hold .333 three times.
        assert min(np.abs(np.exp(table).sum(axis=axis) - 1).max() for axis in range(table.ndim)) < 1.01e-3
    operands = []
    scopes = [(i,) for i in range(37)] + theta.graph.factors
    for scope, table in zip(scopes, [*theta.unary, *theta.factors], strict=True):
        operands += [np.exp(table), list(scope)]
    assert np.einsum(*operands, [], optimize="greedy") == pytest.approx(0.9998001)


def test_known_answer():
    path = folder("libdai_tests") / "testfast.fg"
    theta = read_fg(path)
    states = np.array(list(itertools.product([0, 1], repeat=16)))
    score = theta.unary_flat[2 * np.arange(16) + states].sum(axis=1)
    for (i, j), table in zip(theta.graph.factors, theta.factors, strict=True):
        score += table[states[:, i], states[:, j]]
    log_z = np.logaddexp.reduce(score)
    assert log_z == pytest.approx(14.328233281091578, abs=1e-12)
    rows = re.findall(r"\{x(\d+)\}, \((\S+), ([^)]+)\)", path.with_suffix(".out").read_text())[:16]
    for i, _, p in rows:
        assert np.exp(score[states[:, int(i)] == 1] - log_z).sum() == pytest.approx(float(p), rel=1e-3)
