"""Questions of scheduled turns (rule 11.4): stored when a call is refused, answered later, in time, by their id.

Such a question holds nothing: its run goes on and ends. A yes makes exactly the call that was refused, once, in a turn
that a person began.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.conf import settings

from agent_core.execution import new_id
from agent_core.tool_spec import ToolSpec
from agent_core.turn.consent import call_to_json, question_of
from agent_core.turn.tool_calls import intent
from agent_core.types import ToolCall
from sessions_app.events import announce
from sessions_app.mailbox.updates import drop_settled
from sessions_app.models import Agent, ClosedBecause, ConsentQuestion, Event, EventType, Session, Turn
from sessions_app.models.questions import ConsentTransitions

NAMESPACE = uuid.UUID("6f0b7b0e-1d0c-4d5a-9a52-5d3a3c7f2b12")  # for the ids of updates about questions
HAS_READ = "has_read"  # in `ConsentQuestion.calls`
_ON_ANSWERED: list[Callable[..., None]] = []


def on_answered(call: Callable[..., None]) -> None:
    """Call `call(run_id, is_allowed=...)` when all that a run asked is answered or gone, in that transaction."""
    _ON_ANSWERED.append(call)


def tell_answered(question_id: str, *, is_allowed: bool) -> None:
    """This question was answered just now, or what it is about is gone."""
    run = ConsentQuestion.objects.filter(pk=question_id).values_list("run", flat=True).first()
    if not run or ConsentQuestion.objects.open().filter(run=run).exists():
        return
    for call in _ON_ANSWERED:
        call(run, is_allowed=is_allowed)


def update_about(question_id: str) -> uuid.UUID:
    """The id of the mailbox update that tells of this question."""
    return uuid.uuid5(NAMESPACE, question_id)


def ask(turn: Turn, call: ToolCall, spec: ToolSpec, target: Session, *, has_read: bool) -> ConsentQuestion:
    """Store the question for a refused call in the session `target`. It replaces an open one for the same call.

    `has_read`: the turn has read text from outside, so the call is one of such a turn when it is made, too.
    """
    same = hashlib.sha256(intent(call).encode()).hexdigest()
    calls = [call_to_json(call, spec) | ({HAS_READ: True} if has_read else {})]
    question = ConsentQuestion(
        id=new_id(),
        session=target,
        turn=turn,
        run=turn.origin_run or next(iter(turn.input.runs), ""),
        calls=calls,
        same_call=same,
        asked_seq=target.last_seq,
        expires_at=datetime.now(UTC) + timedelta(hours=settings.RONDO_QUESTION_HOURS),
    )
    when = until(question, turn.session.agent)
    question.text = question_of(calls, question_id=question.pk, like=turn.content, until=when)
    ConsentQuestion.objects.filter(session=target, same_call=same).close(ClosedBecause.NEWER)
    # if another turn asks for the same call at this instant, one of the two questions is stored
    ConsentQuestion.objects.bulk_create([question], ignore_conflicts=True)
    return question


def close(which: ConsentTransitions, why: ClosedBecause) -> None:
    """Close these open questions without an answer, and tell the windows of their conversations."""
    found = list(which.values_list("pk", "session_id", "session__agent_id"))
    told = {"status": "question_closed", "because": why.value}
    for question, session, agent in found:
        if ConsentQuestion.objects.filter(pk=question).close(why):
            about = told | {"question": question}
            Event.objects.create(agent_id=agent, session_id=session, type=EventType.STATUS, content=about)
            announce(session)
            drop_settled(update_about(question))
            if why == ClosedBecause.GONE:  # else the run still needed its call
                tell_answered(question, is_allowed=False)


def object_is_gone(owner_id: int, **argument: str) -> None:
    """Close the user's open questions about an object that is deleted, which a tool's argument names."""
    close(ConsentQuestion.objects.about(owner_id, **argument), ClosedBecause.GONE)


def until(question: ConsentQuestion, agent: Agent) -> str:
    """Return until when the question can be answered, in the agent's zone."""
    at = question.expires_at or datetime.now(UTC)
    return f"{at.astimezone(agent.zone):%Y-%m-%d %H:%M %Z}"


def is_late(question: ConsentQuestion) -> bool:
    """Whether the question's time is over."""
    return question.expires_at is not None and question.expires_at <= datetime.now(UTC)
