"""Commands replace files of their own kind only, and no input; --force says that others may go."""

import numpy as np
import pytest

import backfield as bf
from backfield.file_kinds import kind_of
from tests.cli import test_cli

QUICK = ["--learner", "lbfgs(max_iter=2)", "--quiet"]
UAI = "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n"
SENTENCES = "the D\ndog N\n\na D\ncat N\n\nthe D\ncat N\n\na D\ndog N\n"


@pytest.fixture
def files(tmp_path):
    """Data, a model, and files that somebody needs."""
    X = np.random.default_rng(0).normal(size=(6, 4, 5, 2))
    np.savez(tmp_path / "data.npz", images=X, masks=(X[..., 0] > 0).astype(int))
    (tmp_path / "m.uai").write_text(UAI)
    (tmp_path / "tags.txt").write_text(SENTENCES)
    bf.ChainCRF(learner="lbfgs(max_iter=2)").fit([[{"a": 1.0}]] * 2, [["x"], ["y"]]).save(tmp_path / "chain.bf")
    return tmp_path


COMMANDS = {
    "fit": lambda f, out: ("fit", f / "data.npz", *QUICK, "-o", out),
    "fit --checkpoint": lambda f, out: ("fit", f / "data.npz", *QUICK, "-o", f / "new.bf", "--checkpoint", out),
    "predict": lambda f, out: ("predict", f / "grid.bf", f / "data.npz", "-o", out),
    "evaluate": lambda f, out: ("evaluate", f / "grid.bf", f / "data.npz", "--report", out),
    "infer": lambda f, out: ("infer", f / "m.uai", "-o", out),
    "convert": lambda f, out: ("convert", f / "chain.bf", out),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_of_another_kind_needs_force(call, files, name):
    assert call(*COMMANDS["fit"](files, files / "grid.bf"))[0] == 0
    out = files / ("kept.npz" if name == "predict" else "kept")
    out.write_text("what I must not forget")
    line = COMMANDS[name](files, out)
    code, _, err = call(*line)
    test_cli.one_line(err, "it holds text, which", "choose another place, or add --force")
    assert code == 2 and out.read_text() == "what I must not forget"
    assert sorted(path.name for path in files.iterdir() if path.name.startswith(".")) == []
    assert call(*line, "--force")[0] == 0
    assert kind_of(out) != "text"
    assert call(*line)[0] == 0  # the same kind again


@pytest.mark.parametrize("name", ["fit", "predict", "infer", "convert"])
def test_inputs_are_refused_with_force_too(call, files, name):
    assert call(*COMMANDS["fit"](files, files / "grid.bf"))[0] == 0
    source = {"fit": "data.npz", "predict": "data.npz", "infer": "m.uai", "convert": "chain.bf"}[name]
    before = (files / source).read_bytes()
    code, _, err = call(*COMMANDS[name](files, files / source), "--force")
    test_cli.one_line(err, "it is an input of this command")
    assert code == 2 and (files / source).read_bytes() == before


def test_a_checkpoint_does_not_replace_a_model(call, files):
    model = files / "chain.bf"
    before = model.read_bytes()
    code, _, err = call(*COMMANDS["fit --checkpoint"](files, model))
    test_cli.one_line(err, "it holds a model of backfield, which a checkpoint would replace")
    assert code == 2 and model.read_bytes() == before and not (files / "new.bf").exists()


def test_masks_do_not_replace_photographs(call, files):
    image = pytest.importorskip("PIL.Image")
    for kind, shape in (("images", (6, 7, 3)), ("masks", (6, 7)), ("photographs", (6, 7, 3))):
        (files / "data" / kind).mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, 2 if kind == "masks" else 255, shape).astype(np.uint8)
        image.fromarray(pixels).save(files / "data" / kind / "0.png")
    photographs = files / "data" / "photographs"
    before = (photographs / "0.png").read_bytes()
    assert call("fit", files / "data", *QUICK, "-o", files / "m.bf")[0] == 0
    data = files / "copy"
    (files / "data").rename(data)
    code, _, err = call("predict", files / "m.bf", data / "images", "-o", data / "photographs")
    test_cli.one_line(err, "it holds a PNG picture in colour, which a PNG mask would replace")
    assert code == 2 and (data / "photographs" / "0.png").read_bytes() == before


def test_pack_leaves_its_inputs_and_other_folders_alone(call, files):
    folder = files / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    code, _, err = call("pack", files / "data.npz", "-o", folder, "--quiet")
    test_cli.one_line(err, "is not empty and not a packed folder")
    assert code == 2 and [path.name for path in folder.iterdir()] == ["notes.txt"]
    code, _, err = call("pack", files / "data.npz", "-o", files / "data.npz", "--quiet")
    assert code == 2 and "is the input" in err
    assert call("pack", files / "data.npz", "-o", files / "packed", "--quiet", "--n-jobs", 1)[0] == 0
    before = {path.name: path.read_bytes() for path in (files / "packed").iterdir()}
    code, _, err = call("pack", files / "tags.txt", "-o", files / "packed", "--quiet", "--n-jobs", 1)
    test_cli.one_line(err, "is a pack of other data")
    assert code == 2 and {path.name: path.read_bytes() for path in (files / "packed").iterdir()} == before


def test_compare_writes_its_own_files_only(call, files):
    out = files / "out"
    out.mkdir()
    (out / "compare.json").write_text("my own notes")
    line = ("compare", files / "tags.txt", "--learning", "surrogate_likelihood", "--inference", "chain", "--out", out)
    code, _, err = call(*line)
    test_cli.one_line(err, "it holds text, which JSON would replace")
    assert code == 2 and (out / "compare.json").read_text() == "my own notes"
    assert call(*line, "--force")[0] == 0 and kind_of(out / "compare.json") == "JSON"
    (files / "compare.json").write_text(SENTENCES)
    code, _, err = call(*(str(each).replace("tags.txt", "compare.json") for each in line[:-1]), files)
    assert code == 2 and (files / "compare.json").read_text() == SENTENCES


def test_links_of_predictions_by_parts_are_followed(files):
    images = np.load(files / "data.npz")["images"]
    crf = bf.GridCRF(learner="lbfgs(max_iter=2)").fit(list(images), list((images[..., 0] > 0).astype(int)))
    (files / "link.npy").symlink_to(files / "there.npy")
    crf.predict([images[0]], tile=12, out=[files / "link.npy"])
    assert (files / "link.npy").is_symlink() and np.load(files / "there.npy").shape == (4, 5)
    (files / "device.npy").symlink_to("/dev/null")
    with pytest.raises(bf.InputError, match=r"is no \.npy"):
        crf.predict([images[0]], tile=12, out=[files / "device.npy"])


def test_kinds(tmp_path):
    for content, words in {
        b"": "an empty file",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\10\2": "a PNG picture in colour",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\10\3": "a PNG mask",
        b"\n <!DOCTYPE html>": "an HTML page",
        b"MAR\n2": "marginals (.uai)",
        b"MARKOV\n2": "a model (.uai)",
        "grün".encode(): "text",
        b"\xff\xfe\0": "other data",
    }.items():
        (tmp_path / "file").write_bytes(content)
        assert kind_of(tmp_path / "file") == words
