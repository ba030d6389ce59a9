import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import backfield as bf
from backfield.cli.app import run
from backfield.data.formats import write_mask
from backfield.datasets.generated import denoising
from tests.cli.test_cli import one_line
from tests.data.files.test_data import each, image_folder

QUICK = ["--learner", "lbfgs(max_iter=8)", "--quiet"]
SENTENCES = "the DT B-NP\ncat NN I-NP\nsat VBD O\n\na DT B-NP\ndog NN I-NP\nran VBD O\n\n" * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return image_folder(tmp_path_factory.mktemp("data") / "a", [(0, 1), (1, 0), (1, 255), (0, 1)], shape=(8, 9))


@pytest.fixture(scope="module")
def model(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.bf"
    assert run(["fit", str(folder), "--model", "grid", "--edges", "difference", *QUICK, "-o", str(path)]) == 0
    return path


def test_images_in_masks_out(call, folder, model, tmp_path):
    code, out, err = call("predict", model, folder, "-o", tmp_path / "out", "--proba")
    assert (code, err) == (0, "") and "4 images" in out
    masks = [np.asarray(Image.open(tmp_path / "out" / f"{k}.png")) for k in range(4)]
    p = np.load(tmp_path / "out" / "0.npy")
    assert masks[0].shape == (8, 9) and p.shape == (8, 9, 2)
    np.testing.assert_array_equal(masks[0], p.argmax(axis=2))
    assert (masks[0] == np.asarray(Image.open(folder / "masks" / "0.png"))).mean() > 0.9


def test_functions_of_oracles(call, folder, tmp_path):
    pytest.importorskip("lightgbm")
    options = ["--unary", "boosted_trees", "--pairwise", "linear", "--learner", "oracle_descent(n_rounds=4)"]
    options += ["--inference", "smoothed_lp(n_iter=25)", "--validation", "0.25", "--quiet", "-o", tmp_path / "m.bf"]
    code, _, err = call("fit", folder, *options)
    assert (code, err) == (0, "")
    code, out, _ = call("evaluate", tmp_path / "m.bf", folder, "--json")
    assert code == 0 and json.loads(out)["accuracy"] > 0.8
    code, _, err = call("fit", folder, "--unary", "boosted_trees", "--quiet", "-o", tmp_path / "n.bf")
    assert code == 2 and "it needs learner='oracle_descent'" in err


def test_the_model_remembers_its_features(call, folder, model):
    crf = bf.load(model)
    assert crf.preprocessing_["edges"] == "difference" and len(crf.preprocessing_["thresholds"]["difference"]) == 10
    assert crf.layout_.factors[0].n_features == 10
    again = bf.load(model)
    again.save(model)
    assert bf.load(model).preprocessing_ == crf.preprocessing_


def test_scores_as_table_json_and_page(call, folder, model, tmp_path):
    code, out, err = call("evaluate", model, folder)
    assert (code, err) == (0, "")
    assert "accuracy" in out and "mean IoU" in out and "expected calibration error" in out
    code, out, _ = call("evaluate", model, folder, "--json", "--report", tmp_path / "r.html")
    scores = json.loads(out)
    assert scores["variables"] == 4 * 72 - 8 * 5 and scores["examples"] == 4
    assert scores["accuracy"] + scores["error"] == pytest.approx(1)
    assert {"mean_iou", "expected_calibration_error", "seconds", "confusion", "per_class"} <= set(scores)
    page = (tmp_path / "r.html").read_text()
    assert "P(1)" in page and "tree_reweighted" in page and "difference" in page


def test_two_models_side_by_side(call, folder, model, tmp_path):
    """The report of a test set with an inverted image shows that image first, and two models beside each other."""
    other, test = tmp_path / "o.bf", tmp_path / "test"
    assert call("fit", folder, *QUICK, "--pairwise", "zero", "-o", other)[0] == 0
    shutil.copytree(folder, test)
    last = sorted((test / "masks").iterdir())[-1]
    labels = np.asarray(Image.open(last))
    Image.fromarray(np.where(labels < 2, 1 - np.minimum(labels, 1), labels).astype(np.uint8)).save(last)
    code, out, err = call("evaluate", model, test, "--compare", other, "--report", tmp_path / "r.html")
    assert (code, err) == (0, "")
    assert "o.bf makes" in out and "mean of 4 examples" in out
    page = (tmp_path / "r.html").read_text()
    first = page.index("<article")
    assert page.index(f"<h3>{last.stem}") < page.index("<article", first + 1)
    assert "errors of o.bf" in page and "uncertainty of" in page
    found = json.loads(call("evaluate", model, test, "--compare", other, "--json")[1])
    assert found["compared"]["model"] == "o.bf"
    gap = found["compared"]["difference"]["mean"]
    # Equal numbers of labelled pixels would make this the difference of the errors; here they differ a little.
    assert abs(gap - (found["compared"]["error"] - found["error"])) < 0.1


def test_arrays_in_arrays_out(call, tmp_path):
    made = denoising(3, 12, sd=2.0)
    np.savez(tmp_path / "d.npz", images=made.features, masks=made.masks, horizontal=made.horizontal, vertical=made.vertical)
    code, out, err = call("fit", tmp_path / "d.npz", *QUICK, "--l2", "1e-4", "--decoder", "map", "-o", tmp_path / "m.bf")
    assert (code, err) == (0, "") and "432 labelled pixels" in out
    crf = bf.load(tmp_path / "m.bf")
    assert crf.l2 == 1e-4 and crf.preprocessing_ == {"format": "arrays", "features": "raw", "edges": "given"}
    assert call("predict", tmp_path / "m.bf", tmp_path / "d.npz", "-o", tmp_path / "p.npz", "--proba")[0] == 0
    found = np.load(tmp_path / "p.npz")
    assert found["masks"].shape == (3, 12, 12) and found["probabilities"].shape == (3, 12, 12, 2)
    assert call("evaluate", tmp_path / "m.bf", tmp_path / "d.npz")[0] == 0
    np.savez(tmp_path / "e.npz", images=made.features, masks=made.masks)
    code, _, err = call("evaluate", tmp_path / "m.bf", tmp_path / "e.npz")
    assert code == 2
    one_line(err, "horizontal and vertical")


def test_chains_in_arrays(call, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    np.savez(tmp_path / "c.npz", X=np.eye(3)[y] + 0.3 * rng.normal(size=(60, 3)), y=y, lengths=[20, 25, 15])
    assert call("fit", tmp_path / "c.npz", "--model", "chain", *QUICK, "-o", tmp_path / "m.bf")[0] == 0
    assert call("predict", tmp_path / "m.bf", tmp_path / "c.npz", "-o", tmp_path / "p.npz", "--proba")[0] == 0
    found = np.load(tmp_path / "p.npz")
    assert (found["y"] == y).mean() > 0.9 and found["lengths"].tolist() == [20, 25, 15]
    assert found["probabilities"].shape == (60, 3)
    assert json.loads(call("evaluate", tmp_path / "m.bf", tmp_path / "c.npz", "--json")[1])["accuracy"] > 0.9


def test_column_files(call, tmp_path):
    (tmp_path / "train.txt").write_text(SENTENCES)
    code, out, err = call("fit", tmp_path / "train.txt", "--model", "chain", *QUICK, "-o", tmp_path / "m.bf")
    assert (code, err) == (0, "") and "24 labelled tokens" in out
    crf = bf.load(tmp_path / "m.bf")
    assert crf.unary == "observed_linear" and crf.l2 == "auto"
    code, out, _ = call("evaluate", tmp_path / "m.bf", tmp_path / "train.txt", "--report", tmp_path / "r.html")
    assert code == 0 and "FB1: " in out and "Sentences" in (tmp_path / "r.html").read_text()
    (tmp_path / "new.txt").write_text("the DT\ndog NN\nsat VBD\n")
    assert call("predict", tmp_path / "m.bf", tmp_path / "new.txt", "-o", tmp_path / "out.txt")[0] == 0
    assert (tmp_path / "out.txt").read_text() == "the DT B-NP\ndog NN I-NP\nsat VBD O\n"
    assert call("predict", tmp_path / "m.bf", tmp_path / "train.txt", "-o", tmp_path / "out.txt", "--proba")[0] == 0
    assert re.match(r"the DT B-NP B-NP 0\.\d{4}\n", (tmp_path / "out.txt").read_text())


def test_specs_reach_the_estimator(call, folder, tmp_path):
    options = ["--loss", "surrogate_likelihood", "--inference", "mean_field(n_iter=3)", "--dtype", "float64", "--seed", "7"]
    code, _, err = call("fit", folder, *options, "--pairwise", "constant", "--labels", "3", *QUICK, "-o", tmp_path / "m.bf")
    assert code == 0
    one_line(err, "mean_field(n_iter=3) has not converged")  # three sweeps, and the gradient of convergence
    crf = bf.load(tmp_path / "m.bf")
    assert (crf.loss, crf.gradient, crf.dtype, crf.random_state) == ("surrogate_likelihood", None, "float64", 7)
    assert crf.classes_.tolist() == [0, 1, 2] and crf.pairwise == "constant"


@pytest.mark.parametrize("share", ["0.25", None])
def test_validation_by_share_or_by_data(call, folder, tmp_path, share):
    code, _, err = call("fit", folder, *QUICK, "--validation", share or folder, "-o", tmp_path / "m.bf")
    assert (code, err) == (0, "")
    assert all("validation" in row for row in bf.load(tmp_path / "m.bf").trace_)


# ---- bad input: one line, exit code 2 ----


def bad_folder(tmp_path, folder, what):
    masks = {"beyond": [(0, 1), (2, 1)], "hidden": [(255, 255)], "unseen": [(0, 1), (5, 1)]}
    if what in masks:
        return image_folder(tmp_path / "b", masks[what], shape=(8, 9))
    (tmp_path / "b").mkdir()
    path = image_folder(tmp_path / "b", shape=(8, 9))
    if what == "empty":
        for each in path.glob("images/*"):
            each.unlink()
    elif what == "alone":
        (path / "masks" / "0.png").unlink()
    elif what == "sizes":
        write_mask(path / "masks" / "0.png", np.zeros((3, 3), int))
    elif what == "unreadable":
        (path / "images" / "0.png").write_bytes(b"\x89PNG")
    return path


@pytest.mark.parametrize(
    ("what", "options", "word"),
    [
        ("empty", [], "is empty"),
        ("alone", [], "has no mask"),
        ("sizes", [], "sizes must agree"),
        ("beyond", ["--labels", "2"], "has the label 2"),
        ("unreadable", [], "cannot be read as an image"),
        ("hidden", [], "all labels are hidden"),
        ("fine", ["--model", "chain"], "--model grid"),
        ("fine", ["--features", "hog"], "rgb"),
        ("fine", ["--edges", "sobl"], "sobel"),
        ("fine", ["--inference", "tree_weighted"], "tree_reweighted"),
        ("fine", ["--loss", "univariate_logistc"], "univariate_logistic"),
        ("fine", ["--learner", "adam"], "lbfgs"),
        ("fine", ["--validation", "1.5"], "between 0 and 1"),
        ("fine", ["--validation", "0.1"], "nothing on one side"),
        ("fine", ["--validation", "nowhere"], "nowhere"),
        ("fine", ["-o", "no/such/folder/m.bf"], "no folder"),
        ("fine", ["-o", "."], "it is a folder"),
        ("fine", ["--checkpoint", "no/such/folder/c"], "cannot be written"),
        ("fine", ["--decoder", "max_marginl"], "max_marginal"),
        ("fine", ["--decoder", "map(solver='cut')"], "graph_cut"),
        ("fine", ["--l2=-1"], "a finite number >= 0"),
        ("fine", ["--l2", "nan"], "a finite number >= 0"),
        ("fine", ["--labels", "0"], "--labels"),
        ("fine", ["--n-jobs", "0"], "n_jobs must be"),
        ("fine", ["--seed=-1"], "random_state must be"),
        ("fine", ["--edges", "given"], "these data have none"),
        ("fine", ["--learner", "sgd(epochs=3, step_size=1e30)"], "reduce step_size"),
        ("fine", ["--verbose", "--learner", "sgd(epochs=3, step_size=1e30)"], "reduce step_size"),
    ],
)
def test_bad_folders_and_options(call, folder, tmp_path, what, options, word):
    data = bad_folder(tmp_path, folder, what)
    code, out, err = call("fit", data, *QUICK, "-o", tmp_path / "m.bf", *options)
    assert (code, out) == (2, "")
    one_line(err, word)
    assert not (tmp_path / "m.bf").exists()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"images": np.full((1, 3, 4), np.nan), "masks": np.eye(3, 4, dtype=int)[None]}, "nan"),
        (
            each("images", np.zeros((3, 4, 2)), np.zeros((2, 4, 3))) | each("masks", np.eye(3, 4) > 0, np.eye(2, 4) > 0),
            "3 features",
        ),
        ({"images": np.zeros((1, 3, 4)), "masks": np.full((1, 3, 4), -1)}, "hidden"),
        ({"images": np.full((1, 3, 4), 1e200), "masks": np.eye(3, 4, dtype=int)[None]}, "below 3e+38"),
        ({"images": np.zeros((1, 3, 4)), "masks": np.zeros((1, 3, 4))}, "must hold integers"),
        (each("X", np.zeros((3, 2)), np.zeros((2, 1))) | each("y", np.arange(3), np.arange(2)), "1 features"),
        ({"X": np.zeros((2, 3, 2)), "y": np.full((2, 3), -1)}, "hidden"),
    ],
)
def test_bad_arrays(call, tmp_path, content, word):
    np.savez(tmp_path / "d.npz", **content)
    code, _, err = call("fit", tmp_path / "d.npz", *QUICK, "-o", tmp_path / "m.bf")
    assert code == 2
    one_line(err, word)


def test_bad_models_and_classes(call, folder, model, tmp_path):
    unseen = bad_folder(tmp_path, folder, "unseen")
    (tmp_path / "text.txt").write_text(SENTENCES)
    (tmp_path / "damaged.bf").write_bytes(model.read_bytes()[:500])
    cases = [
        (["evaluate", model, unseen], ["label 5", "seen in training (0, 1)"]),
        (["evaluate", model, tmp_path / "text.txt"], ["sentences"]),
        (["evaluate", model, folder / "images"], ["no folder images/"]),
        (["evaluate", tmp_path / "none.bf", folder], ["none.bf"]),
        (["evaluate", tmp_path / "damaged.bf", folder], ["damaged"]),
        (["evaluate", model, folder, "--report", tmp_path / "no" / "page.html"], ["page.html", "there is no folder"]),
        (["pack", unseen, "-o", model, "--n-jobs", "1"], ["cannot pack into"]),
        (["predict", model, tmp_path / "nowhere", "-o", tmp_path / "o"], ["no such file or folder"]),
        (["predict", model, folder, "-o", tmp_path / "text.txt"], ["masks go into a folder"]),
        (["predict", model, folder, "-o", folder / "images"], ["another folder"]),
    ]
    for arguments, words in cases:
        code, out, err = call(*arguments)
        assert (code, out) == (2, ""), arguments
        one_line(err, *words)
    code, out, _ = call("evaluate", model, unseen, "--allow-unseen", "--json")
    scores = json.loads(out)
    assert code == 0 and [each["class"] for each in scores["per_class"]] == [0, 1, 5]
    assert scores["per_class"][2]["class_error"] == 1.0
    # In prediction, masks are not looked at.
    assert call("predict", model, unseen, "-o", tmp_path / "o")[0] == 0


# ---- interruptions ----


def test_an_interrupted_fit_can_go_on(call, folder, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole.bf", tmp_path / "m.bf"
    options = [folder, "--dtype", "float64", "--learner", "lbfgs(max_iter=9)", "--quiet", "-o"]
    assert call("fit", *options, whole)[0] == 0
    fit = bf.GridCRF.fit

    def stop(iteration, w, row):
        if iteration == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(bf.GridCRF, "fit", lambda self, *a, **k: fit(self, *a, **k | {"callbacks": [stop]}))
    code, text, err = call("fit", *options, out)
    assert (code, text) == (130, "")
    one_line(err, "m.bf.checkpoint holds the fit so far", "--resume")
    monkeypatch.undo()
    arguments = shlex.split(err.split("To resume: backfield ")[1])
    assert call(*arguments)[0] == 0
    np.testing.assert_allclose(bf.load(out).weights_, bf.load(whole).weights_, rtol=0, atol=1e-8)
    assert not (tmp_path / "m.bf.checkpoint").exists()


def test_resuming_without_a_checkpoint_says_so_and_starts_anew(call, folder, tmp_path):
    code, text, err = call("fit", folder, "--learner", "lbfgs(max_iter=1)", "--quiet", "--resume", "-o", tmp_path / "m.bf")
    assert code == 0 and (tmp_path / "m.bf").exists()
    one_line(err, "there is no checkpoint", "m.bf.checkpoint; starting from the beginning.")


@pytest.mark.parametrize(
    ("number", "own"),
    [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, True)],
    ids=["SIGINT with a checkpoint", "SIGTERM without", "SIGHUP with a checkpoint"],
)
def test_signals_end_a_fit_cleanly_and_say_how_to_go_on(folder, tmp_path, number, own):
    file = tmp_path / "c" if own else tmp_path / "m.bf.checkpoint"
    command = [sys.executable, "-m", "backfield.cli", "fit", folder, "--learner", "sgd(epochs=1000000)", "--quiet"]
    command += ["--inference", "tree_reweighted(n_iter=3)", "-o", tmp_path / "m.bf"]
    command += ["--checkpoint", file] if own else []
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while not file.exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    stopping, *rest = err.decode().splitlines(keepends=True)
    assert f"{'Ctrl-C' if number == signal.SIGINT else number.name} again" in stopping
    one_line("".join(rest), f"{file} holds the fit so far", "To resume: backfield fit", "--resume")
    assert not (tmp_path / "m.bf").exists()


def test_signals_that_are_switched_off_stay_so(call, folder, tmp_path):
    """As nohup does with SIGHUP."""
    seen = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        from backfield.cli._signals import as_interrupts, between_iterations

        with as_interrupts(), between_iterations(seen.append) as check:
            os.kill(os.getpid(), signal.SIGHUP)
            check()
        assert seen == [] and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_model_that_cannot_be_written_says_how_to_go_on(call, folder, tmp_path, monkeypatch):
    """The disk is full at the end: the finished fit is in the checkpoint, and resuming writes the model."""
    from backfield.estimators import model_file

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    arguments = ("fit", folder, "--learner", "lbfgs(max_iter=3)", "--quiet", "-o", tmp_path / "m.bf")
    with monkeypatch.context() as patch:
        patch.setattr(model_file, "write_bytes", full)
        code, _, err = call(*arguments)
    one_line(
        err, "No space left on device", "m.bf.checkpoint holds the finished fit", "To resume when there is room", "--resume"
    )
    assert code == 2 and not (tmp_path / "m.bf").exists()
    assert call(*arguments, "--resume")[0] == 0 and (tmp_path / "m.bf").exists()
    assert not (tmp_path / "m.bf.checkpoint").exists()


def test_masks_that_cannot_be_written_say_how_to_go_on(call, folder, model, tmp_path, monkeypatch):
    from backfield.data.formats import images

    replacing, written = images.replacing, []

    def full(path):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        return replacing(path)

    with monkeypatch.context() as patch:
        patch.setattr(images, "replacing", full)
        code, _, err = call("predict", model, folder, "-o", tmp_path / "out")
    one_line(err, "No space left on device", "1 of", "masks are in", "To resume: backfield predict", "--resume")
    assert code == 1
    assert call("predict", model, folder, "-o", tmp_path / "out", "--resume")[0] == 0


def test_outputs_never_replace_inputs(call, folder, model, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, 4, 5, 2))
    np.savez(tmp_path / "t.npz", images=X, masks=(X[..., 0] > 0).astype(int))
    before = (tmp_path / "t.npz").read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "t.npz")
    kept = model.read_bytes()
    for arguments in (
        ("fit", tmp_path / "t.npz", "-o", tmp_path / "t.npz"),
        ("fit", tmp_path / "t.npz", "-o", tmp_path / "link"),
        ("fit", tmp_path / "t.npz", "-o", tmp_path / "m.bf", "--checkpoint", tmp_path / "t.npz"),
        ("fit", folder, "-o", folder / "images" / "0.png"),
        ("evaluate", model, folder, "--report", model),
    ):
        code, _, err = call(*arguments)
        assert code == 2, arguments
        one_line(err, "it is an input of this command")
    assert (tmp_path / "t.npz").read_bytes() == before and model.read_bytes() == kept
    assert call("fit", tmp_path / "t.npz", *QUICK, "-o", tmp_path / "m.bf")[0] == 0
    code, _, err = call("predict", tmp_path / "m.bf", tmp_path / "t.npz", "-o", tmp_path / "t.npz")
    assert code == 2
    one_line(err, "it is an input of this command")
    assert (tmp_path / "t.npz").read_bytes() == before
