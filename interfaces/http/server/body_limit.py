"""Limits on request bodies. Django alone would write any body to disk and wait for it for minutes.

The whole body is read here before Django sees the request. Its bytes are counted as they arrive, whatever
Content-Length says, and all of them must arrive in time.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_core.text.formats import status_phrase
from interfaces.doors import API, DOORS, is_for_programs
from interfaces.http.client_address import site_of
from interfaces.http.errors.codes import PROBLEM, problem_body

LONGEST_BODY = 1024 * 1024  # bytes, of programs; some doors take more
ADMIN = "/admin/"
BODILESS = {"GET", "HEAD", "OPTIONS"}
PAGES = (
    *("/sessions/", "/turns/", "/questions/", "/executions/", "/agents/", "/automations/"),
    *("/enter/", "/sign-in/", "/sign-out/", "/account/"),
)
# by path prefix; other paths accept no body
LONGEST = (
    {API: LONGEST_BODY}
    | {f"/{door.prefix}": door.megabytes * LONGEST_BODY for door in DOORS.values()}
    | dict.fromkeys((ADMIN, *PAGES), 2 * LONGEST_BODY)
)
FORM = b"application/x-www-form-urlencoded"  # pages send nothing else, and parsing other types is expensive
BODY_SECONDS = 30.0  # until the whole body has arrived
MOST_HELD = 64 * LONGEST_BODY  # bytes of all bodies in the memory of a process
MOST_HELD_BY_ONE = MOST_HELD // 4  # of the requests of one address
DRAINED = 16 * LONGEST_BODY  # bytes read and dropped, so that a client that is still sending gets the answer
DRAIN_SECONDS = 2.0  # for a client that sends less than it announced
RETRY_AFTER = 2  # seconds

# key in the ASGI scope: a function that the application calls to release the body before a long response
RELEASE_BODY = "rondo.release_body"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class _Refused(Exception):
    """The request is answered here; the application does not see it."""

    status: int
    code: str
    text: str


class _Disconnected(Exception):
    """The client closed the connection."""


class LimitBody:
    """ASGI middleware: passes complete bodies on, or refuses the request."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._held = 0
        self._held_by: Counter[str] = Counter()  # by the network of the client

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer 408, 413, 415 or 503, or call the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()

        def release() -> None:
            self._subtract(len(body), _site(scope))
            body.clear()

        try:
            await self._read(body, scope, receive)
            await self._app(scope | {RELEASE_BODY: release}, _replay(body, receive), send)
        except _Refused as refused:
            await _refuse(refused, scope, send)
        except _Disconnected:
            pass
        finally:
            release()

    async def _read(self, body: bytearray, scope: Any, receive: Receive) -> None:
        longest, declared, site = _longest(scope), _declared(scope), _site(scope)
        if declared > longest and b"expect" in dict(scope["headers"]):
            raise _too_large(longest)  # the client waits for `100 Continue` before it sends the body
        more = True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more and len(body) <= longest >= declared:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Disconnected
                    self._append(body, message.get("body", b""), site)
                    more = message.get("more_body", False)
        except TimeoutError:
            text = f"The request body did not arrive within {BODY_SECONDS:.0f} seconds."
            raise _Refused(408, "body_timeout", text) from None
        if len(body) > longest or declared > longest:
            await _drain(receive, len(body), more=more)
            raise _too_large(longest)
        coding = bytes(dict(scope["headers"]).get(b"content-encoding", b"identity")).strip().lower()
        if body and coding not in {b"", b"identity"}:
            shown = coding[:40].decode("ascii", "backslashreplace")
            text = f"The Content-Encoding {shown!r} is not supported; send the body as it is."
            raise _Refused(415, "unsupported_media_type", text)
        if body and not is_for_programs(_path(scope)) and _content_type(scope) != FORM:
            raise _Refused(415, "unsupported_media_type", f"Send forms as {FORM.decode()}.")

    def _append(self, body: bytearray, piece: bytes, site: str) -> None:
        size = len(piece)
        if self._held + size > MOST_HELD or self._held_by[site] + size > MOST_HELD_BY_ONE:
            raise _Refused(503, "unavailable", "The server is receiving too many request bodies; try again.")
        self._held += size
        self._held_by[site] += size
        body += piece

    def _subtract(self, size: int, site: str) -> None:
        self._held -= size
        self._held_by[site] -= size
        if not self._held_by[site]:
            del self._held_by[site]


def _path(scope: Any) -> str:
    return str(scope["path"].removeprefix(scope.get("root_path", "")))


def _site(scope: Any) -> str:
    return site_of(scope["client"][0]) if scope.get("client") else ""


def _content_type(scope: Any) -> bytes:
    return bytes(dict(scope["headers"]).get(b"content-type", b"")).partition(b";")[0].strip().lower()


def _longest(scope: Any) -> int:
    if scope["method"] in BODILESS:
        return 0
    return longest_body(_path(scope))


def longest_body(path: str) -> int:
    """The most bytes that a body sent to this address may have."""
    return next((longest for prefix, longest in LONGEST.items() if path.startswith(prefix)), 0)


def _declared(scope: Any) -> int:
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length[:12]) if length.isdigit() else 0


def _too_large(longest: int) -> _Refused:
    return _Refused(413, "too_large", too_large(longest))


def too_large(longest: int) -> str:
    """What is wrong with a longer body."""
    most = f"A request body may have at most {longest} bytes."
    return most if longest else "This address accepts no request body."


def _replay(body: bytearray, receive: Receive) -> Receive:
    """A `receive` that gives the whole body as one message, then further messages of the client."""
    whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay


async def _drain(receive: Receive, taken: int, *, more: bool) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and taken <= DRAINED:
                message = await receive()
                taken += len(message.get("body", b""))
                more = message.get("more_body", False)


async def _refuse(refused: _Refused, scope: Any, send: Send) -> None:
    """Answer and close the connection, since the rest of the body may still arrive on it."""
    phrase = status_phrase(refused.status)
    kind, content = b"text/plain; charset=utf-8", f"{refused.status} {phrase}\n{refused.text}\n".encode()
    if is_for_programs(_path(scope)):
        body = problem_body(refused.status, refused.code, refused.text)
        kind, content = PROBLEM.encode(), json.dumps(body).encode()
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(content)), (b"connection", b"close")]
    if refused.status == 503:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
