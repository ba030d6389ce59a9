"""What the page may ask for: state, images, strokes, layers, the next place, the export.

Answers with pictures are bytes: the length of a JSON header (4 bytes, little endian), the header, then (H, W) planes of the
box that it names. ``/layers`` answers when there is something newer than what the page has, or after some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import struct
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from backfield.errors import InputError
from backfield.labelling.export import Export
from backfield.labelling.files import Slice
from backfield.labelling.guard import TooLarge
from backfield.labelling.pictures import News, Progress
from backfield.labelling.session import Painted, Session
from backfield.labelling.strokes import Box, clipped
from backfield.labelling.thinking import Thinker
from backfield.limits import parse_json

#: Seconds after which a question for new layers is answered without any.
PATIENCE = 20.0
THUMBNAIL = 160
#: Files of the page, by name: nothing else is served from disk.
PAGE = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    **{
        f"{name}.js": "text/javascript; charset=utf-8"
        for name in ("app", "canvas", "dom", "files", "layers", "memory", "panels", "server", "slices", "strokes")
    },
}


class Desk:
    """The session, what thinks about it, and the requests waiting for updates."""

    def __init__(self, session: Session, thinker: Thinker, export: Export) -> None:
        self.session, self.thinker, self.export = session, thinker, export
        self.closing = False
        self._news: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        thinker.listen(self.announce)
        export.listen(self.announce)

    def announce(self) -> None:
        """Wake up who waits; may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    async def news(self, seconds: float) -> None:
        """Return at the next announcement, or after some seconds."""
        self._loop = asyncio.get_running_loop()
        if self._news is None:
            self._news = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def close(self) -> None:
        """Send everybody home."""
        self.closing = True
        self.announce()

    # ---- answers ----

    def state(self) -> dict[str, Any]:
        """Return labels, files and the images in them, and how far things are."""
        session = self.session
        labels = [{"name": label.name, "colour": label.colour} for label in session.labels]
        files, first = [], 0
        for file in session.files:
            files.append({"name": file.name, "first": first, "count": len(file)})
            first += len(file)
        images = [
            {"name": image.name, "width": image.shape[1], "height": image.shape[0], **self.thinker.image_state(number)}
            for number, image in enumerate(session.images)
        ]
        folder = str(session.folder.resolve())
        return {
            "labels": labels,
            "label_changes": session.label_changes,
            "files": files,
            "images": images,
            "problems": session.problems,
            "folder": folder,
            "status": self.thinker.status(),
            "export": self.export.state(),
        }

    def paint(self, image: int, content: Any) -> Response:
        """Do a stroke and answer with what it changed."""
        view = self._view(image, content.get("view") if isinstance(content, dict) else None)
        return self._painted(image, self.session.paint(image, content), view)

    def move(self, image: int, content: Any, forth: Callable[[int], Painted | None]) -> Response:
        """Undo or redo."""
        view = self._view(image, content.get("view") if isinstance(content, dict) else None)
        painted = forth(image)
        return Response(status_code=204) if painted is None else self._painted(image, painted, view)

    def _painted(self, image: int, painted: Painted, view: Box | None) -> Response:
        strokes = self.thinker.changed(image, painted.box, view)
        self.announce()
        return planes({"box": painted.box, "revision": painted.revision, "strokes": strokes}, [painted.labels])

    def change_labels(self, content: Any) -> Response:
        """Add a label, or give one another name or colour."""
        if not isinstance(content, dict) or not set(content) <= {"number", "name", "colour"}:
            raise InputError("labels are changed with number, name and colour.")
        if content.get("number") is None:
            self.session.add_label(content.get("name"), content.get("colour"))
        else:
            self.session.change_label(content["number"], content.get("name"), content.get("colour"))
        self.announce()
        return JSONResponse(self.state())

    def scribbles(self, image: int) -> Response:
        """Return the whole map of an image."""
        canvas = self.session.canvas(image)
        labels, revision = canvas.labels, canvas.revision
        return planes({"box": Box(0, 0, *labels.shape[::-1]), "revision": revision}, [labels])

    async def layers(self, image: int, after: int, seen: int, named: int, step: int, view: list[float] | None) -> Response:
        """Return what changed in the pictures of an image after a version, as soon as there is something.

        Returns also where the page has not heard of the last stroke (``seen``), change of labels (``named``) or step of the
        export.
        """
        box = self._view(image, view)
        await run_in_threadpool(self.thinker.look, image, box)
        self._loop = asyncio.get_running_loop()
        deadline = self._loop.time() + PATIENCE
        while not self.closing and self._loop.time() < deadline:
            news = self.thinker.news(image, after)
            if news is not None:
                return await run_in_threadpool(self._layers, image, news)
            now = self.session.canvas(image).revision, self.session.label_changes, self.export.state()["step"]
            if now != (seen, named, step):
                break
            await self.news(deadline - self._loop.time())
        return self._layers(image, News(after, Progress(), Box(0, 0, 0, 0), []))

    def _layers(self, image: int, news: News) -> Response:
        header = {"box": news.box, "version": news.version, **news.progress._asdict()}
        header |= {"revision": self.session.canvas(image).revision, "label_changes": self.session.label_changes}
        header["export"] = self.export.state()
        return planes(header | {"status": self.thinker.status()}, news.planes)

    def pixels(self, image: int) -> Response:
        """Return an image as a PNG: as arrays have it, whatever its file says about turning it."""
        return _png(self._image(image).pixels())

    def thumbnail(self, image: int) -> Response:
        """Return a small picture of an image."""
        from PIL import Image

        picture = Image.fromarray(self._image(image).pixels())
        picture.thumbnail((THUMBNAIL, THUMBNAIL))
        return _png(np.asarray(picture))

    def next_place(self, image: int) -> Response:
        """Return where to label next."""
        self._image(image)
        return JSONResponse(self.thinker.next_place(image))

    def start_export(self) -> Response:
        """Begin to write the model and all masks."""
        self.export.start()
        return JSONResponse(self.export.state(), status_code=202)

    def _image(self, image: int) -> Slice:
        return self.session.canvas(image).image

    def _view(self, image: int, view: Any) -> Box | None:
        """Return the part of an image that is seen; None where nobody says or it is odd."""
        shape = self._image(image).shape
        if view is None:
            return None
        if not (isinstance(view, list) and len(view) == 4 and all(type(v) in (int, float) and abs(v) < 1e6 for v in view)):
            raise InputError("a view is [x, y, width, height].")
        box = clipped(view[0], view[1], view[0] + view[2], view[1] + view[3], shape)
        return box if box.area else None


def planes(header: dict[str, Any], parts: list[np.ndarray]) -> Response:
    """Return an answer of planes of bytes."""
    text = json.dumps({**header, "planes": len(parts)}).encode()
    body = b"".join([struct.pack("<I", len(text)), text, *(np.ascontiguousarray(part).tobytes() for part in parts)])
    return Response(body, media_type="application/octet-stream")


def _png(pixels: np.ndarray) -> Response:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG", compress_level=1)
    return Response(file.getvalue(), media_type="image/png")


def make_app(desk: Desk) -> Starlette:
    """Return the application; a :class:`~backfield.labelling.guard.Guard` stands before it."""
    session = desk.session

    def posted(answer: Callable[[Request, Any], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                content = parse_json(await request.body() or b"null")
            except (ValueError, UnicodeDecodeError) as error:
                raise InputError("the body is not JSON.") from error
            return await run_in_threadpool(answer, request, content)

        return endpoint

    async def layers(request: Request) -> Response:
        view = request.query_params.get("view")
        numbers = None if view is None else [_number(text) for text in view.split(",")]
        names = ("after", "seen", "named", "step")
        after, seen, named, step = (int(_number(request.query_params.get(name, "0"))) for name in names)
        return await desk.layers(_image(request), after, seen, named, step, numbers)

    image = "/api/images/{image}"
    routes = [
        Route("/", lambda request: _page("index.html")),
        Route("/page/{name}", lambda request: _page(request.path_params["name"])),
        Route("/api/state", lambda request: JSONResponse(desk.state())),
        Route(f"{image}/pixels", lambda request: desk.pixels(_image(request))),
        Route(f"{image}/thumbnail", lambda request: desk.thumbnail(_image(request))),
        Route(f"{image}/scribbles", lambda request: desk.scribbles(_image(request))),
        Route(f"{image}/layers", layers),
        Route(f"{image}/next", lambda request: desk.next_place(_image(request))),
        Route(f"{image}/strokes", posted(lambda r, c: desk.paint(_image(r), c)), methods=["POST"]),
        Route(f"{image}/undo", posted(lambda r, c: desk.move(_image(r), c, session.undo)), methods=["POST"]),
        Route(f"{image}/redo", posted(lambda r, c: desk.move(_image(r), c, session.redo)), methods=["POST"]),
        Route("/api/labels", posted(lambda r, c: desk.change_labels(c)), methods=["POST"]),
        Route("/api/export", posted(lambda r, c: desk.start_export()), methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {InputError: _bad_input, TooLarge: _too_large, ClientDisconnect: _gone, OSError: _failed}
    return Starlette(routes=routes, exception_handlers=handlers)


def _image(request: Request) -> int:
    text = request.path_params["image"]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"an image is a number, received {text[:40]!r}.")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise InputError(f"a number is needed, received {text[:40]!r}.") from error
    if not abs(value) < 1e9:
        raise InputError(f"a number is needed, received {text[:40]!r}.")
    return value


def _page(name: str) -> Response:
    if name not in PAGE:
        return PlainTextResponse("No such page.", status_code=404)
    return Response((files("backfield.labelling") / "page" / name).read_bytes(), media_type=PAGE[name])


def _bad_input(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), status_code=400)


def _too_large(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), status_code=413)


def _failed(request: Request, error: Exception) -> Response:
    """A disk that is full must be seen on the page: the stroke was not saved."""
    return PlainTextResponse(f"Could not be saved: {error}.", status_code=507)


def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)
