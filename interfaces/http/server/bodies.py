"""Limits on request bodies. Django alone would write any body to disk and wait for it for minutes.

The whole body is read here before Django sees the request. Its bytes are counted as they arrive, whatever
Content-Length says, and all of them must arrive in time.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

from django.core.exceptions import RequestAborted

from interfaces.http.client_address import network_of
from interfaces.http.server.headers import path_in
from interfaces.protocols import API, PROTOCOLS, is_for_programs

LONGEST_BODY = 1024 * 1024  # bytes, of programs; some protocols take more
LONGEST_FORM = 2 * LONGEST_BODY
# by path prefix
LONGEST = {API: LONGEST_BODY} | {
    f"/{each.prefix}": each.megabytes * LONGEST_BODY for each in PROTOCOLS.values()
}
BRINGS_FILES = re.compile(r"(?:/api)?/sessions/[0-9a-f-]{36}/messages/")  # a message to a session
LONGEST_WITH_FILES = 9 * LONGEST_BODY
BODILESS = {"GET", "HEAD", "OPTIONS"}
FORM = b"application/x-www-form-urlencoded"  # pages send nothing else, and parsing other types is expensive
FORM_WITH_FILES = b"multipart/form-data"
BODY_SECONDS = 30.0  # until the whole body has arrived
FILES_SECONDS = 120.0  # the same, of a message
MOST_HELD = 64 * LONGEST_BODY  # bytes of all bodies in the memory of a process
MOST_HELD_BY_ONE = MOST_HELD // 4  # of the requests of one address
ALL = "all"  # the key of their sum
DRAINED = 16 * LONGEST_BODY  # bytes read and dropped, so that a client that is still sending gets the answer
DRAIN_SECONDS = 2.0  # for a client that sends less than it announced


class Refused(Exception):
    """The request is answered without Django, and its connection is closed."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


class Body(BytesIO):
    """A request body in memory. It is counted with the others until `release`, which the event loop calls."""

    def __init__(self, held: Counter[str], network: str) -> None:
        super().__init__()
        self._held, self._network, self._counted = held, network, 0

    def append(self, piece: bytes) -> None:
        """Add what arrived. Refused if the process holds too much already."""
        size = len(piece)
        if self._held[ALL] + size > MOST_HELD or self._held[self._network] + size > MOST_HELD_BY_ONE:
            raise Refused(503, "unavailable", "The server is receiving too many request bodies; try again.")
        self._count(size)
        self.write(piece)

    def release(self) -> None:
        """Count the body no more. A thread may still read it."""
        self._count(-self._counted)

    def _count(self, size: int) -> None:
        self._counted += size
        self._held += Counter({ALL: size, self._network: size})  # forgets networks that have none left


class Bodies:
    """The request bodies in the memory of a process."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()  # bytes, by the network of the client

    async def read(self, scope: Any, receive: Any) -> Body:
        """The whole body of a request; the caller releases it. Refused, RequestAborted."""
        body = Body(self.held, network_of(scope["client"][0]) if scope.get("client") else "")
        headers, path = dict(scope["headers"]), path_in(scope)
        longest = 0 if scope["method"] in BODILESS else longest_body(path)
        try:
            seconds = FILES_SECONDS if BRINGS_FILES.fullmatch(path) else BODY_SECONDS
            await _fill(body, headers, longest, seconds, receive)
            if body.tell():
                _check_type(headers, path)
        except BaseException:
            body.release()
            raise
        body.seek(0)
        return body


def longest_body(path: str) -> int:
    """The most bytes that a body sent to this address may have."""
    if BRINGS_FILES.fullmatch(path):
        return LONGEST_WITH_FILES
    return next((longest for prefix, longest in LONGEST.items() if path.startswith(prefix)), LONGEST_FORM)


def too_large(longest: int) -> str:
    """The text that refuses a longer body."""
    most = f"A request body may have at most {longest} bytes."
    return most if longest else "A request with this method has no body."


async def _fill(
    body: Body, headers: Mapping[bytes, bytes], longest: int, seconds: float, receive: Any
) -> None:
    length = headers.get(b"content-length", b"")
    declared = int(length[:12]) if length.isdigit() else 0
    refusal = Refused(413, "too_large", too_large(longest))
    if declared > longest and b"expect" in headers:
        raise refusal  # the client waits for `100 Continue` before it sends the body
    more = True
    try:
        async with asyncio.timeout(seconds):
            while more and body.tell() <= longest >= declared:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                body.append(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        text = f"The request body did not arrive within {seconds:.0f} seconds."
        raise Refused(408, "body_timeout", text) from None
    if body.tell() > longest or declared > longest:
        if more:
            await _drain(receive, body.tell())
        raise refusal


async def _drain(receive: Any, taken: int) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while taken <= DRAINED:
                message = await receive()
                taken += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _check_type(headers: Mapping[bytes, bytes], path: str) -> None:
    coding = bytes(headers.get(b"content-encoding", b"")).strip().lower()
    if coding not in {b"", b"identity"}:
        shown = coding[:40].decode("ascii", "backslashreplace")
        text = f"The Content-Encoding {shown!r} is not supported; send the body as it is."
        raise Refused(415, "unsupported_media_type", text)
    kind = bytes(headers.get(b"content-type", b"")).partition(b";")[0].strip().lower()
    if is_for_programs(path) or (kind == FORM_WITH_FILES and BRINGS_FILES.fullmatch(path)):
        return
    if kind != FORM:
        raise Refused(415, "unsupported_media_type", f"Send forms as {FORM.decode()}.")
