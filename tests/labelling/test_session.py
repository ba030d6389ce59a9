"""Strokes, undo, labels, and what is on disk after each."""

import json
import os
import random
import signal
from itertools import pairwise

import numpy as np
import pytest

from backfield.data.formats import read_image_folder
from backfield.errors import InputError
from backfield.labelling import Session, learn
from backfield.labelling.strokes import HIDDEN, Stroke
from tests.labelling.conftest import DISC, GROUND, SHAPE, Image, kill_while_painting, replayed, write_folder


@pytest.fixture
def session(folder):
    made = Session(folder, ["ground", "disc"])
    yield made
    made.close()


def on_disk(session, image=0):
    return np.asarray(Image.open(session.images[image].mask))


def test_a_brush_labels_pixels_whose_centres_are_near_its_line():
    labels = np.full((20, 30), HIDDEN, np.uint8)
    points = np.array([[3.2, 4.1], [20.7, 12.9], [25.0, 2.0]])
    box, after = Stroke("brush", 3, 5.0, points).change(labels)
    labels[box.slices] = after
    y, x = np.mgrid[:20, :30] + 0.5
    near = np.zeros((20, 30), bool)
    for a, b in pairwise(points):
        for t in np.linspace(0, 1, 4001):
            cx, cy = a + t * (b - a)
            near |= (x - cx) ** 2 + (y - cy) ** 2 <= 2.5**2
    assert (near == (labels == 3)).mean() > 0.998  # points on the rim depend on where the line is sampled


def test_a_fill_stays_within_pixels_of_one_value():
    labels = np.full((8, 10), HIDDEN, np.uint8)
    labels[:, 4] = 1
    box, after = Stroke("fill", 2, 1.0, np.array([[1.5, 1.5]])).change(labels)
    labels[box.slices] = after
    assert (labels[:, :4] == 2).all() and (labels[:, 4] == 1).all() and (labels[:, 5:] == HIDDEN).all()


def test_every_stroke_is_on_disk_when_paint_returns(session):
    painted = session.paint(0, GROUND)
    assert painted.revision == 1 and (on_disk(session) == 0).sum() > 300
    session.paint(0, {**GROUND, "kind": "erase"})
    assert (on_disk(session) == HIDDEN).all()
    assert session.undo(0) is not None and (on_disk(session) == 0).sum() > 300
    assert session.undo(0) is not None and session.undo(0) is None
    assert (on_disk(session) == HIDDEN).all()
    assert session.redo(0) is not None and (on_disk(session) == 0).sum() > 300


def test_undo_forgets_what_was_undone_when_somebody_paints(session):
    session.paint(0, GROUND)
    session.undo(0)
    session.paint(0, DISC)
    assert session.redo(0) is None


def test_a_stroke_that_changes_nothing_is_no_change(session):
    session.paint(0, GROUND)
    assert session.paint(0, GROUND).revision == 1
    session.paint(0, {**GROUND, "points": [[-900, -900]]})
    assert session.undo(0) is not None and session.undo(0) is None


def test_the_folder_is_a_training_folder(session, folder):
    session.paint(1, DISC)
    read = read_image_folder(folder)
    assert [mask.shape for mask in read.masks] == [SHAPE] * 3
    assert set(np.unique(read.masks[1])) == {-1, 1} and set(np.unique(read.masks[0])) == {-1}


def test_images_may_lie_in_the_folder_itself(tmp_path):
    folder = write_folder(tmp_path, inner=".")
    session = Session(folder)
    session.paint(0, DISC)
    session.close()
    assert len(read_image_folder(folder).names) == 3


def test_a_session_opens_again_as_it_was(folder):
    first = Session(folder, ["ground", "disc"])
    first.paint(0, GROUND)
    first.add_label("rim", "#123456")
    first.change_label(0, name="soil")
    first.close()
    again = Session(folder)
    assert [label.name for label in again.labels] == ["soil", "disc", "rim"] and again.labels[2].colour == "#123456"
    assert (again.canvas(0).labels == 0).sum() > 300
    again.close()
    with pytest.raises(InputError, match="may only add others"):
        Session(folder, ["other", "names"])


def test_labels_that_masks_hold_are_there(folder):
    (folder / "masks").mkdir()
    mask = np.full(SHAPE, HIDDEN, np.uint8)
    mask[0, 0] = 4
    Image.fromarray(mask).save(folder / "masks" / "disc-0.png")
    session = Session(folder, ["a", "b"])
    assert [label.name for label in session.labels] == ["a", "b", "class 2", "class 3", "class 4"]
    session.close()


def test_a_second_server_is_refused(session, folder):
    pytest.importorskip("fcntl")
    with pytest.raises(InputError, match="another backfield label runs"):
        Session(folder)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {**GROUND, "kind": "spray"},
        {**GROUND, "label": 2},
        {**GROUND, "label": -1},
        {**GROUND, "label": True},
        {**GROUND, "label": "0"},
        {**GROUND, "size": 0},
        {**GROUND, "size": 1e9},
        {**GROUND, "size": float("nan")},
        {**GROUND, "points": []},
        {**GROUND, "points": [[1, 2, 3]]},
        {**GROUND, "points": [["1", 2]]},
        {**GROUND, "points": [[float("inf"), 2]]},
        {**GROUND, "points": [[1, 1]] * 20_001},
    ],
)
def test_odd_strokes_are_refused(session, content):
    with pytest.raises(InputError):
        session.paint(0, content)
    assert session.canvas(0).revision == 0


@pytest.mark.parametrize("name", ["", " ", "disc", "x" * 61, None, 3, "a\x00b"])
def test_odd_names_are_refused(session, name):
    with pytest.raises(InputError):
        session.add_label(name)


def test_a_disk_that_fails_leaves_the_map_as_it_was(session, monkeypatch):
    session.paint(0, GROUND)
    before = session.canvas(0).labels

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        session.paint(0, DISC)
    with pytest.raises(OSError, match="No space"):
        session.undo(0)
    monkeypatch.undo()
    assert (session.canvas(0).labels == before).all() and (on_disk(session) == before).all()
    assert session.undo(0) is not None  # it can still be taken back


@pytest.mark.parametrize("what", ["no folder", "no images", "damaged", "json"])
def test_bad_folders_are_refused(tmp_path, what):
    folder = tmp_path / "data"
    if what != "no folder":
        folder.mkdir()
    if what == "damaged":
        (folder / "a.png").write_bytes(b"not a picture")
    if what == "json":
        write_folder(folder)
        (folder / "labels.json").write_text("[1]")
    with pytest.raises(InputError):
        Session(folder)


def test_a_damaged_image_is_named_and_the_others_open(folder):
    (folder / "images" / "disc-1.png").write_bytes(b"not a picture")
    session = Session(folder, ["ground", "disc"])
    assert [file.name for file in session.files] == ["disc-0", "disc-2"] and "disc-1.png" in session.problems[0]
    session.paint(0, GROUND)
    session.paint(1, DISC)
    session.close()
    with pytest.warns(UserWarning, match=r"disc-1\.png"):
        learn(folder)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no kill -9")
def test_kill_9_loses_no_acknowledged_stroke(tmp_path):
    for run in range(3):
        folder = write_folder(tmp_path / str(run))
        count = kill_while_painting(folder, random.Random(run).uniform(0.01, 0.25))
        session = Session(folder)
        found = [session.canvas(k).labels for k in range(3)]
        session.close()
        # The stroke after the last acknowledged one may be there or not.
        candidates = [replayed(count), replayed(count + 1)]
        assert any(all((a == b).all() for a, b in zip(found, each, strict=True)) for each in candidates)
        assert not list((folder / "masks").glob(".*.png.*"))
        json.loads((folder / "labels.json").read_text())
