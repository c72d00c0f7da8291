"""The tools that wait for an agent: ask, get_answer, answer_question, stop."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mcp_types import CallToolResult, ElicitResult, InputRequiredResult

from interfaces.http.auth import TALK
from interfaces.mcp_server import arguments, tasks
from interfaces.mcp_server.caller import Caller
from interfaces.mcp_server.conversation_tools import send
from interfaces.mcp_server.elicitation import ask_person
from interfaces.mcp_server.progress import (
    Progress,
    answer_by_person,
    answer_by_program,
    progress_by_handle,
    progress_of,
    stop,
)
from sessions_app.exceptions import InsufficientScope, NotFound, TooManyStreams
from sessions_app.streams.reader import until_ended
from sessions_app.streams.rights import lapsed

PROGRESS_SECONDS = 5.0  # between two notifications of progress

Answer = CallToolResult | InputRequiredResult | dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Client:
    """What a request says of its client, and what it brings along for a call that it repeats.

    `takes_tasks`: it knows the Tasks extension. `asks_people`: it shows questions to a person (elicitation). `elicit`:
    sends it a question while the request waits. `progress`: tells it that the request goes on.
    """

    caller: Caller
    takes_tasks: bool = False
    asks_people: bool = False
    elicit: Callable[[bytes], Awaitable[None]] | None = None
    progress: Callable[[float, None, str], Awaitable[None]] | None = None
    responses: Mapping[str, ElicitResult] = field(default_factory=dict)
    state: str | None = None


async def ask(client: Client, given: arguments.Ask) -> Answer:
    """Send a message. With a state from an earlier round nothing is sent: the person's answers go to its question."""
    if client.state is not None:
        return await _ask_again(client, given, client.state)
    turn = await client.caller.run(partial(send, client.caller, given))
    if client.takes_tasks:
        found = await client.caller.run(partial(progress_of, client.caller, turn.pk))
        return tasks.task_of(found, created=True)
    return await _wait(client, turn.pk, given.wait_seconds)


async def _ask_again(client: Client, given: arguments.Ask, state: str) -> Answer:
    if not client.caller.allows(TALK):  # get_answer itself needs only `read`
        raise InsufficientScope("an answer to a question needs the scope talk")
    found = await client.caller.run(partial(progress_by_handle, client.caller, state))
    is_left_open = any(
        key == found.question_key and each.action == "cancel" for key, each in client.responses.items()
    )
    if is_left_open:
        return tasks.result_of(found.result())
    await client.caller.run(partial(answer_by_person, client.caller, found, client.responses))
    return await _wait(client, found.first.pk, given.wait_seconds)


async def get_answer(client: Client, given: arguments.GetAnswer) -> Answer:
    """Wait for the answer to an earlier message."""
    if client.state is not None:
        return await _ask_again(
            client, arguments.Ask(message="-", wait_seconds=given.wait_seconds), client.state
        )
    return await _wait(client, given.turn, given.wait_seconds)


async def answer_question(client: Client, given: arguments.AnswerQuestion) -> Answer:
    """Answer a question that is not about consent."""

    def answered() -> None:
        found = progress_of(client.caller, given.turn)
        answer_by_program(client.caller, found, given.question, given.answer)

    await client.caller.run(answered)
    return await _wait(client, given.turn, given.wait_seconds)


async def stop_turn(client: Client, given: arguments.StopTurn) -> Answer:
    """Stop a request."""

    def stopped() -> Progress:
        stop(client.caller, progress_of(client.caller, given.turn))
        return progress_of(client.caller, given.turn)

    return tasks.result_of((await client.caller.run(stopped)).result())


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
    return tasks.result_of(found.result())


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
            ended = await until_ended(found.last, caller.right, left, caller.threads)
        except TooManyStreams:  # then it is not waited for
            break
        await _check_access(caller, found.last.session_id, ended=ended)
        found = await caller.run(partial(progress_of, caller, found.first.pk))
        if time.monotonic() - looked < left / 2:
            break  # it has ended, or too many requests wait
    return found
