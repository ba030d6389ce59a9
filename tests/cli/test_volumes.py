"""Volumes and other neighbourhoods through the command line."""

import numpy as np

import backfield as bf
from backfield.data.formats.npz import write_npz
from tests.estimators.test_volumes import X, Y

SPEC = "volume(neighbours=18)"
QUICK = ["--learner", "lbfgs(max_iter=2)", "--quiet"]


def test_volumes(call, tmp_path):
    data, model, out = tmp_path / "train.npz", tmp_path / "model.bf", tmp_path / "out.npz"
    write_npz(data, {"X": X, "y": Y})
    code, text, _ = call("fit", data, "--model", SPEC, "-o", model, *QUICK)
    assert code == 0 and "4 volumes" in text and repr(bf.load(model).structure_) == SPEC
    assert call("predict", model, data, "-o", out)[0] == 0
    with np.load(out) as found:
        assert found["y_3"].shape == (5, 9, 6)
    assert call("evaluate", model, data)[0] == 0
    packed = tmp_path / "packed"
    assert call("pack", data, "--model", "volume", "-o", packed, "--quiet")[0] == 0
    assert call("fit", packed, "--model", SPEC, "-o", model, *QUICK)[0] == 0
    assert repr(bf.load(model).structure_) == SPEC
    assert call("predict", model, packed, "-o", out)[0] == 0


def test_bad_specs_are_one_line(call, tmp_path):
    write_npz(tmp_path / "train.npz", {"X": X, "y": Y})
    for spec in ("volume(spacing=(0, 1, 1))", "volume(neighbours=7)", "volume(offsets=[(0, 0, 0)])"):
        code, _, err = call("fit", tmp_path / "train.npz", "--model", spec, "-o", tmp_path / "m.bf")
        assert code == 2 and err.startswith("backfield: ") and err.count("\n") == 1
