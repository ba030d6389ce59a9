"""``backfield reproduce``: the protocol, and quick runs of the figures of [D13] that need no data."""

import json

import numpy as np
import pytest

import backfield as bf
from backfield_papers import Context, Outcome, _base, names, reproduce
from backfield_papers import _shifted_chain as chain
from tests.datasets.real import real_data
from tests.installed import run


@pytest.fixture
def toy(monkeypatch):
    """An experiment of no cost."""

    def measure(context):
        context.progress("half way")
        rows = [{"what": "answer", "paper": 42, "ours": 41.5}, {"what": "list", "paper": None, "ours": 1.0, "all": [1, 2]}]
        return Outcome({"seeds": [0]}, rows, {"toy.png": lambda path: path.write_bytes(b"picture")})

    monkeypatch.setitem(_base._REGISTRY, "toy", _base.Experiment("toy", "A toy", measure, "toy"))


@pytest.mark.usefixtures("toy")
def test_table_files_and_pictures(tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    assert run(["reproduce", "toy", "--quick", "--json", str(tmp_path / "toy.json"), "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "answer" in out
    assert "quick run" in out
    found = json.loads((tmp_path / "toy.json").read_text())
    assert set(found) == {"name", "settings", "seconds", "rows"}
    assert found["settings"]["quick"] is True
    assert found["settings"]["seeds"] == [0]
    assert "commit" in found["settings"]
    assert found["rows"][0] == {"what": "answer", "paper": 42, "ours": 41.5}
    assert json.loads((folder / "toy.json").read_text()) == found
    assert sorted(path.name for path in folder.iterdir()) == ["toy.json", "toy.png"]


def test_a_stopped_run_goes_on(tmp_path, monkeypatch, capsys):
    computed, broken = [], {"b"}

    def cell(name):
        if name in broken:
            raise RuntimeError("stopped")
        computed.append(name)
        return {"ours": 1.5}

    def measure(context):
        return Outcome({}, [context.cell(name, lambda name=name: cell(name)) for name in "abc"])

    monkeypatch.setitem(_base._REGISTRY, "toy", _base.Experiment("toy", "A toy", measure, "toy"))
    arguments = ["reproduce", "toy", "--out", str(tmp_path)]
    assert run(arguments) == 1
    with (tmp_path / "cells" / "toy.jsonl").open("a") as file:
        file.write('{"half a li')
    broken.clear()
    assert run(arguments) == 0
    assert computed == ["a", "b", "c"]
    assert run(arguments) == 0
    assert computed == ["a", "b", "c"], "cells are kept"
    assert run([*arguments, "--so-far", "--fresh"]) == 2
    assert run([*arguments, "--fresh"]) == 0
    assert computed == 2 * ["a", "b", "c"]


def test_a_quick_run_takes_no_cell_of_a_full_one(tmp_path):
    kept = tmp_path / "cells"
    assert Context(quick=False, kept=kept).cell("a", lambda: 1) == 1
    assert Context(quick=True, kept=kept).cell("a", lambda: 2) == 2
    assert Context(quick=False, kept=kept).cell("a", lambda: 3) == 1


@pytest.mark.usefixtures("toy")
def test_nothing_is_written_unasked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", "toy"]) == 0
    assert "quick" not in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("toy")
def test_bad_usage(tmp_path, capsys):
    assert run(["reproduce", "nothing"]) == 2
    error = capsys.readouterr().err
    assert "there is no experiment 'nothing'; known: " in error
    assert "d13-fig3" in error
    assert run(["reproduce", "toy", "--json", str(tmp_path / "no" / "file.json")]) == 2
    (tmp_path / "file").touch()
    assert run(["reproduce", "toy", "--out", str(tmp_path / "file")]) == 2


def test_data_that_is_not_there(tmp_path):
    with pytest.raises(bf.InputError, match="needs --data DIR with images"):
        _base.need_data(Context(), "images")
    with pytest.raises(bf.InputError, match="is not a folder"):
        _base.need_data(Context(tmp_path / "nothing"), "images")
    assert _base.need_data(Context(tmp_path), "images") == tmp_path
    (tmp_path / "images").mkdir()
    for given in (tmp_path, tmp_path / "images"):  # loaders look for the folder of that name in what they get
        assert _base.need_data(Context(given), "images/*.jpg") == tmp_path


def test_names():
    assert {"d13-fig1", "d13-fig2", "d13-fig3"} <= set(names())


# The shifted chain of figures 1 and 2


def small_truth(n=4):
    return chain.random_truth(n, np.random.default_rng(1))


def ladder(truth):
    """The joint model of x (0 .. n-1) and y (n .. 2n-1), as a graph."""
    n = len(truth.across)
    edges = [(i, i + 1) for i in range(n - 1)] + [(n + i, n + i + 1) for i in range(n - 1)] + [(i, n + i) for i in range(n)]
    couplings = np.concatenate([truth.along_x, truth.along_y, truth.across])
    unary = np.concatenate([truth.unary, np.zeros((n, 2))])
    tables = couplings[:, None, None] * np.array([[1, -1], [-1, 1]])
    return bf.Potentials(bf.Graph.from_edges(edges, 2 * n), unary, tables)


def test_samples_are_from_the_ladder():
    truth = small_truth()
    data = chain.sample(truth, 40_000, np.random.default_rng(2))
    theta = ladder(truth)
    both = np.concatenate([data.x, data.y], axis=1)
    mu = bf.infer(theta, "exact")
    np.testing.assert_allclose(both.mean(axis=0), mu.unary[:, 1], atol=0.012)
    for (a, b), table in zip(theta.graph.factors, mu.factors, strict=True):
        assert (both[:, a] * both[:, b]).mean() == pytest.approx(table[1, 1], abs=0.012)


def test_truth_given_the_inputs():
    truth = small_truth()
    data = chain.sample(truth, 5, np.random.default_rng(2))
    found = chain.true_marginals(truth, data.y)
    for y, row in zip(data.y, found, strict=True):
        run = bf.infer(ladder(truth), "exact", observed=np.concatenate([np.full(4, -1), y]))
        np.testing.assert_allclose(row, run.unary[:4, 1])


@pytest.mark.parametrize("loss", chain.LOSSES.values())
def test_gradient_of_the_tied_parameters(loss, monkeypatch):
    """What L-BFGS sees is the derivative of what it minimises."""
    data = chain.sample(small_truth(), 7, np.random.default_rng(3))
    seen = []

    def minimize(function, start, **_):
        rng = np.random.default_rng(4)
        point, direction = 0.3 * rng.normal(size=len(start)), rng.normal(size=len(start))
        ahead, behind = (function(point + t * direction)[0] for t in (1e-5, -1e-5))
        seen.append(((ahead - behind) / 2e-5, function(point)[1] @ direction))
        return type("Found", (), {"x": start})

    monkeypatch.setattr(chain, "minimize", minimize)
    chain.ChainModel(data.y).fit(data.x, loss)
    assert seen[0][0] == pytest.approx(seen[0][1], rel=1e-6)


def test_likelihood_finds_the_truth():
    truth = small_truth()
    data = chain.sample(truth, 20_000, np.random.default_rng(5))
    model = chain.ChainModel(data.y)
    found = model.marginals(model.fit(data.x, "surrogate_likelihood"))
    np.testing.assert_allclose(found, chain.true_marginals(truth, data.y), atol=0.03)


def test_shift():
    data = chain.Data(np.array([[0, 1, 1]]), np.array([[1, 0, 0]]))
    assert data.shifted(1).x.tolist() == [[0, 1, 0]]
    assert data.shifted(1).y.tolist() == [[0, 1, 1]]


# Quick runs


def values(rows, **wanted):
    return [row["ours"] for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def test_figure_1():
    found, _ = reproduce("d13-fig1", Context(quick=True))
    rows = found["rows"]
    for name in ("univariate logistic", "clique logistic"):
        (same,) = values(rows, shift=0, loss=f"{name} - likelihood")
        assert abs(same) < 0.01
    (gap,) = values(rows, shift=2, loss="univariate logistic - likelihood")
    assert gap < -0.01
    assert all("paper" in row for row in rows)


def test_figure_2(tmp_path):
    found, outcome = reproduce("d13-fig2", Context(quick=True))
    (right,) = values(found["rows"], shift=0, loss="likelihood")
    (wrong,) = values(found["rows"], shift=2, loss="likelihood")
    (better,) = values(found["rows"], shift=2, loss="univariate logistic")
    assert right < better < wrong
    pytest.importorskip("matplotlib")
    outcome.pictures["d13-fig2.png"](tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_figure_3():
    """Four sides are best, and both too small and too large a step are bad."""
    found, _ = reproduce("d13-fig3", Context(quick=True))
    rows = found["rows"]
    for method in ("TRW", "MNF"):
        best = [values(rows, inference=method, what="best multiplier", sides=sides)[0] for sides in (1, 2, 4)]
        assert best[0] > 30 * best[1] > 900 * best[2]
        for sides, least in zip((1, 2, 4), best, strict=True):
            curve = values(rows, inference=method, what="relative error", sides=sides)
            assert curve[0] > 30 * least
            assert curve[-1] > 1000 * least
        (check,) = values(rows, inference=method, what="check: truncated against differences")
        assert check < 1e-8


@pytest.mark.parametrize("name", ["s18-table2", "s18-table3", "s18-table4", "s18-table5", "s18-fig1"])
def test_quick_runs_of_s18(name):
    data = real_data("ocr_letters" if name == "s18-table2" else "weizmann_horses")
    found, _ = reproduce(name, Context(data, quick=True))
    assert found["settings"]["quick"] and all(np.isfinite(row["ours"]) for row in found["rows"])
    if name == "s18-table5":
        apart = [row["ours"] for row in found["rows"] if "difference" in row["what"]]
        assert max(apart) < 1e-9


def test_quick_calibration():
    found, outcome = reproduce("calibration", Context(quick=True))
    assert len(found["rows"]) == 4 and "calibration.png" in outcome.pictures


def test_quick_ocr_words(tmp_path):
    found, outcome = reproduce("ocr-words", Context(real_data("ocr_letters"), quick=True))
    alone, chain = (row["ours"] for row in found["rows"] if "letters" in row["what"])
    assert chain < alone
    pytest.importorskip("matplotlib")
    outcome.pictures["ocr-words.png"](tmp_path / "words.png")
    assert (tmp_path / "words.png").stat().st_size > 5000
