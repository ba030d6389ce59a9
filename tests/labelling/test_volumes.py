"""Volumes: every slice is an image, labels lie in one zarr array per volume, and the folder is one for fit."""

import random
import signal
import time
import zlib

import numpy as np
import pytest

import backfield as bf
from backfield.cli.app import run
from backfield.data.formats.stacks import Stack, read_mask
from backfield.labelling import Session, learn
from backfield.labelling.strokes import HIDDEN
from backfield.labelling.thinking import Thinker
from backfield.structures.reading import read_data
from tests.labelling.conftest import (
    DISC,
    GROUND,
    SHAPE,
    ball,
    kill_while_painting,
    replayed,
    write_folder,
    write_volumes,
)
from tests.labelling.test_server import httpx, new_layers, planes, wait_for_export

tifffile = pytest.importorskip("tifffile", reason="needs the extra volumes")
nibabel = pytest.importorskip("nibabel", reason="needs the extra volumes")
pytest.importorskip("zarr", reason="needs the extra volumes")


@pytest.fixture
def volumes(tmp_path):
    return write_volumes(tmp_path / "volumes")


def on_disk(session, file=0):
    file = session.files[file]
    return read_mask(file.mask, Stack(file.path, 3))


@pytest.mark.parametrize("ending", [".tif", ".nii.gz", ".nii", ".zarr"])
def test_strokes_are_on_disk_as_labels_of_the_volume(tmp_path, ending):
    session = Session(write_volumes(tmp_path / "data", ending=ending), ["ground", "disc"])
    assert len(session.files) == 2 and len(session.images) == 18 and session.images[3].shape == SHAPE
    assert session.images[3].name == "ball-0[3]" and not session.problems
    np.testing.assert_array_equal(session.images[4].pixels()[..., 0], ball(0)[0][4])
    session.paint(3, GROUND)
    session.paint(5, DISC)
    session.paint(12, DISC)  # of the second volume
    found = on_disk(session)
    assert found.shape == Stack(session.files[0].path, 3).shape
    found = found.transpose(2, 1, 0) if ending.startswith(".nii") else found
    assert set(np.unique(found[3])) == {-1, 0} and set(np.unique(found[5])) == {-1, 1}
    assert (found[3] == np.where(session.canvas(3).labels == HIDDEN, -1, 0)).all()
    assert {k for k in range(9) if (found[k] >= 0).any()} == {3, 5}
    session.undo(5)
    assert (on_disk(session) == 1).sum() == 0 and session.redo(5) is not None
    before = on_disk(session)
    session.close()
    again = Session(session.folder)
    assert (
        (on_disk(again) == before).all() and (again.canvas(5).labels == 1).any() and again.snapshot()[1].keys() == {3, 5, 12}
    )
    again.close()


def test_a_stroke_writes_a_slice_and_not_the_volume(volumes):
    session = Session(volumes)
    session.paint(3, GROUND)
    files = {path.name for path in session.images[3].mask.iterdir()}
    assert files == {".zarray", "3.0.0"}
    session.close()


def test_the_folder_is_a_training_folder_for_volumes(volumes, tmp_path):
    session = Session(volumes)
    for k in (2, 4):
        session.paint(k, GROUND)
        session.paint(k + 9, DISC)
    session.close()
    data = read_data(volumes)
    assert data.structure.startswith("volume") and [set(np.unique(each)) for each in data.labels] == [{-1, 0}, {-1, 1}]
    fit = ["fit", str(volumes), "-o", str(tmp_path / "m.bf"), "--features", "raw", "--inference", "mean_field(n_iter=2)"]
    assert run([*fit, "--learner", "lbfgs(max_iter=3)", "--quiet"]) == 0
    assert isinstance(bf.load(tmp_path / "m.bf"), bf.VolumeCRF)


@pytest.mark.parametrize("ending", [".tif", ".zarr"])
def test_labels_that_were_there_are_taken_over(volumes, ending):
    masks = volumes / "masks"
    masks.mkdir()
    given = np.full((9, *SHAPE), HIDDEN, np.uint8)
    given[2, 10:20] = 3
    expected = np.where(given == HIDDEN, -1, given.astype(int))
    if ending == ".tif":
        tifffile.imwrite(masks / "ball-0.tif", given)
    else:
        import zarr

        zarr.open_array(str(masks / "ball-0.zarr"), mode="w", shape=given.shape, chunks=(4, 32, 32), dtype="u1")[...] = given
    for _ in range(2):
        session = Session(volumes)
        assert len(session.labels) == 4 and (on_disk(session) == expected).all()
        session.close()
        assert {path.name for path in masks.iterdir()} == {"ball-0.zarr", "ball-1.zarr", f"ball-0{ending}.before"}
    # Killed before the copy had its name.
    (masks / "ball-0.zarr").rename(masks / ".ball-0.zarr.0123abcd")
    session = Session(volumes)
    assert (on_disk(session) == expected).all() and not list(masks.glob(".*"))
    session.close()
    # Killed before it was complete; and labels twice.
    (masks / ".ball-0.zarr.0123abcd").mkdir()
    tifffile.imwrite(masks / "ball-1.tif", given)
    session = Session(volumes)
    assert (on_disk(session) == expected).all() and not list(masks.glob(".*"))
    assert len(session.files) == 1 and "same stem" in session.problems[0]
    session.close()


def damaged(folder, what):
    image, masks = folder / "images" / "ball-0.tif", folder / "masks"
    masks.mkdir()
    if what == "short":
        image.write_bytes(image.read_bytes()[:5000])
    elif what == "noise":
        image.write_bytes(b"II*\0" + bytes(range(256)) * 40)
    elif what == "nifti":
        image.unlink()
        (folder / "images" / "ball-0.nii.gz").write_bytes(b"\x1f\x8b" + bytes(500))
    elif what == "shape":
        tifffile.imwrite(masks / "ball-0.tif", np.zeros((8, *SHAPE), np.uint8))
    elif what == "class":
        tifffile.imwrite(masks / "ball-0.tif", np.full((9, *SHAPE), 99, np.uint8))
    elif what == "flat":
        tifffile.imwrite(image, np.zeros(SHAPE, np.uint8))
    elif what == "chunk":
        Session(folder).close()
        (masks / "ball-0.zarr" / "3.0.0").write_bytes(zlib.compress(bytes(7)))


@pytest.mark.parametrize("what", ["short", "noise", "nifti", "shape", "class", "flat", "chunk"])
def test_a_damaged_volume_is_one_sentence_and_the_others_open(volumes, what):
    damaged(volumes, what)
    session = Session(volumes)
    assert [file.name for file in session.files] == ["ball-1"] and len(session.images) == 9
    (problem,) = session.problems
    assert "ball-0" in problem and "\n" not in problem and problem.endswith(".")
    session.paint(0, GROUND)
    session.close()
    (volumes / "images" / "ball-1.tif").unlink()
    with pytest.raises(bf.InputError, match="ball-0"):
        Session(volumes)


def test_pictures_and_volumes_need_a_folder_each(volumes):
    write_folder(volumes, count=1)
    with pytest.raises(bf.InputError, match="a folder each"):
        Session(volumes)


def test_slices_that_were_only_looked_at_are_not_learned_from(volumes):
    """Features of a slice take longer than a stroke may."""
    session = Session(volumes, ["ground", "disc"])
    thinker = Thinker(session)
    try:
        for k in range(18):
            session.canvas(k)
        for stroke in (GROUND, DISC):
            thinker.changed(4, session.paint(4, stroke).box, None)
        assert thinker.wait() and thinker.status()["painted"].keys() == {4}
    finally:
        thinker.close()
        session.close()


def test_a_slice_that_cannot_be_read_is_not_asked_about(volumes, monkeypatch):
    session = Session(volumes, ["ground", "disc"])
    real = session.files[0].pixels

    def pixels(number):
        if number == 7:
            raise bf.InputError("slice 7 is damaged.")
        return real(number)

    monkeypatch.setattr(session.files[0], "pixels", pixels)
    monkeypatch.setattr("backfield.labelling.thinking.QUIET", 0.01)
    thinker = Thinker(session)
    try:
        for stroke in (GROUND, DISC):
            thinker.changed(4, session.paint(4, stroke).box, None)
        end = time.monotonic() + 60
        while len(thinker._places) < 17 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(thinker._places) == 17 and 7 not in thinker._places
        assert all(thinker.next_place(4)["image"] != 7 for _ in range(30))
    finally:
        thinker.close()
        session.close()


@pytest.fixture
def client(served):
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}", headers={"X-Token": served.token}, timeout=120) as made:
        yield made


@pytest.fixture
def folder(volumes):
    """What the server of conftest serves."""
    return volumes


def test_layers_of_a_slice_and_an_export_that_predict_repeats(client, served, tmp_path):
    state = client.get("/api/state").json()
    assert [(file["name"], file["first"], file["count"]) for file in state["files"]] == [("ball-0", 0, 9), ("ball-1", 9, 9)]
    assert len(state["images"]) == 18 and state["problems"] == []
    assert client.get("/api/images/4/pixels").headers["content-type"] == "image/png"
    for image, stroke in ((4, GROUND), (4, DISC), (13, DISC)):
        planes(client.post(f"/api/images/{image}/strokes", json=stroke))
    _, parts = new_layers(client, 5, seen=0)  # a slice that nobody has painted
    assert parts.shape == (5, *SHAPE) and (parts[0] == ball(0)[1][5]).mean() > 0.9
    assert 0 <= client.get("/api/images/5/next").json()["image"] < 18
    for _ in range(2):  # a second export takes the place of the first
        client.post("/api/export")
        state = wait_for_export(client)
        assert state["stage"] == "done" and state["total"] == 19 == state["done"], state
    folder, out = served.session.folder, tmp_path / "out"
    assert run(["predict", str(folder / "model.bf"), str(folder), "-o", str(out), "--proba"]) == 0
    for k in range(2):
        mine, theirs = (Stack(d / f"ball-{k}.tif", 3)[...] for d in (folder / "predictions", out))
        assert mine.shape == (9, *SHAPE) and (mine == theirs).mean() > 0.999
        assert (mine == ball(k)[1]).mean() > 0.9
        p, q = (Stack(d / f"ball-{k}.proba.tif", 3)[...] for d in (folder / "predictions", out))
        assert p.shape == (9, *SHAPE, 2) and np.abs(p - q).max() < 1e-4
    learn(folder).save(tmp_path / "again.bf")
    assert (bf.load(tmp_path / "again.bf").weights_ == bf.load(folder / "model.bf").weights_).all()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no kill -9")
def test_kill_9_loses_no_acknowledged_stroke(tmp_path):
    for trial in range(3):
        folder = write_volumes(tmp_path / str(trial))
        count = kill_while_painting(folder, random.Random(trial).uniform(0.01, 0.25), 4)
        session = Session(folder)
        found = [session.canvas(k).labels for k in range(4)]
        on_disk(session)
        session.close()
        # The stroke after the last acknowledged one may be there or not.
        candidates = [replayed(count, 4), replayed(count + 1, 4)]
        assert any(all((a == b).all() for a, b in zip(found, each, strict=True)) for each in candidates)
        assert not [path for path in (folder / "masks").rglob(".*") if path.name != ".zarray"]
