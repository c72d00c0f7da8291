"""The tools that wait for an agent: ask, get_answer, answer_question, stop."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mcp_types import CallToolResult, ElicitResult, InputRequiredResult

from automations.mcp_server import arguments, tasks
from automations.mcp_server.caller import Caller
from automations.mcp_server.conversation_tools import send
from automations.mcp_server.progress import (
    Progress,
    answer_by_person,
    answer_by_program,
    progress_by_handle,
    progress_of,
    stop,
)
from sessions_app.api.scopes import TALK
from sessions_app.exceptions import InsufficientScope, NotFound, TooManyStreams
from sessions_app.streams.rights import lapsed
from sessions_app.streams.wait_for_turn import until_ended

Answer = CallToolResult | InputRequiredResult | dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Client:
    """What a request says of its client, and what it brings along for a call that it repeats.

    `takes_tasks`: it knows the Tasks extension. `asks_people`: it shows questions to a person (elicitation).
    """

    caller: Caller
    takes_tasks: bool = False
    asks_people: bool = False
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
        with suppress(TooManyStreams):  # then it is not waited for
            ended = await until_ended(found.last, client.caller.right, seconds, client.caller.threads)
            await _check_access(client.caller, found.last.session_id, ended=ended)
        found = await client.caller.run(partial(progress_of, client.caller, turn_id))
    if found.question is not None and client.asks_people:
        return InputRequiredResult(
            input_requests={found.question_key: found.request()}, request_state=found.handle
        )
    return tasks.result_of(found.result())
