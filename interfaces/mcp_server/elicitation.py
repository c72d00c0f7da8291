"""Questions to the person at a client of a revision with a handshake, on the stream that answers its request.

The person's answer comes as a request of its own, perhaps to another process. Its id names the question, so that
nothing has to be kept between the two; `HEARD` only spares the waiting request the time until it looks again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from mcp_types import ElicitResult, JSONRPCRequest
from pydantic import ValidationError

from interfaces.mcp_server.caller import Caller
from interfaces.mcp_server.progress import Progress, answer_by_person, progress_by_handle, progress_of
from interfaces.mcp_server.tasks import LONGEST_HANDLE
from sessions_app.exceptions import NotFound
from sessions_app.streams.rights import STREAM_SLOTS, lapsed

SESSION: Final = "elicits-"  # begins the session ids of clients that show questions to a person
PERSON_SECONDS: Final = 300.0  # for which a request waits for the person
_CHECK_SECONDS: Final = 2.0  # between two looks at the question

HEARD: dict[
    str, asyncio.Event
] = {}  # of questions that requests of this process wait for, by the id of the question

Send = Callable[[bytes], Awaitable[None]]  # sends an event on the stream of a request


def session_for(given: Any) -> str | None:
    """The session id for a client that says with its handshake that it shows questions; None for other requests."""
    if not isinstance(given, Mapping) or given.get("method") != "initialize":
        return None
    params = given.get("params")
    able = params.get("capabilities") if isinstance(params, Mapping) else None
    forms = able.get("elicitation") if isinstance(able, Mapping) else None
    if not isinstance(forms, Mapping) or ("url" in forms and "form" not in forms):
        return None
    return f"{SESSION}{uuid.uuid4().hex}"


def is_reply(given: Any) -> bool:
    """Whether a message is a client's answer to a question."""
    return isinstance(given, Mapping) and "method" not in given and _question_of(given) is not None


def _question_of(given: Mapping[str, Any]) -> tuple[str, str] | None:
    """The task and the question's key that an id of ours names."""
    name = given.get("id")
    if not isinstance(name, str) or len(name) > 3 * LONGEST_HANDLE or "/" not in name:
        return None
    handle, _, key = name.partition("/")
    return handle, key


async def take_reply(caller: Caller, given: Mapping[str, Any]) -> None:
    """Store a person's answer. An error in its place leaves the question open. NotFound, BadInput."""
    handle, key = _question_of(given) or ("", "")
    try:
        try:
            response = ElicitResult.model_validate(given.get("result"))
        except ValidationError:
            response = ElicitResult(action="cancel")
        found = await caller.run(partial(progress_by_handle, caller, handle))
        await caller.run(partial(answer_by_person, caller, found, {key: response}))
    finally:
        if heard := HEARD.get(f"{handle}/{key}"):
            heard.set()


async def ask_person(caller: Caller, found: Progress, send: Send) -> bool:
    """Show the waiting question to the person; whether it is settled. TooManyStreams."""
    name = f"{found.handle}/{found.question_key}"
    asked = found.request().model_dump(by_alias=True, mode="json", exclude_none=True)
    request = JSONRPCRequest(jsonrpc="2.0", id=name, method=asked["method"], params=asked["params"])
    free = STREAM_SLOTS.take(caller.right)
    heard = HEARD.setdefault(name, asyncio.Event())
    try:
        await send(f"event: message\r\ndata: {request.model_dump_json(exclude_none=True)}\r\n\r\n".encode())
        until = time.monotonic() + PERSON_SECONDS
        while not heard.is_set() and time.monotonic() < until:
            with suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), _CHECK_SECONDS)
            if await caller.run(partial(_is_settled, caller, found)):
                return True
        return False
    finally:
        HEARD.pop(name, None)
        free()


def _is_settled(caller: Caller, asked: Progress) -> bool:
    """Whether the question waits no longer. NotFound if the token is not valid any more."""
    if lapsed([(caller.right, asked.last.session_id)]):
        raise NotFound("the token is not valid any more")
    return progress_of(caller, asked.first.pk).question_key != asked.question_key
