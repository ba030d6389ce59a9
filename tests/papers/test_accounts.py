"""What is said about each experiment, and how far all of them are."""

import json
from pathlib import Path

import pytest

import backfield as bf
from backfield_papers import Context, Outcome, _base, names
from backfield_papers._accounts import ACCOUNTS, VERDICTS, Account, account, quote
from backfield_papers._campaign import progress, queue, run_all, status
from tests.installed import run

RESULTS = Path(__file__).parents[2] / "docs" / "results"
ROWS = [
    {"loss": "a, b", "n": 1, "paper": 0.25, "ours": 0.125, "times": 2.0},
    {"loss": "a, b", "n": 2, "paper": None, "ours": 3},
]


def test_every_experiment_has_an_account():
    assert set(ACCOUNTS) == set(names())
    assert {each.verdict for each in ACCOUNTS.values()} <= set(VERDICTS)


@pytest.mark.parametrize("name", [path.stem for path in sorted(RESULTS.glob("*.json")) if path.stem != "bench"])
def test_accounts_quote_rows_that_exist(name):
    text = quote(account(name).found, json.loads((RESULTS / f"{name}.json").read_text())["rows"])
    assert "{{" not in text


def test_quote():
    assert quote("{{loss=a, b, n=1}} and {{times: n=1}}", ROWS) == "0.125 (paper 0.25) and 2"
    assert quote("{{n=2}}", ROWS) == "3"
    with pytest.raises(bf.InputError, match="matches 2 rows"):
        quote("{{loss=a, b}}", ROWS)
    with pytest.raises(bf.InputError, match="has no account"):
        account("nothing")


def test_differences_are_read_from_the_sources():
    table2 = _base.lookup("d13-table2").differences()
    assert any("size-normalised edition" in note for note in table2)
    assert any("HorseSeg" in note for note in _base.lookup("s18-table3").differences())
    assert all("\n" not in note and "#" not in note for note in table2)


@pytest.fixture
def experiments(monkeypatch):
    """Three experiments of no cost in the place of the real ones."""
    runs = {name: lambda context, name=name: Outcome({}, [{"ours": name}]) for name in ("l13-x", "d13-x", "own")}
    monkeypatch.setattr(
        _base, "_REGISTRY", {name: _base.Experiment(name, f"title of {name}", run, name) for name, run in runs.items()}
    )
    monkeypatch.setattr("backfield_papers._campaign.names", lambda: sorted(runs))


def _write(folder, name, **settings):
    (folder / f"{name}.json").write_text(json.dumps({"settings": {"commit": "a" * 40, **settings}, "rows": []}))


@pytest.mark.usefixtures("experiments")
def test_how_far_each_is(tmp_path):
    assert [each.name for each in status(tmp_path)] == ["d13-x", "l13-x", "own"]
    assert {each.state for each in status(tmp_path)} == {"not run"}
    _write(tmp_path, "d13-x")
    assert progress("d13-x", tmp_path).state == "done"
    _write(tmp_path, "d13-x", left_out=["a", "b"])
    assert progress("d13-x", tmp_path).detail == "2 cells missing"
    _write(tmp_path, "d13-x", quick=True)
    assert progress("d13-x", tmp_path).state == "quick run"
    _write(tmp_path, "d13-x", commits_of_cells=["a" * 40, "b" * 40])
    assert progress("d13-x", tmp_path).state == "mixed commits"
    _write(tmp_path, "l13-x", commit="c" * 40 + " with changes")
    assert progress("l13-x", tmp_path) == type(progress("own", tmp_path))("l13-x", "mixed commits", "cccccccc+")
    Context(kept=tmp_path / "cells" / "own.jsonl").cells({"a": (1,), "b": (2,)}, abs)
    assert progress("own", tmp_path).detail == "2 cells kept"


@pytest.mark.usefixtures("experiments")
def test_a_result_of_older_sources_lacks_cells(tmp_path, monkeypatch):
    def lacks(found):
        return ["a", "b"] if "n" not in found["settings"] else []

    found = _base.Experiment("d13-x", "title", lambda context: Outcome({}, []), "d13-x", lacks)
    monkeypatch.setitem(_base._REGISTRY, "d13-x", found)
    _write(tmp_path, "d13-x", left_out=["b", "c"])
    assert progress("d13-x", tmp_path).detail == "3 cells missing"
    assert found.missing(json.loads((tmp_path / "d13-x.json").read_text())) == ["b", "c", "a"]
    _write(tmp_path, "d13-x", n=1)
    assert progress("d13-x", tmp_path).state == "done"


def _lacking(name, rows):
    return _base.lookup(name).missing({"settings": {}, "rows": rows})


def test_what_results_of_older_sources_lack():
    assert _lacking("d13-table3", [{"loss": "piecewise"}]) == [
        "univariate logistic, sinusoids of the paper, 5 sweeps, fold 0"
    ]
    assert len(_lacking("d13-fig7", [{"method": "truncated, 5 sweeps"}])) == 11
    assert len(_lacking("k05-fig1", [{"run": "PMA"}])) == 4
    lacking = _lacking("l13-table1", [{"data": "denoising", "unary": "mlp", "pairwise": "linear"}])
    assert "denoising mlp linear" not in lacking and "denoising mlp linear seed 1" in lacking
    assert len(lacking) == 6 * 26 + 25 - 1
    adam = ["S-SVM+BCFW", "perturb&MAP", "w.m. perturb&MAP"]
    lacking = _lacking("s18-table4", [{"method": method} for method in adam])
    assert len(lacking) == 5 + 3 + 2 * 4 and all("steps 1/(lambda h)" in key for key in lacking)


@pytest.mark.usefixtures("experiments")
def test_an_account_may_say_why_commits_do_not_matter(tmp_path, monkeypatch):
    account = Account("a claim", "holds", "a figure", commits="Nothing that matters has changed between them.")
    monkeypatch.setitem(ACCOUNTS, "d13-x", account)
    _write(tmp_path, "d13-x", commits_of_cells=["a" * 40, "b" * 40])
    assert progress("d13-x", tmp_path).state == "done"
    _write(tmp_path, "d13-x", commits_of_cells=["a" * 40, "b" * 40 + " with changes"])
    assert progress("d13-x", tmp_path).state == "mixed commits"


@pytest.mark.usefixtures("experiments")
def test_cells_of_changed_sources_are_computed_again(tmp_path, monkeypatch):
    kept = tmp_path / "cells" / "d13-x.jsonl"
    for key, commit in (("a", "a" * 40), ("b", "b" * 40 + " with changes")):
        monkeypatch.setattr(_base, "commit", lambda commit=commit: commit)
        Context(kept=kept).cell(key, lambda: 1)
    monkeypatch.setattr("backfield_papers._campaign.commit", lambda: "c" * 40)
    monkeypatch.setattr("backfield_papers._campaign._command", lambda name, data, out: ("true",))
    assert run_all(None, tmp_path, True, print) == []
    assert [cell["key"] for cell in _base.kept_cells(kept)] == ["a"]


@pytest.mark.usefixtures("experiments")
def test_what_is_missing_comes_first(tmp_path):
    _write(tmp_path, "d13-x", commits_of_cells=["a" * 40, "b" * 40])
    _write(tmp_path, "own")
    assert queue(tmp_path, resume=True) == ["l13-x", "d13-x"]
    assert queue(tmp_path, resume=False) == ["d13-x", "l13-x", "own"]


def test_the_command_lists_and_tells(tmp_path, capsys):
    assert run(["reproduce"]) == 0
    assert "d13-fig1" in capsys.readouterr().out
    _write(tmp_path, "k05-table1", left_out=["a"])
    assert run(["reproduce", "--status", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "1 cells missing" in out
    assert "not run" in out


def test_options_that_exclude_each_other(capsys):
    assert run(["reproduce", "idea", "--all"]) == 2
    assert "--all takes" in capsys.readouterr().err
    assert run(["reproduce", "idea", "--resume"]) == 2
    assert "belongs to --all" in capsys.readouterr().err


def test_all_refuses_changed_sources(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("backfield_papers._campaign.commit", lambda: "a" * 40 + " with changes")
    assert run(["reproduce", "--all", "--out", str(tmp_path)]) == 2
    assert "clean commit" in capsys.readouterr().err


@pytest.mark.usefixtures("experiments")
def test_all_runs_each_and_names_what_failed(monkeypatch, tmp_path, capsys):
    calls = []

    class Done:
        def __init__(self, code):
            self.returncode = code

    def call(command, check):
        calls.append(command[command.index("reproduce") + 1])
        return Done(int(calls[-1] == "own"))

    monkeypatch.setattr("backfield_papers._campaign.commit", lambda: "a" * 40)
    monkeypatch.setattr("backfield_papers._campaign.subprocess.run", call)
    _write(tmp_path, "d13-x")
    assert run(["reproduce", "--all", "--resume", "--out", str(tmp_path)]) == 1
    assert calls == ["l13-x", "own"]
    assert "own" in capsys.readouterr().err
