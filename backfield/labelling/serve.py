"""Runs the server: one session, on 127.0.0.1, until somebody ends it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backfield.errors import InputError
from backfield.labelling.export import Export
from backfield.labelling.field import Field
from backfield.labelling.session import Session
from backfield.labelling.thinking import Thinker

HOST = "127.0.0.1"


def check_packages() -> None:
    """Say in one sentence what is missing."""
    try:
        import PIL  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError(f"backfield label needs {error.name}: pip install 'backfield[label]'.") from error


class Served:
    """A session on a port, with its token.

    Parameters
    ----------
    session : what is labelled
    port : 0 for any that is free
    model : Path, optional
        An exported model to start from.
    framed : whether notebooks on this machine may show the page in a frame
    """

    def __init__(self, session: Session, port: int = 0, model: Path | None = None, framed: bool = False) -> None:
        from backfield.labelling.guard import NOBODY, NOTEBOOKS, Guard
        from backfield.labelling.server import Desk, make_app

        self.session = session
        prior = None if model is None else Field.load(model, len(session.labels))
        self.socket = _listen(port)
        self.port = int(self.socket.getsockname()[1])
        self.token = secrets.token_urlsafe(24)
        self.thinker = Thinker(session, prior, warm=True)
        self.export = Export(session, model)
        self.desk = Desk(session, self.thinker, self.export)
        self.app = Guard(make_app(self.desk), self.token, self.port, NOTEBOOKS if framed else NOBODY)
        self.server: Any = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Serve until Ctrl-C or :meth:`stop`."""
        import uvicorn

        desk = self.desk

        class Server(uvicorn.Server):
            async def startup(self, sockets: Any = None) -> None:
                await super().startup(sockets)
                started()

            async def shutdown(self, sockets: Any = None) -> None:
                desk.close()  # waiting requests would hold up the server
                await super().shutdown(sockets)

        config = uvicorn.Config(
            self.app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            limit_concurrency=200,
            server_header=False,
            ws="none",
        )
        self.server = Server(config)
        try:
            self.server.run(sockets=[self.socket])
        finally:
            self.close()

    def stop(self) -> None:
        """Make :meth:`run` return; may be called from any thread."""
        if self.server is not None:
            self.server.should_exit = True

    def close(self) -> None:
        """End what runs beside the server."""
        self.export.close()
        self.thinker.close()
        self.session.close()
        self.socket.close()


def _listen(port: int) -> socket.socket:
    """Return a socket on 127.0.0.1."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise InputError(f"port {port} cannot be used: {error.strerror}; choose another --port, or 0 for any.") from error
    return made
