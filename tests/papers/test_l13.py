"""[L13] Table 1 and Figures 1 to 3: quick runs, one for all."""

import json

import numpy as np
import pytest

from backfield_papers import Context, _l13, l13_table1
from backfield_papers._campaign import progress
from tests.datasets.real import real_data
from tests.installed import run


def test_papers_table():
    assert _l13.PAPER["denoising"][3][4] == 0.007
    assert {len(row) for table in _l13.PAPER.values() for row in table} == {5}
    assert len(set(l13_table1.ORDER)) == 25
    assert set(l13_table1.QUICK) <= set(l13_table1.ORDER)


def test_cells_say_what_they_are():
    assert _l13.key("denoising", "mlp", "linear") == "denoising mlp linear"  # as in runs of one seed
    assert _l13.key("horses", "mlp", "linear", 2) == "horses mlp linear seed 2"
    keys = [cell.key for cell in l13_table1._planned(False)]
    assert len(set(keys)) == len(keys) == 6 * 26 + 25
    assert all(key.startswith("horses, full resolution") for key in keys[-25:])
    assert [_l13.image_seeds(seed) for seed in (0, 1, 2)] == [(0, 1), (2, 3), (4, 5)]
    specs = [_l13.spec("denoising", _l13.SGD, term) for term in ("unary", "pairwise")]
    assert specs == ["mlp(n_epochs=1, step=0.25, init_scale=24.0)", "mlp(n_epochs=1, step=0.05, init_scale=24.0)"]


def test_rows_are_means_over_seeds():
    common = {"rounds": 3, "processor_seconds": 1.0, "curve": [[3, 0.1, 0.2]], "functions": None}
    seeds = {seed: {**common, "train": 0.1, "test": 0.2 + 0.03 * seed} for seed in range(3)}
    test, train = l13_table1._rows("horses", "mlp", "linear", seeds)
    assert test["ours"] == pytest.approx(0.23) and test["seeds"] == 3
    assert test["standard error"] == pytest.approx(0.03 / 3**0.5)
    assert test["paper"] == 0.087 and train["paper"] is None
    assert l13_table1._rows("horses", _l13.SGD, _l13.SGD, seeds)[0]["paper"] == 0.081
    (alone, _) = l13_table1._rows("horses", "mlp", "linear", {1: seeds[1]})
    assert alone["standard error"] is None and "curve" not in alone


def test_labels_are_packed():
    labels = np.random.default_rng(0).integers(0, 2, (7, 5))
    assert np.array_equal(_l13.unpack(_l13.pack(labels), (7, 5)), labels)


def test_cells_in_processes(tmp_path):
    tasks = {"a": (2.5,), "b": (-1.5,), "c": (0.5,)}
    context = Context(n_jobs=2, kept=tmp_path / "cells")
    context.cell("b", lambda: 7.0)
    assert context.cells(tasks, abs) == {"a": 2.5, "b": 7.0, "c": 0.5}
    assert Context(kept=tmp_path / "cells").cells(tasks, str) == {"a": 2.5, "b": 7.0, "c": 0.5}


def test_what_is_done_so_far(tmp_path, capsys):
    kept = tmp_path / "cells" / "l13-table1.jsonl"
    value = {"train": 0.1, "test": 0.2, "rounds": 3, "processor_seconds": 1.0, "curve": [[3, 0.1, 0.2]], "functions": None}
    Context(kept=kept).cell("denoising mlp linear", lambda: {**value, "predictions": []})
    assert run(["reproduce", "l13-table1", "--out", str(tmp_path), "--so-far"]) == 0
    found = json.loads((tmp_path / "l13-table1.json").read_text())
    assert [row["ours"] for row in found["rows"]] == [0.2, 0.1]
    assert len(found["settings"]["left_out"]) == 6 * 26 + 25 - 1
    assert progress("l13-table1", tmp_path).state == "incomplete"
    assert kept.exists()
    assert run(["reproduce", "l13-table1", "--so-far"]) == 2
    assert "--so-far needs --out" in capsys.readouterr().err


def test_table_and_figures(tmp_path, capsys):
    pytest.importorskip("lightgbm")
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    out = ["--quick", "--out", str(tmp_path)]
    assert run(["reproduce", "l13-table1", *out]) == 0
    found = json.loads((tmp_path / "l13-table1.json").read_text())
    ours = {(row["unary"], row["pairwise"]): row["ours"] for row in found["rows"] if row["what"] == "train error"}
    errors = [ours[cell] for cell in l13_table1.QUICK]
    assert errors[0] > errors[1] > errors[2] > max(errors[3:]), "more general functions fit better"
    assert all(row["paper"] is not None for row in found["rows"] if row["what"] == "test error")
    assert (_l13.SGD, _l13.SGD) in ours and all(row["seeds"] == 1 for row in found["rows"])
    for name in ("l13-fig1", "l13-fig2"):  # both draw what came with the table
        assert run(["reproduce", name, *out]) == 0
        assert json.loads((tmp_path / f"{name}.json").read_text())["settings"]["cells"].startswith("l13-table1.json")
    pictures = {"l13-fig1.png", "l13-fig2-denoising.png", "l13-fig3-denoising.png"}
    assert {path.name for path in tmp_path.glob("*.png")} == pictures
    rows = json.loads((tmp_path / "l13-fig1.json").read_text())["rows"]
    trees = {row["x"]: row["ours"] for row in rows if row["functions"] == "boosted_trees" and row["term"] == "unary"}
    assert trees[0.05] < -2 and abs(trees[0.5]) < 1 and trees[0.95] > 2, "flat in the middle, steps at .1 and .9"


def test_horses(monkeypatch):
    monkeypatch.setattr(_l13, "QUICK_ROUNDS", 3)
    cell = _l13.cell("horses", real_data("weizmann_horses"), True, "linear", "linear")
    assert cell["rounds"] == 3
    assert cell["train"] < 0.3
    other = _l13.cell("horses", real_data("weizmann_horses"), True, "linear", "linear", 1)
    assert other["train"] != cell["train"]


def test_horses_at_full_resolution(monkeypatch):
    monkeypatch.setattr(_l13, "QUICK_ROUNDS", 1)
    folder = real_data("weizmann_horses")
    small = _l13.data("horses", folder, True).shapes
    shapes = _l13.data("horses, full resolution", folder, True).shapes
    assert all(
        abs(full - 3 * part) <= 2 for pair in zip(shapes, small, strict=True) for full, part in zip(*pair, strict=True)
    )
    assert _l13.cell("horses, full resolution", folder, True, "linear", "zero")["train"] < 0.4
