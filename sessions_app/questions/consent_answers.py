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
from sessions_app.models.consent import (
    IN_GROUP,
    LONGEST_PERSON,
    NUMBER_AT_CHANNEL,
    REPLIES_TO,
    WRITTEN_AT,
)
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.models.session import WEB
from sessions_app.models.turn import BY_PROGRAM


def may_say(answer: str, turn: Turn, question: ConsentQuestion) -> bool:
    """Whether the message may be this answer: the owner and the person who was asked may consent, all may refuse.

    A program may refuse for its user, and not consent.
    """
    if answer != "yes":
        return True
    if turn.metadata.get(BY_PROGRAM):
        return False
    person = person_of(turn)
    is_known = not person.endswith(":")
    return _via(turn) is None or (is_known and person == question.asked_of)


def person_of(turn: Turn) -> str:
    """Return who wrote the message: empty for the owner, else the hook and its sender, `<hook>:` if that is unknown.

    A hook without senders speaks for the owner, except in a group.
    """
    via = _via(turn)
    in_group = turn.metadata.get(IN_GROUP) or turn.session.chat_type == ChatType.GROUP
    if via is None or (not via.get("sender") and not in_group):
        return ""
    return f"{via.get('hook', '')}:{via.get('sender', '')}"[:LONGEST_PERSON]


def _via(turn: Turn) -> dict[str, Any] | None:
    via: dict[str, Any] | None = turn.metadata.get("message", {}).get("via")
    return via


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
    if question.passed or question.asked_seq > turn.metadata.get("seen", 0):
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
    route = turn.metadata.get("route") or {}
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
    if (number := turn.metadata.get(NUMBER_AT_CHANNEL)) is not None:
        there = there.filter(number_at_channel__lt=number)
    if (to := turn.metadata.get(REPLIES_TO)) is not None:
        there = there.filter(number_at_channel=to)
    return there.exists()


def _written_at(turn: Turn) -> datetime:
    """Return when the message was written, at the latest: by its sender's clock, if there is one, else when it came.

    A sender's clock tells seconds, so a message may be as old as the beginning of its second.
    """
    seconds = turn.metadata.get(WRITTEN_AT)
    if seconds is None:
        return turn.queued_at
    return min(turn.queued_at, datetime.fromtimestamp(seconds, UTC))
