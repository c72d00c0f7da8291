"""The tools about agents and conversations, except those that wait. Each runs in a thread."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from interfaces.http.auth import READ, TALK
from interfaces.http.fields import moment_of
from interfaces.mcp_server import arguments, results
from interfaces.mcp_server.tools import ADDS, READS, Caller, tool
from sessions_app.exceptions import BadInput
from sessions_app.idempotency import IdempotentRequest, StoredAnswer, idempotent
from sessions_app.questions.question_reads import questions_of
from sessions_app.queue.receive import program_message, receive
from sessions_app.reads import selectors
from sessions_app.reads.usage import usage_of
from sessions_app.sessions import open as sessions_open
from sessions_app.sessions.history import some_messages
from sessions_app.single_line import check_line
from sessions_app.tokens.reach import limit_of

MOST_AGENTS = 200

G = TypeVar("G", bound=results.Result)


def once(caller: Caller, tool: str, given: Any, shape: type[G], make: Callable[[], G]) -> G:
    """Call `make` and return its result; with an idempotency key, a repeated call gets the first result.
    IdempotencyMismatch.
    """
    if given.idempotency_key is None:
        return make()

    def stored() -> StoredAnswer:
        return StoredAnswer(body=make().model_dump(mode="json"), location="")

    data = given.model_dump(mode="json", exclude={"idempotency_key"})
    asked = IdempotentRequest(
        user_id=caller.user.pk,
        address=limit_of(caller.user).own(f"mcp {tool}"),
        key=given.idempotency_key,
        data=data,
    )
    answer = idempotent(asked, stored)
    return shape.model_validate_json(json.dumps(answer.body))


def agent_of(caller: Caller, name: str | None) -> Any:
    """An agent by name, or the user's only one. NotFound, BadInput."""
    if name is not None:
        return selectors.agent(caller.user, name)
    found: list[Any] = list(selectors.agents(caller.user).order_by("name")[:2])
    if len(found) != 1:
        raise BadInput("name an agent; list_agents shows them")
    return found[0]


def session_of(caller: Caller, place: arguments.Place) -> uuid.UUID:
    """The id of the session that is meant; it is the user's. NotFound, BadInput.

    Without a place it is the primary session of the only agent, or the session that the token is limited to.
    """
    only = limit_of(caller.user).session_id
    if place.session is None and place.agent is None and only is not None:
        return only
    if place.session is None:
        return uuid.UUID(str(agent_of(caller, place.agent).primary_session))
    found = selectors.session(caller.user, uuid.UUID(place.session))
    if place.agent is not None and found.agent_name != place.agent:
        raise BadInput(f"the session belongs to the agent {found.agent_name!r}")
    return uuid.UUID(str(found.pk))


def send(caller: Caller, given: arguments.Ask) -> Any:
    """Store the message as a turn of its own, which is the handle of the request. What `receive` raises."""
    key = None if given.idempotency_key is None else f"mcp:{given.idempotency_key}"
    message = program_message(given.message, key, limited=bool(limit_of(caller.user)))
    return receive(session_of(caller, given), message, caller.user.pk)


@tool(READ, READS)
def list_agents(caller: Caller, given: arguments.Nothing) -> results.AgentList:  # noqa: ARG001 - every tool takes some
    """List the user's agents."""
    rows: Any = selectors.agents(caller.user).order_by("name")[:MOST_AGENTS]
    return results.AgentList(agents=[results.AgentItem.model_validate(each) for each in rows])


@tool(READ, READS)
def list_sessions(caller: Caller, given: arguments.ListSessions) -> results.SessionList:
    """List the newest conversations."""
    wanted = {} if given.agent is None else {"agent__name": agent_of(caller, given.agent).name}
    rows = selectors.sessions(caller.user, wanted).newest(given.limit)
    return results.SessionList(sessions=[results.SessionItem.model_validate(each) for each in rows])


@tool(TALK, ADDS)
def open_session(caller: Caller, given: arguments.OpenSession) -> results.Opened:
    """Open a new conversation with an agent."""
    check_line("title", given.title)
    agent = agent_of(caller, given.agent)

    def opened() -> results.Opened:
        return results.Opened(id=str(sessions_open.open_session(agent, title=given.title).pk))

    return once(caller, "open_session", given, results.Opened, opened)


@tool(READ, READS)
def read_session(caller: Caller, given: arguments.ReadSession) -> results.MessageList:
    """Read the newest messages of a conversation, in order."""
    session = session_of(caller, given)
    rows = reversed(some_messages(caller.user, session, given.limit).rows)
    messages = [results.MessageItem.model_validate(each) for each in rows]
    return results.MessageList(session=str(session), messages=messages)


@tool(READ, READS)
def list_questions(caller: Caller, given: arguments.ListQuestions) -> results.QuestionList:
    """List the newest questions of agents for consent to a tool call. A person answers them, on Rondo's pages or where
    they were asked.
    """
    rows = questions_of(caller.user, given.state).order_by("-asked_at", "-id")[: given.limit]
    return results.QuestionList(questions=[results.QuestionItem.model_validate(each) for each in rows])


@tool(READ, READS)
def usage(caller: Caller, given: arguments.Usage) -> results.UsageSums:
    """Sum tokens and US dollars of the user's turns, as far as they are kept."""
    times = {name: _moment(name, text) for name, text in (("since", given.since), ("until", given.until))}
    return results.UsageSums.model_validate(usage_of(caller.user, given.by, **times))


def _moment(name: str, text: str | None) -> datetime | None:
    found = moment_of(text)
    if text is None or found is not None:
        return found
    raise BadInput(f"{name} must be an ISO time with an offset, such as 2027-01-01T09:00:00Z")


@tool(READ, READS)
def read_mailbox(caller: Caller, given: arguments.ReadSession) -> results.Mailbox:
    """Read the newest updates that background work left for a conversation. Reading changes nothing."""
    session = session_of(caller, given)
    rows = selectors.mailbox(caller.user, session).newest(given.limit)
    updates = [results.Mail.model_validate(each) for each in rows]
    return results.Mailbox(session=str(session), updates=updates)
