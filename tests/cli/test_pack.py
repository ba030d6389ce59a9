"""backfield pack, and packed folders for fit, predict and evaluate."""

import json
import os
import subprocess

import numpy as np
import pytest
from PIL import Image

import backfield as bf
from backfield.data.kinds import ImageFolder
from tests.cli import test_cli
from tests.data.files.test_data import image_folder

QUICK = ["--learner", "lbfgs(max_iter=8)", "--quiet"]
SENTENCES = "the DT B-NP\ncat NN I-NP\nsat VBD O\n\na DT B-NP\ndog NN I-NP\nran VBD O\n\n" * 4


def one_line(text):
    test_cli.one_line(text)
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return image_folder(tmp_path_factory.mktemp("data") / "a", [(0, 1), (1, 0), (1, 255), (0, 1)], shape=(8, 9))


def test_a_packed_folder_in_the_place_of_images(call, folder, tmp_path):
    packed, model, plain = tmp_path / "packed", tmp_path / "m.bf", tmp_path / "plain.bf"
    options = ["--edges", "difference", "--shard-mb", 0.01, "--n-jobs", 1, "--quiet"]
    code, out, err = call("pack", folder, "-o", packed, *options)
    assert (code, err) == (0, "") and "4 images in 4 shards" in out
    assert call("fit", packed, *QUICK, "-o", model)[0] == 0
    assert call("fit", folder, "--edges", "difference", *QUICK, "-o", plain)[0] == 0
    assert bf.load(model).weights_.tobytes() == bf.load(plain).weights_.tobytes()
    assert bf.load(model).preprocessing_ == bf.load(plain).preprocessing_
    scores = [json.loads(call("evaluate", model, data, "--json")[1]) for data in (packed, folder)]
    assert scores[0]["accuracy"] == scores[1]["accuracy"]
    assert call("predict", model, packed, "-o", tmp_path / "out")[0] == 0
    assert np.asarray(Image.open(tmp_path / "out" / "2.png")).shape == (8, 9)
    assert call("pack", folder, "-o", packed, *options)[0] == 0  # there is nothing left to do


def test_new_data_are_packed_like_the_model(call, folder, tmp_path):
    packed, other = tmp_path / "packed", tmp_path / "other"
    call("pack", folder, "-o", packed, "--edges", "difference", "--n-jobs", 1, "--quiet")
    call("fit", packed, *QUICK, "-o", tmp_path / "m.bf")
    assert call("pack", folder, "-o", other, "--like", tmp_path / "m.bf", "--no-labels", "--n-jobs", 1, "--quiet")[0] == 0
    assert bf.open_shards(other).preprocessing == bf.open_shards(packed).preprocessing
    assert call("predict", tmp_path / "m.bf", other, "-o", tmp_path / "out")[0] == 0
    rgb = tmp_path / "rgb"
    call("pack", folder, "-o", rgb, "--n-jobs", 1, "--quiet")
    for arguments, words in (
        (("predict", tmp_path / "m.bf", rgb, "-o", tmp_path / "out"), "packed with other features than the model's"),
        (("evaluate", tmp_path / "m.bf", other), "was packed without labels"),
        (("fit", packed, "--features", "rgb", "-o", tmp_path / "n.bf"), "were made by pack"),
        (("pack", packed, "-o", tmp_path / "twice"), "is packed already"),
        (("pack", folder, "-o", packed, "--features", "l13", "--quiet"), "is a pack of other data or other features"),
        (("pack", folder, "-o", folder), "is the input"),
    ):
        code, _, err = call(*arguments)
        assert code == 2 and words in one_line(err)


def test_predictions_are_written_as_they_come_and_gone_on_with(call, folder, tmp_path, monkeypatch):
    model, out = tmp_path / "m.bf", tmp_path / "out"
    assert call("fit", folder, *QUICK, "-o", model)[0] == 0
    assert call("predict", model, folder, "-o", tmp_path / "whole", "--proba")[0] == 0
    real, written = ImageFolder.write_masks, []

    def interrupted(self, files, *rest):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(files)
        real(self, files, *rest)

    monkeypatch.setattr(ImageFolder, "write_masks", interrupted)
    code, _, err = call("predict", model, folder, "-o", out, "--proba")
    assert code == 130 and "2 of 4 masks are in" in one_line(err) and "--resume" in err
    monkeypatch.undo()
    before = (out / "0.png").stat().st_mtime_ns
    code, text, _ = call("predict", model, folder, "-o", out, "--proba", "--resume")
    assert code == 0 and "4 images (2 were there)" in text and (out / "0.png").stat().st_mtime_ns == before
    for path in (tmp_path / "whole").iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in (tmp_path / "whole").iterdir())
    (out / ".predicting.json").write_text("{}")
    code, _, err = call("predict", model, folder, "-o", out, "--resume")
    assert code == 2 and "from another model or other data" in one_line(err)


def test_column_files(call, tmp_path):
    (tmp_path / "train.txt").write_text(SENTENCES)
    assert call("pack", tmp_path / "train.txt", "-o", tmp_path / "packed", "--n-jobs", 1, "--quiet")[0] == 0
    assert call("fit", tmp_path / "packed", *QUICK, "-o", tmp_path / "m.bf")[0] == 0
    assert json.loads(call("evaluate", tmp_path / "m.bf", tmp_path / "packed", "--json")[1])["accuracy"] == 1.0
    assert json.loads(call("evaluate", tmp_path / "m.bf", tmp_path / "train.txt", "--json")[1])["accuracy"] == 1.0


def test_a_half_written_folder_and_a_damaged_shard(call, folder, tmp_path):
    packed = tmp_path / "packed"
    call("pack", folder, "-o", packed, "--shard-mb", 0.001, "--n-jobs", 1, "--quiet")
    shard = packed / "shard-00001.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    bf.data.packed.reader._READERS.clear()
    code, _, err = call("fit", packed, *QUICK, "-o", tmp_path / "m.bf")
    assert code == 2 and "shard-00001.safetensors is damaged" in one_line(err) and not (tmp_path / "m.bf").exists()
    (packed / "index.json").unlink()
    shard.unlink()
    code, _, err = call("fit", packed, *QUICK, "-o", tmp_path / "m.bf")
    assert code == 2 and "half written: 3 of 4 shards" in one_line(err)


def test_a_disk_that_fills_up(call, folder, tmp_path):
    """On a real file system of 64 kB, where one can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("no right to mount a small file system")
    try:
        big = image_folder(tmp_path / "big", [(0, 1)] * 6, shape=(40, 40))
        code, _, err = call("pack", big, "-o", disk / "p", "--shard-mb", 0.02, "--n-jobs", 1, "--quiet")
        line = one_line(err)
        assert code == 1 and "No space left on device; finished shards are kept" in line and "shard-0000" in line
        assert not [name for name in os.listdir(disk / "p") if name.startswith(".")]
        code, _, err = call("fit", disk / "p", *QUICK, "-o", tmp_path / "m.bf")
        assert code == 2 and "half written" in one_line(err)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_tiles_write_the_same_masks(call, folder, tmp_path):
    model = tmp_path / "m.bf"
    quick = [*QUICK, "--inference", "tree_reweighted(n_iter=1)"]
    assert call("fit", folder, *quick, "-o", model)[0] == 0
    assert call("predict", model, folder, "-o", tmp_path / "whole", "--proba")[0] == 0
    assert call("predict", model, folder, "-o", tmp_path / "tiles", "--proba", "--tile", 4)[0] == 0
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "tiles" / path.name).read_bytes() == path.read_bytes()
    code, _, err = call("predict", model, folder, "-o", tmp_path / "small", "--tile", 2)
    assert code == 2 and "smaller than the halo of 3 pixels" in one_line(err)
