"""Requests to ``backfield label`` from a page that lies: odd paths, queries, headers and bodies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backfield.errors import InputError
from fuzz.models import Case
from fuzz.mutations import mutate_bytes, mutate_json

BODIES: list[Any] = [
    {"kind": "brush", "label": 0, "size": 5, "points": [[3, 4], [9, 12.5]], "view": [0, 0, 30, 24]},
    {"kind": "erase", "label": 1, "size": 300, "points": [[3, 4]]},
    {"kind": "fill", "label": 1, "size": 1, "points": [[3, 4], [20, 20]]},
    {"number": 1, "name": "new", "colour": "#aabbcc"},
    {"name": "third"},
    {"view": [1, 2, 3, 4]},
    {},
]
QUERIES = ["", "after=0&seen=0", "after=1", "view=0,0,9,9", "view=-5,1e5,nan,2", "after=-1&seen=1e8", "after=", "view=,",
           "token=x&after=5", "%00=%ff", "seen=1&view=9,9,-9,-9"]  # fmt: skip
PLACES = ["0", "1", "2", "-1", "x", "", "999999999", "1e1", "%30", "\x00", "..", "0/..", "٣"]
ENDS = ["pixels", "thumbnail", "scribbles", "layers", "next", "strokes", "undo", "redo", "", "x"]


@dataclass
class LabelRequests:
    """A few requests in a row: no answer of 500 or more, and no exception."""

    name: str = "label_requests"

    def prepare(self, folder: Path) -> None:
        from PIL import Image

        import backfield.labelling.server as server

        server.PATIENCE = 0.05  # nobody waits for news here
        self.source = folder / "data"
        (self.source / "images").mkdir(parents=True)
        for k in range(2):
            pixels = np.random.default_rng(k).integers(0, 255, (24, 30, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(self.source / "images" / f"{k}.png")

    def case(self, rng: np.random.Generator, folder: Path) -> Case:
        import shutil

        shutil.copytree(self.source, folder / "data")
        requests = [_request(rng) for _ in range(8)]
        (folder / "requests.txt").write_text("\n".join(map(repr, requests)))
        return lambda: _talk(folder / "data", requests)


def _request(rng: np.random.Generator) -> tuple[str, str, bytes, bytes]:
    """Return a method, a path, a query and a body."""
    path = f"/api/images/{rng.choice(PLACES)}/{rng.choice(ENDS)}"
    if rng.random() < 0.25:
        path = str(
            rng.choice(["/api/labels", "/api/state", "/api/export", "/page/app.js", "/page/../server.py", "/", "/api/"])
        )
    content = BODIES[int(rng.integers(len(BODIES)))]
    body = json.dumps(mutate_json(rng, content) if rng.random() < 0.7 else content).encode()
    body = mutate_bytes(rng, body) if rng.random() < 0.3 else body
    method = "POST" if path.endswith(("strokes", "undo", "redo", "labels", "export")) else "GET"
    method = str(rng.choice(["GET", "POST", "PUT", "HEAD", "x"])) if rng.random() < 0.1 else method
    return method, path, str(rng.choice(QUERIES)).encode(), body


def _talk(folder: Path, requests: list[tuple[str, str, bytes, bytes]]) -> None:
    from backfield.labelling import Session
    from backfield.labelling.serve import Served

    served = Served(Session(folder, ["ground", "disc"]))
    try:
        answers = [asyncio.run(_ask(served, *request)) for request in requests]
    finally:
        served.close()
    bad = [(request, answer) for request, answer in zip(requests, answers, strict=True) if answer >= 500]
    if bad:
        raise RuntimeError(f"answered {bad[0]}")
    if max(answers) >= 400:
        raise InputError(f"answered {max(answers)}")


async def _ask(served: Any, method: str, path: str, query: bytes, body: bytes) -> int:
    """Return the status of an answer."""
    headers = [(b"host", f"127.0.0.1:{served.port}".encode()), (b"x-token", served.token.encode()),
               (b"content-length", str(len(body)).encode())]  # fmt: skip
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query,
             "headers": headers, "scheme": "http", "server": ("127.0.0.1", served.port), "client": ("127.0.0.1", 1),
             "root_path": "", "http_version": "1.1", "asgi": {"version": "3.0"}}  # fmt: skip
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await asyncio.sleep(3600)

    async def send(message: Any) -> None:
        sent.append(message)

    await served.app(scope, receive, send)
    return int(sent[0]["status"])
