import json
import os

import numpy as np
import pytest

import backfield as bf
from backfield.data.formats import read_evidence, read_mar, read_pr, read_uai, write_evidence, write_mar, write_pr, write_uai
from tests.data.files.data import folder
from tests.models import enumerate_model, random_graph, random_potentials

GOOD = "MARKOV\n3\n2 3 2\n3\n1 0\n2 1 0\n3 0 1 2\n\n2\n1 2\n\n6\n1 2 3 4 5 6\n\n12\n1 2 3 4 5 6 7 8 9 10 11 12\n"


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "model.uai"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def same(a, b, atol=1e-12):
    assert a.graph == b.graph
    np.testing.assert_array_equal(np.isinf(a.vector()), np.isinf(b.vector()))
    np.testing.assert_allclose(a.vector(), b.vector(), rtol=0, atol=atol)


def test_tables_are_read_with_the_last_variable_fastest(file):
    theta = read_uai(file(GOOD))
    assert theta.graph == bf.Graph([2, 3, 2], [(1, 0), (0, 1, 2)])
    np.testing.assert_allclose(np.exp(theta.unary[0]), [1, 2])
    np.testing.assert_allclose(np.exp(theta.factors[0]), [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_allclose(np.exp(theta.factors[1]), np.arange(1, 13).reshape(2, 3, 2))


@pytest.mark.parametrize("seed", range(20))
def test_round_trip(tmp_path, seed):
    rng = np.random.default_rng(seed)
    theta = random_potentials(random_graph(rng), rng, scale=3.0)
    theta.unary_flat[rng.random(len(theta.unary_flat)) < 0.1] = -np.inf
    theta.factors_flat[rng.random(len(theta.factors_flat)) < 0.1] = -np.inf
    write_uai(theta, tmp_path / "a.uai")
    same(read_uai(tmp_path / "a.uai"), theta)


def test_round_trip_of_potentials_that_exp_cannot_take_keeps_log_z(tmp_path):
    rng = np.random.default_rng(0)
    theta = random_potentials(bf.Graph([2, 3, 2], [(0, 1), (1, 2)]), rng)
    theta.unary_flat[:2] += 5000
    theta.factors_flat[:6] += 900
    theta.factors_flat[6:] -= 1200
    write_uai(theta, tmp_path / "a.uai")
    back = read_uai(tmp_path / "a.uai")
    (log_z, mu), (log_z_back, mu_back) = enumerate_model(theta), enumerate_model(back)
    assert log_z_back == pytest.approx(log_z, rel=1e-13)
    np.testing.assert_allclose(mu_back.vector(), mu.vector(), atol=1e-10)


def test_a_table_wider_than_a_float_is_refused_not_cut(tmp_path):
    theta = bf.Potentials(bf.Graph([2]), [[0.0, -800.0]])
    with pytest.raises(bf.InputError, match=r"a\.uai: unary\[0\] spans 800"):
        write_uai(theta, tmp_path / "a.uai")
    assert os.listdir(tmp_path) == []


def test_constants_and_zeros(file):
    theta = read_uai(file("bayes 2 2 2 4  0  1 1  1 1  0   1 3   2 0 1   2 2 2   1 0.5"))
    log_z, mu = enumerate_model(theta)
    assert log_z == pytest.approx(np.log(3 * 0.5 * 2 * 2))
    np.testing.assert_allclose(mu.unary[1], [0, 1])


def test_a_model_without_factors(file):
    theta = read_uai(file("MARKOV\n1\n3\n0\n"))
    np.testing.assert_array_equal(theta.unary, np.zeros((1, 3)))


DAMAGED = {
    "empty": (b"", "is empty"),
    "blank": (b"  \n\n ", "is empty"),
    "binary": (bytes(range(256)) * 4, "starts with"),
    "binary after the header": (b"MARKOV\n" + bytes(range(256)), "is not a number"),
    "nul": (b"MARKOV 1 2 \x00", "is not a number"),
    "header": (GOOD.replace("MARKOV", "LATTICE"), "'LATTICE'; a UAI model starts with MARKOV or BAYES"),
    "no numbers": ("MARKOV", "ends early"),
    "no variables": ("MARKOV 0 0", "no variables"),
    "negative size": ("MARKOV -3 2 2 2 0", "'-3'"),
    "fraction": ("MARKOV 2.5 2 2 0", "integer"),
    "no labels": ("MARKOV 2 2 0 0", "variable 1 has 0 labels"),
    "huge n": ("MARKOV 1000000000000 2 2 0", "ends early"),
    "huge labels": ("MARKOV 1 1000000000000 0", "variable 0 has 1000000000000 labels"),
    "huge number": ("MARKOV 1 " + "9" * 5000 + " 0", "integer"),
    "huge number of factors": ("MARKOV 1 2 1000000000000", "ends early"),
    "huge arity": ("MARKOV 1 2 1 1000000000000 0 2 1 1", "1000000000000 variables of factor 0"),
    "huge table": ("MARKOV 40" + " 100" * 40 + " 1 40 " + " ".join(map(str, range(40))) + " 5 1 1 1", "1e+80 entries"),
    "endless table": ("MARKOV 90" + " 10000" * 90 + " 1 90 " + " ".join(map(str, range(90))) + " 5 1 1", "inf entries"),
    "variable": (GOOD.replace("2 1 0\n", "2 1 7\n"), "line 6: factor 1 names variable 7, but variables are 0 .. 2"),
    "negative variable": (GOOD.replace("2 1 0\n", "2 1 -1\n"), "line 6.*'-1'"),
    "twice": (GOOD.replace("3 0 1 2\n", "3 0 1 0\n"), "factor 2 names variable 0 twice"),
    "word": (GOOD.replace("8 9", "8 nine"), "line 16: 'nine' is not a number"),
    "glued": (GOOD.replace("8 9", "8-9"), "'8-9' is not a number"),
    "underscore": (GOOD.replace("8 9", "8 1_0"), "'1_0' is not a number"),
    "negative": (GOOD.replace("8 9", "8 -9"), "line 16: factor 2 holds -9"),
    "nan": (GOOD.replace("8 9", "8 nan"), "factor 2 holds nan"),
    "inf": (GOOD.replace("8 9", "8 1e999"), "factor 2 holds inf"),
    "count": (GOOD.replace("6\n1 2 3", "7\n1 2 3"), "line 12: the table of factor 1 has 6 entries by its scope; '7'"),
    "missing entry": (GOOD.replace("4 5 6\n\n", "4 5\n\n"), "factor 2"),
    "truncated": (GOOD[:-8], "ends early"),
    "no tables": (GOOD[: GOOD.index("\n\n")], "ends early"),
    "trailing": (GOOD + "13 14\n", "line 17: 2 numbers too many, from '13' on"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_clear_error(file, case):
    text, message = DAMAGED[case]
    with pytest.raises(bf.InputError, match=message.replace("+", r"\+")) as caught:
        read_uai(file(text))
    assert "model.uai" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_mutation_of_a_file_does_anything_but_raise_an_input_error(file):
    rng = np.random.default_rng(0)
    junk = ["", "-1", "0", "1e30", "nan", "x", "99999999999999999999", "3.5", "inf", "2 2", "\x00"]
    tokens = GOOD.split(" ")
    refused = 0
    for _ in range(300):
        changed = list(tokens)
        for at in rng.integers(len(tokens), size=rng.integers(1, 4)):
            changed[at] = junk[rng.integers(len(junk))]
        text = " ".join(changed)
        try:
            read_uai(file(text[: rng.integers(1, 2 * len(text))]))
        except bf.InputError:
            refused += 1
    assert refused > 200


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_uai(tmp_path / "no.uai")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", [-1] * 5),
        ("1 0", [-1] * 5),
        ("2 4 1 0 2\n", [2, -1, -1, -1, 1]),
        ("1\n2 4 1 0 2\n", [2, -1, -1, -1, 1]),
        ("1 3 0", [-1, -1, -1, 0, -1]),
        ("1\n1 3 0", [-1, -1, -1, 0, -1]),
        ("2\n4 1\n0 2\n", [2, -1, -1, -1, 1]),
        ("2 1 1 1 1", [-1, 1, -1, -1, -1]),
    ],
)
def test_both_forms_of_evidence(file, text, expected):
    np.testing.assert_array_equal(read_evidence(file(text), 5), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("2 4 1 0", "not pairs"),
        ("2 4 1", "2 observations are announced, 1 follow"),
        ("1\n2 4 1", "1 follow"),
        ("1 9 0", "variable 9 is observed, but variables are 0 .. 4"),
        ("2 1 0 1 1", "variable 1 is observed as 0 and as 1"),
        ("1 1 -1", "'-1'"),
        ("1 a 0", "'a' is not a number"),
        ("1 99999999999999 0", "variable 99999999999999"),
    ],
)
@pytest.mark.parametrize("n", [5, None])
def test_bad_evidence(file, text, message, n):
    if n is None and "variable 9 is" in message:
        assert len(read_evidence(file(text))) == 10
        return
    with pytest.raises(bf.InputError, match=message):
        read_evidence(file(text), n)


def test_evidence_round_trip(tmp_path):
    observed = np.array([2, -1, 0, -1])
    write_evidence(observed, tmp_path / "a.evid")
    np.testing.assert_array_equal(read_evidence(tmp_path / "a.evid", 4), observed)
    assert len(read_evidence(tmp_path / "a.evid")) == 3


def test_marginals_and_pr_round_trip(tmp_path):
    rows = [np.array([0.1, 0.9]), np.array([1 / 3, 1 / 3, 1 / 3]), np.array([1.0])]
    write_mar(rows, tmp_path / "a.MAR")
    for got, row in zip(read_mar(tmp_path / "a.MAR"), rows, strict=True):
        np.testing.assert_array_equal(got, row)
    write_pr(-3.25, tmp_path / "a.PR")
    assert read_pr(tmp_path / "a.PR") == -3.25
    assert sorted(os.listdir(tmp_path)) == ["a.MAR", "a.PR"]


def test_older_forms_of_answers(file):
    np.testing.assert_array_equal(read_mar(file("MAR\n1\n2 2 0.5 0.5 1 1.0"))[0], [0.5, 0.5])
    assert read_pr(file("PR\n1\n-7.5")) == -7.5


@pytest.mark.parametrize("text", ["MAR 2 2 0.5 0.5", "MAR 1 2 0.5 1.5", "MAR 1 2 0.5 0.5 1", "PR 3", "MAR", "MAR 1 x"])
def test_damaged_marginals(file, text):
    with pytest.raises(bf.InputError, match=r"model\.uai"):
        read_mar(file(text))


@pytest.mark.parametrize("text", ["MAR 3", "PR", "PR nan", "PR 3 4", "PR 1 2 3", "PR inf"])
def test_damaged_pr(file, text):
    with pytest.raises(bf.InputError, match=r"model\.uai"):
        read_pr(file(text))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.PR"
    write_pr(1.0, path)

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_pr(2.0, path)
    assert read_pr(path) == 1.0
    assert os.listdir(tmp_path) == ["a.PR"]


def test_competition_files_fit_their_answers():
    models = sorted(folder("uai2014").glob("*.uai"))
    assert len(models) == 25
    for path in models:
        theta = read_uai(path)
        observed = read_evidence(f"{path}.evid", theta.graph.n_variables)
        mu = read_mar(f"{path}.MAR")
        assert [len(row) for row in mu] == theta.graph.labels.tolist()
        assert all(mu[i][observed[i]] == 1 for i in np.flatnonzero(observed >= 0))
        assert np.isfinite(read_pr(f"{path}.PR"))


@pytest.mark.parametrize("name", ["Grids_11", "Promedus_24", "Pedigree_12", "Segmentation_11"])
def test_competition_answers(name):
    path = folder("uai2014") / f"{name}.uai"
    index = {row["name"]: row for row in json.loads((path.parent / "index.json").read_text())}
    theta = read_uai(path)
    run = bf.infer(theta, "exact", observed=read_evidence(f"{path}.evid", theta.graph.n_variables))
    assert run.log_partition / np.log(10) == pytest.approx(index[name]["log10Z_exact_recomputed"], rel=1e-9)
    for got, expected in zip(run.unary, read_mar(f"{path}.MAR"), strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-6)
