"""Who may talk to the server: this machine, this page, with the token; and how much they may send.

A page of another site can send requests to 127.0.0.1, and its own host name can be made to lead there (DNS rebinding). So a
request must name this host, must not come from another origin, and must carry the token, which only the URL that was printed
holds. Files of the page itself are no secret and need no token.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Bytes that a request may send: a stroke of 20000 points has fewer.
MAX_BODY = 2**20
#: Paths below which the token is needed.
PRIVATE = "/api/"
_POLICY = "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; base-uri 'none'; frame-ancestors "
#: Pages that may show this one in a frame: none, or notebooks on this machine.
NOBODY, NOTEBOOKS = "'none'", "http://127.0.0.1:* http://localhost:*"
#: Sent with every answer, beside the policy.
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class TooLarge(Exception):
    """A request sends more than it may; the application answers so."""

    def __str__(self) -> str:
        return f"Requests are limited to {MAX_BODY} bytes."


@dataclass(frozen=True)
class Guard:
    """Lets through to ``app`` what comes from the page of this server; ``frames``: who may show it in a frame."""

    app: App
    token: str
    port: int
    frames: str = NOBODY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        reason = self.refusal(scope)
        if reason is not None:
            await _answer(send, *reason, self._headers)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *self._headers]}
            await send(message)

        await self.app(scope, _limited(receive), with_headers)

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"content-security-policy", (_POLICY + self.frames).encode()), *_HEADERS]

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return status and reason of a refusal; None where a request may pass."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        hosts = [f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")]
        if headers.get("host") not in hosts:
            return 403, "This server answers to 127.0.0.1 only."
        origin = headers.get("origin")
        if origin is not None and origin not in [f"http://{host}" for host in hosts]:
            return 403, "Requests of other sites are refused."
        private = scope["path"].startswith(PRIVATE)
        # A link on another site may open the page: without the token in it, it can do nothing.
        if (private or scope["method"] != "GET") and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "Requests of other sites are refused."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > MAX_BODY:
            return 413, str(TooLarge())
        if private and not self._knows(headers, scope):
            return 401, "The token is missing or wrong; open the address that backfield label has printed."
        return None

    def _knows(self, headers: dict[str, str], scope: Scope) -> bool:
        given = headers.get("x-token") or _query_token(scope.get("query_string", b""))
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def _query_token(query: bytes) -> str:
    try:
        return parse_qs(query[:4096].decode("latin-1"), max_num_fields=20).get("token", [""])[0]
    except ValueError:
        return ""


def _limited(receive: Receive) -> Receive:
    """Return a ``receive`` that stops where a body becomes too long, whatever its header says."""
    total = 0

    async def limited() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY:
            raise TooLarge
        return message

    return limited


async def _answer(send: Send, status: int, text: str, more: list[tuple[bytes, bytes]]) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
