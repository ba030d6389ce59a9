"""``python -m fuzz.kills``: fits of all learners, and labelling, are killed (SIGKILL) at random moments and go on.

A fit that was killed, perhaps more than once, and resumed must have the weights and the trace of one unbroken, to the bit.
A labelling session must have every stroke that it has acknowledged.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import backfield as bf
from fuzz.models import images

WOLFE = "frank_wolfe(epochs=12, tol=0, batch_size=3)"
TREE = {"inference": "tree_reweighted(n_iter=5)"}
FITS: dict[str, dict[str, Any]] = {
    "lbfgs": {"learner": "lbfgs(max_iter=40, tol=0)", **TREE},
    "lbfgs, chosen sweeps": {"learner": "lbfgs(max_iter=30, tol=0)"},
    "owlqn": {"learner": "owlqn(max_iter=40, tol=0, l1=0.001)", **TREE},
    "sgd": {"learner": "sgd(epochs=12, batch_size=2, average=True)", **TREE},
    "smd": {"learner": "smd(epochs=10, batch_size=4)", **TREE},
    "ascent": {"learner": "ascent(max_iter=60)", **TREE},
    "frank_wolfe": {"learner": WOLFE, "loss": "max_margin", "l2": 0.01},
    "perceptron": {"learner": "perceptron(epochs=12)", "loss": "max_margin(scale=0.0)", "l2": 0.0},
    "passive_aggressive": {"learner": "passive_aggressive(epochs=12)", "loss": "max_margin", "l2": 0.0},
    "oracle_descent": {"learner": "oracle_descent(n_rounds=8, tol=0)", "inference": "smoothed_lp(n_iter=5)"},
    "self_training": {"learner": f"self_training(learner={WOLFE!r})", "loss": "max_margin", "l2": 0.01, "start": "zero"},
    "stages": {"learner": "stages(['lbfgs(max_iter=9, tol=0)', 'sgd(epochs=5)'], losses=['mse', None])", **TREE},
    "restarts": {"learner": "restarts(learner='lbfgs(max_iter=6, tol=0)', n=3)", **TREE},
}


def data(name: str) -> tuple[Any, Any]:
    """Return the examples of a fit; where labels are filled in, some are hidden."""
    X, y = images(count=8)
    return X, [np.where((k % 3 > 0) | (name != "self_training"), mask, -1) for k, mask in enumerate(y)]


def fit(name: str, checkpoint: Path | None = None, resume: bool = False) -> tuple[bytes, Any]:
    """Return the weights and the trace without its times."""
    X, y = data(name)
    options: dict[str, Any] = {"checkpoint_seconds": 0.0, "checkpoint_iterations": 1}
    model = bf.GridCRF(**FITS[name]).fit(X, y, checkpoint=checkpoint, resume=resume, **options)
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in model.trace_]
    functions = [getattr(block.energy, "function", None) for block in model.layout_.unary + model.layout_.factors]
    arrays = [array.tobytes() for each in functions if each is not None for _, array in sorted(each.arrays().items())]
    return b"".join([model.weights_.tobytes(), *arrays]), repr(rows)


def in_child(function: Callable[[], Any], seconds: float | None = None) -> tuple[bool, Any]:
    """Run in a forked child, killed after some seconds; return whether it was, and else what it found."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        warnings.simplefilter("ignore")
        try:
            found = pickle.dumps(function())
        except BaseException as error:
            found = pickle.dumps(f"{type(error).__name__}: {error}")
        with os.fdopen(write, "wb") as pipe:
            pipe.write(found)
        os._exit(0)
    os.close(write)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status)
    return killed, None if killed else pickle.loads(answer)


class Tally:
    """What was killed, what of it had a checkpoint, and what came out differently."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()
        self.differences: list[str] = []

    def enough(self, kills: int, kept: int) -> bool:
        """Whether there were so many kills, and so many with a checkpoint."""
        return self.kills.total() >= kills and self.kept.total() >= kept


def attack_fit(name: str, whole: Any, seconds: float, rng: np.random.Generator, folder: Path, tally: Tally) -> None:
    """Kill a fit once to three times, then let it end, and compare."""
    path, times = folder / "fit.checkpoint", int(rng.integers(1, 4))
    for attempt in range(times):
        share = rng.uniform(0.0, 1.1 / times)
        killed, _ = in_child(lambda: fit(name, path, resume=attempt > 0), share * seconds)  # noqa: B023
        if not killed:
            break
        tally.kills[name] += 1
        tally.kept[name] += any(folder.glob("fit.checkpoint*"))
    _, found = in_child(lambda: fit(name, path, resume=True))
    if found != whole:
        tally.differences.append(f"{name}: {found if isinstance(found, str) else 'other weights or another trace'}")


def paint(folder: Path, write: int) -> None:
    """Paint strokes without end, and acknowledge each."""
    from backfield.labelling import Session

    session = Session(folder, ["ground", "disc"])
    for k in range(10**6):
        session.paint(k % 2, {"kind": "brush", "label": k % 2, "size": 3, "points": [[2 + k % 20, 2 + k % 15]]})
        os.write(write, b".")


def attack_label(rng: np.random.Generator, folder: Path, tally: Tally) -> None:
    """Kill a labelling session; its maps must be those of the acknowledged strokes, or of one more."""
    from PIL import Image

    from backfield.labelling import Session
    from backfield.labelling.strokes import Stroke

    (folder / "images").mkdir()
    for k in range(2):
        pixels = np.random.default_rng(k).integers(0, 255, (24, 30, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{k}.png")
    read, write = os.pipe()
    killed, _ = in_child(lambda: paint(folder, write), rng.uniform(0.0, 0.6))
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        count = len(pipe.read())
    tally.kills["label"] += killed
    tally.kept["label"] += (folder / "masks").exists()
    session = Session(folder, ["ground", "disc"])
    found = [session.canvas(k).labels for k in range(2)]
    session.close()
    maps = [np.full((24, 30), 255, np.uint8) for _ in range(2)]
    wanted = []
    for k in range(count + 1):
        if k == count:
            wanted.append([each.copy() for each in maps])
        content = {"kind": "brush", "label": k % 2, "size": 3, "points": [[2 + k % 20, 2 + k % 15]]}
        box, after = Stroke.parse(content, 2).change(maps[k % 2])
        maps[k % 2][box.slices] = after
    wanted.append(maps)
    if not any(all(np.array_equal(a, b) for a, b in zip(found, each, strict=True)) for each in wanted):
        tally.differences.append(f"label: not the maps of {count} acknowledged strokes")


def main() -> int:
    """Kill until there were enough; exit code 1 if something came out differently."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kept", type=int, default=120, help="of these with a checkpoint on disk")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    wholes = {}
    for name in FITS:
        wholes[name] = fit(name)
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            fit(name, Path(folder) / "c")
        wholes[name] = (wholes[name], time.monotonic() - start)
        print(f"{name}: {wholes[name][1]:.2f} s", flush=True)
    tally, turn = Tally(), 0
    while not tally.enough(arguments.kills, arguments.kept):
        rng = np.random.default_rng([arguments.seed, turn])
        name = [*FITS, "label"][turn % (len(FITS) + 1)]
        with tempfile.TemporaryDirectory() as folder:
            if name == "label":
                attack_label(rng, Path(folder), tally)
            else:
                attack_fit(name, *wholes[name], rng, Path(folder), tally)
        turn += 1
    for name in [*FITS, "label"]:
        print(f"{name}: {tally.kills[name]} kills, {tally.kept[name]} with a checkpoint on disk")
    for difference in tally.differences:
        print(difference)
    total, kept = tally.kills.total(), tally.kept.total()
    print(f"{total} kills, {kept} with a checkpoint on disk: {len(tally.differences)} differences")
    return int(bool(tally.differences))


if __name__ == "__main__":
    sys.exit(main())
