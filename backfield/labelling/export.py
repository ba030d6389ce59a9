"""What a session leaves behind: ``model.bf``, and masks and probabilities of the whole folder in ``predictions/``.

The model is fitted from the scribbles alone, from the start and with more effort than while somebody waits;
:func:`backfield.labelling.learn` gives the same one, and ``backfield predict`` the same masks.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.labelling.field import Features, Field, features_of, pieces
from backfield.labelling.files import Paintable, Slice
from backfield.labelling.folder import open_folder
from backfield.labelling.labels import read_labels
from backfield.labelling.learning import THOROUGH, Learner, Rows, Stop, Stopped
from backfield.labelling.material import Material, collect
from backfield.labelling.session import LABELS, Session
from backfield.labelling.strokes import HIDDEN, Box

MODEL, PREDICTIONS = "model.bf", "predictions"


def learn_folder(folder: Path, model: Path | None = None) -> Any:
    """Return the model of the scribbles in a folder, as a :class:`backfield.GridCRF`; ``model`` is one to start from."""
    opened = open_folder(folder)
    for problem in opened.problems:
        warnings.warn(problem, stacklevel=3)
    n_labels = max(2, len(read_labels(folder / LABELS) or []), opened.n_labels)
    prior = None if model is None else Field.load(model, n_labels)
    return fit(opened.images, opened.painted, prior, lambda: False).estimator(n_labels)


def fit(images: Sequence[Slice], maps: Mapping[int, np.ndarray], prior: Field | None, stop: Stop) -> Field:
    """Return the field of all scribbles: maps of labels by the numbers of their images."""
    material: list[Material] = []
    for number, labels in maps.items():
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

    def __init__(self, session: Session, model: Path | None = None) -> None:
        self.session, self.model = session, model
        self._thread: threading.Thread | None = None
        self._closing = False
        self._listener: Callable[[], None] = lambda: None
        self._state: dict[str, Any] = {"step": 0, "stage": "idle", "done": 0, "total": 0, "text": "", "lines": ""}

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function after every step."""
        self._listener = listener

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
        step, total = self._state["step"] + 1, 1 + len(self.session.images)
        self._state = {"step": step, "stage": stage, "done": done, "total": total, "text": text, "lines": lines}
        self._listener()

    def _write(self) -> None:
        session = self.session
        n_labels, maps = session.snapshot()
        prior = None if self.model is None else Field.load(self.model, n_labels)
        painted = {number: labels for number, (labels, _) in maps.items()}
        field = fit(session.images, painted, prior, lambda: self._closing)
        field.estimator(n_labels).save(session.folder / MODEL)
        out = session.folder / PREDICTIONS
        out.mkdir(exist_ok=True)
        done, problems = 1, []
        for file in session.files:
            try:
                self._predict(file, field, n_labels, done)
            except InputError as error:
                problems.append(str(error))
            done += len(file)
        count = len(session.files) - len(problems)
        text = f"wrote {session.folder / MODEL} and masks and probabilities of {count} files in {out}"
        self._say("done", done, "; ".join([text, *problems]), commands(session.folder, self.model))

    def _predict(self, file: Paintable, field: Field, n_labels: int, done: int) -> None:
        """Write masks and probabilities of a file; ``done`` steps were done before."""
        write = file.predictions(self.session.folder / PREDICTIONS)
        for number in range(len(file)):
            if self._closing:
                raise Stopped
            self._say("running", done + number, f"predicting {Slice(file, number).name}")
            write(number, marginals(field, features_of(file.pixels(number)), n_labels))


def commands(folder: Path, start: Path | None = None) -> str:
    """Return the lines that do the same from the shell and in Python."""
    import shlex

    given = ", ".join([repr(str(folder)), *([] if start is None else [f"model={str(start)!r}"])])
    model, out = (shlex.quote(str(folder / name)) for name in (MODEL, PREDICTIONS))
    return (
        f"backfield predict {model} {shlex.quote(str(folder))} -o {out} --proba\n\n"
        f"from backfield.labelling import learn\n"
        f"crf = learn({given})\n"
        f"crf.save({str(folder / MODEL)!r})\n"
    )
