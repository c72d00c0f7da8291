"""The tools that wait for an agent: ask, get_answer, answer_question, stop. They also bring questions to a person.

A client of a revision with a handshake gets a question on the stream that answers its request. The person's answer
comes as a request of its own, perhaps to another process. Its id names the question, so nothing has to be kept between
the two; `HEARD` only tells the waiting request at once, also that the person left the question open.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from mcp_types import ElicitResult, InputRequiredResult, JSONRPCRequest
from pydantic import ValidationError

from interfaces.http.auth import READ, TALK
from interfaces.mcp_server import arguments, progress
from interfaces.mcp_server.conversation_tools import send
from interfaces.mcp_server.progress import Progress, answer_by_person, progress_by_handle, progress_of
from interfaces.mcp_server.tools import ASKS, DELETES, READS, Answer, Caller, Client, tool
from sessions_app.exceptions import InsufficientScope, NotFound, TooManyStreams
from sessions_app.streams.reader import until_ended
from sessions_app.streams.rights import OPEN_STREAMS, lapsed

PROGRESS_SECONDS = 5.0  # between two notifications of progress
SESSION: Final = "elicits-"  # begins the session ids of clients that show questions to a person
PERSON_SECONDS: Final = 300.0  # for which a request waits for the person
_CHECK_SECONDS: Final = 2.0  # between two looks at the question

# of questions that requests of this process wait for, by the id of the question
HEARD: dict[str, asyncio.Event] = {}

Send = Callable[[bytes], Awaitable[None]]  # sends an event on the stream of a request


@tool(TALK, ASKS)
async def ask(client: Client, given: arguments.Ask) -> Answer:
    """Send a message to an agent and wait for its answer. When it is still working afterwards, go on with get_answer.
    Sent again without an idempotency_key, the message is sent twice. To abort the request ends the waiting alone: the
    agent goes on, and get_answer, or the same message with the same idempotency_key, returns its answer.
    """
    if client.state is not None:  # a further round: nothing is sent, the person's answers go to the question
        return await _ask_again(client, given.wait_seconds, client.state)
    turn = await client.caller.run(partial(send, client.caller, given))
    if client.takes_tasks:
        found = await client.caller.run(partial(progress_of, client.caller, turn.pk))
        return progress.task_of(found, created=True)
    return await _wait(client, turn.pk, given.wait_seconds)


async def _ask_again(client: Client, seconds: int, state: str) -> Answer:
    if not client.caller.allows(TALK):  # get_answer itself needs only `read`
        raise InsufficientScope("an answer to a question needs the scope talk")
    found = await client.caller.run(partial(progress_by_handle, client.caller, state))
    is_left_open = any(
        key == found.question_key and each.action == "cancel" for key, each in client.responses.items()
    )
    if is_left_open:
        return progress.result_of(found.result())
    await client.caller.run(partial(answer_by_person, client.caller, found, client.responses))
    return await _wait(client, found.first.pk, seconds)


@tool(READ, READS)
async def get_answer(client: Client, given: arguments.GetAnswer) -> Answer:
    """Wait for the answer to an earlier message, by its turn."""
    if client.state is not None:
        return await _ask_again(client, given.wait_seconds, client.state)
    return await _wait(client, given.turn, given.wait_seconds)


@tool(TALK, ASKS)
async def answer_question(client: Client, given: arguments.AnswerQuestion) -> Answer:
    """Answer a question of an agent in the user's words. Questions for consent are answered by the person alone."""

    def answered() -> None:
        found = progress_of(client.caller, given.turn)
        progress.answer_by_program(client.caller, found, given.question, given.answer)

    await client.caller.run(answered)
    return await _wait(client, given.turn, given.wait_seconds)


@tool(TALK, DELETES)
async def stop(client: Client, given: arguments.StopTurn) -> Answer:
    """Stop what an agent does for an earlier message; the answer so far is kept."""

    def stopped() -> Progress:
        progress.stop(client.caller, progress_of(client.caller, given.turn))
        return progress_of(client.caller, given.turn)

    return progress.result_of((await client.caller.run(stopped)).result())


async def _check_access(caller: Caller, session_id: uuid.UUID, *, ended: bool) -> None:
    """NotFound if the token was revoked, or has expired, during the wait. Without an end it was not checked yet."""
    if not ended and await caller.run(lambda: bool(lapsed([(caller.right, session_id)]))):
        raise NotFound("the token is not valid any more")


async def _wait(client: Client, turn_id: int, seconds: int) -> Answer:
    """The state of a request after its turn has ended, or after so many seconds."""
    found: Progress = await client.caller.run(partial(progress_of, client.caller, turn_id))
    if found.state == "working" and seconds:
        found = await _ended(client, found, seconds)
    if found.question is not None and client.elicit is not None:
        with suppress(TooManyStreams):  # then the person is not asked here
            if await ask_person(client.caller, found, client.elicit):
                return await _wait(client, turn_id, seconds)
    if found.question is not None and client.asks_people:
        return InputRequiredResult(
            input_requests={found.question_key: found.request()}, request_state=found.handle
        )
    return progress.result_of(found.result())


async def _ended(client: Client, found: Progress, seconds: int) -> Progress:
    """The state after the turn has ended, or after so many seconds. Meanwhile the client is told that it goes on."""
    caller, begun = client.caller, time.monotonic()
    until = begun + seconds
    while found.state == "working" and (left := until - time.monotonic()) > 0:
        if client.progress is not None:
            waits = "waits for the turns before it" if found.last.state == "queued" else "is working"
            text = f"Turn {found.first.pk} {waits}."
            await client.progress(round(time.monotonic() - begun, 1), None, text)
            left = min(left, PROGRESS_SECONDS)
        looked = time.monotonic()
        try:
            ended = await until_ended(found.last, caller.right, left, caller.run)
        except TooManyStreams:  # then it is not waited for
            break
        await _check_access(caller, found.last.session_id, ended=ended)
        found = await caller.run(partial(progress_of, caller, found.first.pk))
        if time.monotonic() - looked < left / 2:
            break  # it has ended, or too many requests wait
    return found


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
    if not isinstance(name, str) or len(name) > 3 * progress.LONGEST_HANDLE or "/" not in name:
        return None
    handle, _, key = name.partition("/")
    return handle, key


async def take_reply(caller: Caller, given: Mapping[str, Any]) -> None:
    """Store a person's answer. An error in its place leaves the question open. NotFound, BadInput."""
    handle, key = _question_of(given) or ("", "")
    try:
        response = ElicitResult.model_validate(given.get("result"))
    except ValidationError:
        response = ElicitResult(action="cancel")
    try:
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
    free = OPEN_STREAMS.take(caller.right)
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
    """Whether the question is settled: it waits no longer. NotFound if the token is not valid any more."""
    if lapsed([(caller.right, asked.last.session_id)]):
        raise NotFound("the token is not valid any more")
    return progress_of(caller, asked.first.pk).question_key != asked.question_key
