"""A folder of small pictures, and the server on it."""

import threading

import numpy as np
import pytest

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


#: One stroke on the ground and one on the disc.
GROUND = {"kind": "brush", "label": 0, "size": 7, "points": [[6, 6], [80, 8]]}
DISC = {"kind": "brush", "label": 1, "size": 7, "points": [[38, 36], [52, 36]]}


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "data")


@pytest.fixture
def served(folder):
    """A server in a thread."""
    pytest.importorskip("starlette", reason="needs the extra label")
    pytest.importorskip("uvicorn", reason="needs the extra label")
    from backfield.labelling import Session
    from backfield.labelling.serve import Served

    made, up = Served(Session(folder, ["ground", "disc"])), threading.Event()
    thread = threading.Thread(target=made.run, args=[up.set], daemon=True)
    thread.start()
    assert up.wait(120)
    yield made
    made.stop()
    thread.join(120)
    assert not thread.is_alive()
