"""Whether a message may answer a question for consent: who wrote it, when, and what was said since (rule 3.5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from sessions_app.models import (
    PRIMARY_KEY,
    ChatType,
    ConsentQuestion,
    Delivery,
    DeliveryState,
    Message,
    Session,
    SessionType,
    Turn,
)
from sessions_app.models.consent import LONGEST_PERSON
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.models.session import WEB


def may_say(answer: str, turn: Turn, question: ConsentQuestion) -> bool:
    """Whether the message may be this answer: the owner and the person who was asked may consent, all may refuse.

    A program may refuse for its user, and not consent.
    """
    if answer != "yes":
        return True
    if turn.input.by_program:
        return False
    person = person_of(turn)
    is_known = not person.endswith(":")
    return turn.input.posted_by is None or (is_known and person == question.asked_of)


def person_of(turn: Turn) -> str:
    """Return who wrote the message: empty for the owner, else the hook and its sender, `<hook>:` if that is unknown.

    A hook without senders speaks for the owner, except in a group.
    """
    posted_by = turn.input.posted_by
    in_group = turn.input.in_group or turn.session.chat_type == ChatType.GROUP
    if posted_by is None or (not posted_by.sender and not in_group):
        return ""
    return f"{posted_by.hook}:{posted_by.sender}"[:LONGEST_PERSON]


def with_passed(rows: QuerySet[ConsentQuestion]) -> QuerySet[Any]:
    """Annotate the questions with `passed`: after it, somebody other than the person said something.

    The closure of a failed turn does not count. The input of another system or an automation does.
    """
    answered = Q(role="assistant") & ~(Q(content="") | Q(metadata__has_key="closure"))
    by_others = Q(metadata__via__as_person=False) | Q(metadata__has_key=BY_AUTOMATION)
    later = Message.objects.filter(session=OuterRef("session"), seq__gt=OuterRef("asked_seq"))
    return rows.annotate(passed=Exists(later.filter(answered | Q(role="user") & by_others)))


def is_last(turn: Turn, session: Session, question: Any) -> bool:
    """Whether the question was asked before the message was written, and nothing else was said since."""
    if question.passed or question.asked_seq > turn.input.seen:
        return False
    if _written_at(turn) <= question.asked_at:
        return False
    if not _has_arrived(turn, session, question):
        return False
    beside = _shown_beside(session, question)
    elsewhere = Message.objects.filter(role="assistant", created_at__gte=question.asked_at).exclude(
        content=""
    )
    return beside is None or not elsewhere.filter(beside, session__agent=session.agent_id).exists()


def _shown_beside(session: Session, question: ConsentQuestion) -> Q | None:
    """Condition: other sessions that windows may have shown together with the question since it was asked."""
    agent = session.agent
    is_thread = session.type == SessionType.SUB and session.channel == WEB
    if session.key == PRIMARY_KEY and agent.unified_session:
        # threads also show the messages of their own older automations
        return Q(session__type=SessionType.SUB, session__channel=WEB)
    if is_thread and agent.updated_at >= question.asked_at:
        # the agent was changed since, and may have been unified for a while
        return Q(session__key=PRIMARY_KEY)
    return None


def _has_arrived(turn: Turn, session: Session, question: ConsentQuestion) -> bool:
    """Whether the question had reached the channel that the message comes from. Windows always show it.

    A message that replies to another one there is no answer to it.
    """
    given = turn.input
    route = given.route or {}
    if route.get("channel", WEB) == WEB:
        return True
    there = Delivery.objects.filter(
        message__session=session,
        message__seq=question.asked_seq,
        channel=route["channel"],
        address=route["chat_id"],
        state=DeliveryState.SENT,
        ended_at__lte=_written_at(turn),
    )
    if given.number_at_channel is not None:
        there = there.filter(number_at_channel__lt=given.number_at_channel)
    if given.replies_to is not None:
        there = there.filter(number_at_channel=given.replies_to)
    return there.exists()


def _written_at(turn: Turn) -> datetime:
    """Return when the message was written, at the latest: by its sender's clock, if there is one, else when it came.

    A sender's clock tells seconds, so a message may be as old as the beginning of its second.
    """
    seconds = turn.input.written_at
    if seconds is None:
        return turn.queued_at
    return min(turn.queued_at, datetime.fromtimestamp(seconds, UTC))
