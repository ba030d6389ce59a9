"""One thread that turns scribbles into pictures, always of the latest strokes, and of what is looked at first.

    stroke -> classifier (warm) -> picture of the part that is seen, then of the rest -> field's numbers -> picture again

A stroke, or a look at another image, ends what is out of date, between two pieces of a picture and two steps of the fit.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from backfield.errors import InputError
from backfield.labelling.asking import Place, advice, anywhere, choose_image, uncertain_place
from backfield.labelling.field import Features, Field, features_of, pieces
from backfield.labelling.learning import QUICK, HeldOut, Learner, Rows, Stopped
from backfield.labelling.material import Material, collect
from backfield.labelling.pictures import ENTROPY, Gallery, News, Picture, Progress
from backfield.labelling.practice import practise
from backfield.labelling.session import Session
from backfield.labelling.strokes import Box
from backfield.labelling.view import first_seen, in_order

#: Bytes of features that are kept in memory.
ROOM = 2**30
#: Seconds in which nobody does anything, after which one other image is looked at: a stroke need not wait for it.
QUIET = 1.0
#: A picture is drawn again where the field's numbers moved by more, relative to their size.
_MOVED = 0.03


class FeatureStore:
    """Features of the images used last, within a limit of memory."""

    def __init__(self, session: Session, room: int = ROOM) -> None:
        self.session, self.room = session, room
        self._kept: OrderedDict[int, Features] = OrderedDict()

    def __getitem__(self, image: int) -> Features:
        if image not in self._kept:
            self._kept[image] = features_of(self.session.images[image].pixels())
            while len(self._kept) > 1 and sum(each.n_bytes for each in self._kept.values()) > self.room:
                self._kept.popitem(last=False)
        self._kept.move_to_end(image)
        return self._kept[image]

    def __contains__(self, image: int) -> bool:
        return image in self._kept


class Thinker:
    """Keeps a model of the scribbles and pictures of what it believes, in a background thread.

    Parameters
    ----------
    session : whose scribbles
    prior : Field, optional
        A model to start from.
    warm : bool
        Learn from noise first: kernels that are not compiled yet are then ready when somebody paints.
    """

    def __init__(self, session: Session, prior: Field | None = None, warm: bool = False) -> None:
        self.session = session
        self._cold = warm
        self.learner = Learner(prior)
        self.field: Field | None = prior
        self.features = FeatureStore(session)
        self._material: dict[int, Material] = {}
        self._pictures = Gallery()
        self._drawn: dict[int, int] = {}  # image -> number of the model that its picture is of
        self._places: dict[int, tuple[int, Place]] = {}  # image -> number of the model, place to ask about
        self._unreadable: set[int] = set()  # images of damaged files, which are not asked about
        self._held_out: HeldOut | None = None
        self._changes: list[float] = []
        self._seconds: float | None = None
        self._busy = ""
        self._problem = ""
        self._model = 0  # how often the field has changed
        self._strokes, self._learned = 1, 0  # how often somebody painted, and of which of these the model is
        self._refined = self._timed = 0
        self._since = time.perf_counter()  # of the last stroke
        self._focus: tuple[int, Box | None] | None = None
        self._listener: Callable[[], None] = lambda: None
        self._rng = np.random.default_rng(0)
        self._order = self._rng.permutation(len(session.images)).tolist()  # neighbours in a volume are alike
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="thinking", daemon=True)
        self._thread.start()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function after every change."""
        self._listener = listener

    # ---- what others say and ask ----

    def changed(self, image: int, box: Box, view: Box | None) -> int:
        """Somebody painted; return the number of the stroke."""
        with self._wake:
            self._strokes += 1
            self._since = time.perf_counter()
            self._focus = (image, first_seen(box, view, self.session.images[image].shape))
            self._wake.notify()
            return self._strokes

    def look(self, image: int, view: Box | None) -> None:
        """Somebody looks at an image."""
        with self._wake:
            if self._focus is None or self._focus[0] != image:
                self._focus = (image, view)
                self._wake.notify()

    def news(self, image: int, version: int) -> News | None:
        """Return what changed in the picture of an image after a version."""
        picture = self._pictures.get(image)
        return None if picture is None else picture.since(version)

    def image_state(self, image: int) -> dict[str, Any]:
        """Return how much of an image is painted."""
        material = self._material.get(image)
        return {"painted": 0.0 if material is None else material.painted}

    def status(self) -> dict[str, Any]:
        """Return how far things are."""
        groups = sum(each.n_groups for each in list(self._material.values()))
        known = 0 if self.field is None else len(self.field.known)
        error, spread = (None, None) if self._held_out is None else self._held_out[:2]
        return {
            "scribbles": groups,
            "error": error,
            "spread": spread,
            "changed": self._changes[-1] if self._changes else None,
            "seconds": self._seconds,
            "busy": self._busy,
            "advice": self._problem or advice(groups, known, error, spread, self._changes),
            "painted": {number: each.painted for number, each in list(self._material.items())},
        }

    def next_place(self, image: int) -> dict[str, Any]:
        """Return image, x and y of the place to label next, and why."""
        seen = self._places.keys() | self._material.keys() | self._unreadable
        unseen = [k for k in range(len(self.session.images)) if k not in seen]
        if self.field is None or (unseen and self._rng.random() < 0.15):
            chosen = int(self._rng.choice(unseen)) if unseen else image
            place = anywhere(self.session.images[chosen].shape, self._rng)
            return {"image": chosen, "x": place.x, "y": place.y, "reason": "An image that nobody has looked at yet."}
        places = {number: place for number, (_, place) in list(self._places.items())}
        picture = self._pictures.get(image)
        if picture is not None:
            places[image] = uncertain_place(picture.planes[ENTROPY], self.session.canvas(image).labels, self._rng)
        if not places:
            places[image] = anywhere(self.session.images[image].shape, self._rng)
        chosen = choose_image(places, self._rng)
        place = places[chosen]
        self._places.pop(chosen, None)  # another one is drawn next time
        return {
            "image": chosen,
            "x": place.x,
            "y": place.y,
            "reason": f"Uncertain here: entropy {place.entropy:.0%} of the largest possible.",
        }

    def close(self) -> None:
        """End the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=10)

    def wait(self, seconds: float = 60.0) -> bool:
        """Return when nothing is left to do for the image that is looked at; whether that was so in time."""
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            with self._wake:
                if self._task() is None:
                    return True
            time.sleep(0.01)
        return False

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closing and self._task() is None:
                    if not self._wake.wait(timeout=QUIET) and self._idle_image() is not None:
                        break
                if self._closing:
                    return
                task = self._task() or self._scan
            try:
                self._problem = ""
                task()
            except Stopped:
                pass
            except Exception as error:  # whatever it is, say it on the page and go on: strokes are safe
                self._problem = " ".join(str(error).split())[:300] or type(error).__name__
                self._learned = self._refined = self._strokes
                self._mark_drawn()
            finally:
                self._busy = ""
                self._listener()

    def _task(self) -> Callable[[], None] | None:
        """Return what is most urgent."""
        if self._cold:
            return self._warm_up
        if self._learned != self._strokes:
            return self._learn
        focus = self._focus
        if focus is not None and (self._drawn.get(focus[0]) != self._model or self._pictures.get(focus[0]) is None):
            return self._draw
        if self._refined != self._strokes and focus is not None and self.field is not None:
            return self._refine
        return None

    def _stop(self) -> bool:
        return self._closing or self._learned != self._strokes

    def _say(self, text: str) -> None:
        self._busy = text
        self._listener()

    def _warm_up(self) -> None:
        """Do once, for noise, what strokes of all labels ask for."""
        self._say("getting ready …")
        try:
            practise(len(self.session.labels), lambda: self._closing)
        finally:
            self._cold = False

    def _learn(self) -> None:
        """Fit the classifier to all scribbles."""
        strokes = self._strokes
        self._collect()
        material = self._used()
        known = set().union(*(set(each.labels.tolist()) for each in material))
        prior = self.learner.prior
        if len(known) > 1:
            self.field = self.learner.classify(Rows.of(material))
        elif prior is not None and len(known) == 0:
            self.field = prior
        else:
            self.field, self._held_out = None, None
        self._model += 1
        self._learned = strokes

    def _collect(self) -> None:
        """Bring the material of images that were painted since up to date."""
        _, maps = self.session.snapshot()
        for image, (labels, revision) in maps.items():
            before = self._material.get(image)
            if before is None or before.revision != revision:
                if image not in self.features:
                    self._say("looking at the image …")
                self._material[image] = collect(self.features[image], labels, revision)

    def _used(self) -> list[Material]:
        return [each for _, each in sorted(self._material.items()) if each.n_groups]

    def _draw(self) -> None:
        """Draw the picture of the image that is looked at: the part that is seen, then the rest."""
        assert self._focus is not None
        (image, view), model, field = self._focus, self._model, self.field
        shape = self.session.images[image].shape
        picture = self._pictures.open(image, shape)
        if field is None:
            picture.clear(self._learned)
            self._drawn[image] = model
            return
        if image not in self.features:
            self._say("looking at the image …")
        features = self.features[image]
        fresh, moved = picture.empty, 0
        first, rest = in_order(view, shape)
        for number, box in enumerate([*first, *rest], start=1):
            if self._closing or self._learned != self._strokes or self._focus[0] != image:
                raise Stopped
            beliefs = field.beliefs(features, box, self.session.canvas(image).labels)
            progress = Progress(self._learned, number >= len(first), number == len(first) + len(rest))
            moved += picture.put(box, beliefs, field.known, progress)
            self._listener()
        self._drawn[image] = model
        if self._timed != self._learned:  # the first picture of a stroke; later ones are of another image or of new numbers
            self._timed, self._seconds = self._learned, time.perf_counter() - self._since
            if not fresh:
                self._changes.append(moved / (shape[0] * shape[1]))
        self._places[image] = model, uncertain_place(picture.planes[ENTROPY], self.session.canvas(image).labels, self._rng)

    def _refine(self) -> None:
        """Fit the field's numbers; draw again only if they moved."""
        material, before = self._used(), self.field
        strokes = self._strokes
        if before is not None and material and len(before.known) > 1:
            rows = Rows.of(material)
            if len(rows.known) > 1:
                field, self._held_out = self.learner.refine(rows, material, QUICK, self._stop)
                if _distance(field, before) > _MOVED:
                    self.field = field
                    self._model += 1
        self._refined = strokes

    def _mark_drawn(self) -> None:
        if self._focus is not None:
            self._drawn[self._focus[0]] = self._model

    # ---- other images, while nothing else is to be done ----

    def _idle_image(self) -> int | None:
        """Return an image whose most uncertain place is not known, or known from a much older model only."""
        if self.field is None or self._problem:
            return None
        for image in self._order:
            old = image not in self._places or self._model - self._places[image][0] > 10
            if old and image not in self._unreadable:
                return image
        return None

    def _scan(self) -> None:
        """Find the most uncertain place of an image that nobody looks at."""
        image, field = self._idle_image(), self.field
        if image is None or field is None:
            return
        shape = self.session.images[image].shape
        try:
            features = self.features[image] if image in self.features else features_of(self.session.images[image].pixels())
        except InputError:  # who opens the image hears of it
            self._unreadable.add(image)
            return
        labels = self.session.canvas(image).labels
        picture = Picture(shape)
        for box in pieces(Box(0, 0, shape[1], shape[0])):
            if self._task() is not None or self._closing:
                raise Stopped
            picture.put(box, field.beliefs(features, box, labels), field.known)
        self._places[image] = self._model, uncertain_place(picture.planes[ENTROPY], labels, self._rng)


def _distance(field: Field, other: Field) -> float:
    mine, others = (np.array([each.scale, each.contrast, each.constant]) for each in (field, other))
    return float((np.abs(mine - others) / (0.2 + np.abs(others))).max())
