"""A folder of small pictures, and the server on it."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from backfield.labelling.strokes import HIDDEN, Stroke

Image = pytest.importorskip("PIL.Image", reason="labelling needs pillow (extra label)")
SHAPE = (72, 90)


def picture(number, shape=SHAPE):
    """A bright disc on a dark ground, both noisy, and where the disc is."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[: shape[0], : shape[1]]
    disc = (y - shape[0] / 2) ** 2 + (x - shape[1] / 2 - 4 * number) ** 2 < (min(shape) / 3.2) ** 2
    base = np.where(disc[..., None], [190, 150, 60], [60, 90, 120])
    return np.clip(base + rng.normal(0, 25, (*shape, 3)), 0, 255).astype(np.uint8), disc.astype(int)


def write_folder(folder, count=3, shape=SHAPE, inner="images"):
    (folder / inner).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.fromarray(picture(number, shape)[0]).save(folder / inner / f"disc-{number}.png")
    return folder


def ball(number, shape=(9, *SHAPE)):
    """A bright ball on a dark ground, both noisy, and where the ball is; it fills less of the first and last slices."""
    rng = np.random.default_rng(number)
    z, y, x = np.mgrid[: shape[0], : shape[1], : shape[2]]
    middle = [(n - 1) / 2 for n in shape]
    inside = ((z - middle[0]) * 4) ** 2 + (y - middle[1]) ** 2 + (x - middle[2] - 4 * number) ** 2 < (shape[1] / 3) ** 2
    return np.clip(np.where(inside, 160, 80) + rng.normal(0, 20, shape), 0, 255).astype(np.uint8), inside.astype(int)


def write_volumes(folder, count=2, ending=".tif"):
    """Volumes whose slices, as the page shows them, are those of :func:`ball`."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        values, path = ball(number)[0], folder / "images" / f"ball-{number}{ending}"
        if ending.startswith(".nii"):
            import nibabel

            nibabel.save(nibabel.Nifti1Image(values.transpose(2, 1, 0), np.eye(4)), path)
        elif ending == ".zarr":
            import zarr

            zarr.open_array(str(path), mode="w", shape=values.shape, chunks=(4, 64, 64), dtype="u1")[...] = values
        else:
            import tifffile

            tifffile.imwrite(path, values)
    return folder


#: One stroke on the ground and one on the disc.
GROUND = {"kind": "brush", "label": 0, "size": 7, "points": [[6, 6], [80, 8]]}
DISC = {"kind": "brush", "label": 1, "size": 7, "points": [[38, 36], [52, 36]]}


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "data")


@contextlib.contextmanager
def serving(folder):
    """A server in a thread."""
    pytest.importorskip("starlette", reason="needs the extra label")
    pytest.importorskip("uvicorn", reason="needs the extra label")
    from backfield.labelling import Session
    from backfield.labelling.serve import Served

    made, up = Served(Session(folder, ["ground", "disc"])), threading.Event()
    thread = threading.Thread(target=made.run, args=[up.set], daemon=True)
    thread.start()
    assert up.wait(120)
    try:
        yield made
    finally:
        made.stop()
        thread.join(120)
        assert not thread.is_alive()


@pytest.fixture
def served(folder):
    with serving(folder) as made:
        yield made


PAINTER = """
import sys
from backfield.labelling import Session
session, images = Session(sys.argv[1], ["ground", "disc"]), int(sys.argv[2])
print("ready", flush=True)
for k in range(100000):
    session.paint(k % images, {"kind": "brush", "label": k % 2, "size": 3, "points": [[2 + k % 80, 2 + k % 60]]})
    print(k, flush=True)
"""


def kill_while_painting(folder, seconds, n_images=3):
    """Kill -9 a process that paints; return how many strokes it had acknowledged."""
    command = [sys.executable, "-c", PAINTER, str(folder), str(n_images)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    acknowledged = process.stdout.read().splitlines()
    process.wait()
    return len(acknowledged)


def replayed(count, n_images=3):
    """What the maps hold after so many strokes."""
    maps = [np.full(SHAPE, HIDDEN, np.uint8) for _ in range(n_images)]
    for k in range(count):
        content = {"kind": "brush", "label": k % 2, "size": 3, "points": [[2 + k % 80, 2 + k % 60]]}
        box, after = Stroke.parse(content, 2).change(maps[k % n_images])
        maps[k % n_images][box.slices] = after
    return maps
