"""The verdicts of the study of defaults."""

import json

import pytest

from backfield_benchmarks import defaults_study as study
from backfield_benchmarks.cells import Cells


def row(model, seed, accuracy, ece=0.01):
    numbers = {"accuracy": accuracy, "log_loss": 0.5, "ece": ece, "seconds": 1.0}
    return {"data": "wine", "model": model, "seed": seed} | numbers


def rows(mine, plain, best, ece=0.01):
    models = zip(study.MODELS[::2], (plain, mine, best), strict=True)
    return [row(model, seed, each, ece) for model, values in models for seed, each in enumerate(values)]


def test_verdicts_say_misses_with_their_standard_error():
    assert study.verdicts(rows([0.9, 0.8], [0.9, 0.8], [0.904, 0.804])) == {"wine": "holds (2 seeds)"}
    said = study.verdicts(rows([0.9, 0.8], [0.9, 0.82], [0.9, 0.8], ece=0.05))["wine"]
    assert said == "1.00 points below logistic regression (standard error 1.00) (2 seeds)"
    assert "0.60 points below best of 12" in study.verdicts(rows([0.8], [0.8], [0.806]))["wine"]
    assert study.verdicts([row("default", 0, 0.9, 0.05), *rows([], [0.9], [0.9])])["wine"] == "ECE 0.050 (1 seeds)"


def test_only_seeds_that_have_all_are_compared():
    assert study.verdicts(rows([0.1, 0.9], [], [0.9]))["wine"] == "not run as a whole"
    table = [*rows([0.9], [0.9], [0.9]), row("default", 1, 0.1)]
    assert study.verdicts(table)["wine"] == "holds (1 seeds)"


@pytest.mark.parametrize("saved", [True, False])
def test_cells_are_computed_unless_only_what_is_saved_is_asked_for(tmp_path, monkeypatch, saved):
    monkeypatch.setattr(study, "commit_of_sources", lambda: "abc")
    cells = Cells(tmp_path / "study.json", "python -m backfield_benchmarks.defaults_study")
    found = study.run(cells, ["wine"], ["logistic regression"], 1, True, saved)
    assert len(found) == (0 if saved else 1)
    if not saved:
        (cell,) = json.loads((tmp_path / "study.json").read_text())["cells"].values()
        assert cell["commit"] == "abc" and found == [cell]
        assert study.run(cells, ["wine"], ["logistic regression"], 1, True, True) == found
