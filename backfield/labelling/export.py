"""What a session leaves behind: ``model.bf``, and masks and probabilities of the whole folder in ``predictions/``.

The model is fitted from the scribbles alone, from the start and with more effort than while somebody waits;
:func:`backfield.labelling.learn` gives the same one, and ``backfield predict`` the same masks.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfield.atomic import replacing
from backfield.data.formats import write_mask
from backfield.errors import InputError
from backfield.labelling.field import Features, Field, features_of, pieces
from backfield.labelling.folder import ImageFile, open_folder
from backfield.labelling.learning import THOROUGH, Learner, Rows, Stop, Stopped
from backfield.labelling.material import Material, collect
from backfield.labelling.session import Session
from backfield.labelling.strokes import HIDDEN, Box

MODEL, PREDICTIONS = "model.bf", "predictions"


def learn_folder(folder: Path) -> Any:
    """Return the model of the scribbles in a folder, as a :class:`backfield.GridCRF`."""
    images = open_folder(folder)
    maps = [image.labels() for image in images]
    n_labels = max(int(labels[labels != HIDDEN].max(initial=0)) + 1 for labels in maps)
    field = fit(images, list(enumerate(maps)), None, lambda: False)
    return field.estimator(max(n_labels, 2))


def fit(images: Sequence[ImageFile], maps: Sequence[tuple[int, np.ndarray]], prior: Field | None, stop: Stop) -> Field:
    """Return the field of all scribbles."""
    material: list[Material] = []
    for number, labels in maps:
        if stop():
            raise Stopped
        if (labels != HIDDEN).any():
            material.append(collect(features_of(images[number].pixels()), labels, 0))
    known = set().union(*(set(each.labels.tolist()) for each in material)) if material else set()
    if len(known) < 2:
        raise InputError("nothing to learn from: paint strokes of two labels at least.")
    return Learner(prior).refine(Rows.of(material), material, THOROUGH, stop)[0]


def marginals(field: Field, features: Features, n_labels: int) -> np.ndarray:
    """Return the marginals (H, W, labels) of an image, as ``backfield predict`` computes them: nothing is observed."""
    height, width = features.shape
    labels = np.full((height, width), HIDDEN, np.uint8)
    out = np.zeros((height, width, n_labels), np.float32)
    for box in pieces(Box(0, 0, width, height)):
        rows, columns = box.slices
        out[rows, columns][..., field.known] = field.beliefs(features, box, labels).field
    return out


class Export:
    """Writes model, masks and probabilities in a thread; asked again, it does so again."""

    def __init__(self, session: Session, prior: Field | None = None) -> None:
        self.session, self.prior = session, prior
        self._thread: threading.Thread | None = None
        self._closing = False
        self._state: dict[str, Any] = {"stage": "idle", "done": 0, "total": 0, "text": "", "lines": ""}

    def state(self) -> dict[str, Any]:
        """Return how far it is."""
        return dict(self._state)

    def start(self) -> None:
        """Begin, unless it runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._say("running", 0, "fitting the model")
        self._thread = threading.Thread(target=self._run, name="export", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        try:
            self._write()
        except Stopped:
            self._say("failed", 0, "ended with the session")
        except Exception as error:  # whatever it is, the page must hear that it ended
            self._say("failed", 0, str(error) or type(error).__name__)

    def _say(self, stage: str, done: int, text: str, lines: str = "") -> None:
        self._state = {"stage": stage, "done": done, "total": 1 + len(self.session.images), "text": text, "lines": lines}

    def _write(self) -> None:
        session = self.session
        n_labels, maps = session.snapshot()
        field = fit(session.images, [(k, labels) for k, (labels, _) in maps.items()], self.prior, lambda: self._closing)
        field.estimator(n_labels).save(session.folder / MODEL)
        out = session.folder / PREDICTIONS
        out.mkdir(exist_ok=True)
        for number, image in enumerate(session.images):
            if self._closing:
                raise Stopped
            self._say("running", 1 + number, f"predicting {image.name}")
            p = marginals(field, features_of(image.pixels()), n_labels)
            with replacing(out / f"{image.name}.npy") as file:
                np.save(file, p)
            write_mask(out / f"{image.name}.png", p.argmax(axis=2))
        text = f"wrote {session.folder / MODEL} and masks and probabilities of {len(session.images)} images in {out}"
        self._say("done", 1 + len(session.images), text, commands(session.folder))


def commands(folder: Path) -> str:
    """Return the lines that do the same from the shell and in Python."""
    import shlex

    model, out = (shlex.quote(str(folder / name)) for name in (MODEL, PREDICTIONS))
    return (
        f"backfield predict {model} {shlex.quote(str(folder))} -o {out} --proba\n\n"
        f"from backfield.labelling import learn\n"
        f"crf = learn({str(folder)!r})\n"
        f"crf.save({str(folder / MODEL)!r})\n"
    )
