"""What background work has to say: one deposit in the mailbox of its home (rules 5.4, 6.3)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from agent_core.limits import intent
from agent_core.types import ToolCall
from automations.models import CronJob, Source
from sessions_app.mailbox import LONGEST_SUMMARY, Mail, deposit
from sessions_app.models import BACKGROUND, PRIMARY_KEY, Priority, Session, Turn

OF_FIRST = "It may be changed, disabled or removed as any routine; of later ones only the list tells."
NAMESPACE = uuid.UUID("6f0b7b0e-1d0c-4d5a-9a52-5d3a3c7f2b11")  # event ids follow from what they tell of
LONGEST_ARGUMENTS = 500  # characters of a refused call's arguments
_SENTENCE = re.compile(r".*?(?:[.!?。！？](?=\s|$)|(?<=[。！？])|$)")  # noqa: RUF001


def home_of(about: Mapping[str, Any]) -> uuid.UUID | None:
    """The home that a turn's metadata name: known also when the routine is gone."""
    home = about.get("home")
    return uuid.UUID(home) if home else None


def tell(home: uuid.UUID | None, agent_id: int, mail: Mail) -> bool:
    """Deposit at the home, or, when that is gone or none was given, in the primary session."""
    primary = Session.objects.values_list("pk", flat=True).get(agent_id=agent_id, key=PRIMARY_KEY)
    return deposit(home or primary, mail, or_else=primary)


def mail_of(
    turn: Turn, event_type: str, text: str, *, about: str, source_key: str, urgent: bool = False
) -> Mail:
    """The mail about what a turn did; the same `about` of the same turn is the same event."""
    return Mail(
        event_id=uuid.uuid5(NAMESPACE, f"{turn.pk}:{about}"),
        event_type=event_type,
        summary=first_sentence(text),
        detail=text,
        source_key=source_key,
        priority=Priority.HIGH if urgent else Priority.NORMAL,
    )


def ask_for_consent(turn: Turn, call: ToolCall) -> None:
    """What a scheduled turn must not do without a person; in a conversation it can be asked for."""
    session = Session.objects.only("agent_id", "key", "type").get(pk=turn.session_id)
    arguments = json.dumps(call.arguments, ensure_ascii=False)[:LONGEST_ARGUMENTS]
    text = f"A scheduled turn wanted to use {call.name} and needs your consent: {arguments}"
    own = None if session.type in BACKGROUND else turn.session_id
    mail = mail_of(turn, "consent_needed", text, about=intent(call), source_key=session.key)
    tell(own or home_of(turn.metadata), session.agent_id, mail)


def tell_of_first(job: CronJob, source_key: str) -> None:
    """The first routine that an agent registers by itself is told of, once; later ones are only listed (rule 5.6).

    Part of the transaction that added it, behind the agent's lock, so that of two at once one is the first.
    """
    by_itself = CronJob.objects.filter(agent_id=job.agent_id, source=Source.HEARTBEAT_REFLECT)
    if job.source != Source.HEARTBEAT_REFLECT or by_itself.exclude(pk=job.pk).exists():
        return
    text = f'A heartbeat registered a routine by itself: "{job.name}" ({job.pk}, {job.execution_mode}).'
    mail = Mail(
        event_id=uuid.uuid5(NAMESPACE, f"registered:{job.pk}"),
        event_type="routine_registered",
        summary=text[:LONGEST_SUMMARY],
        detail=f"{text} {OF_FIRST}",
        source_key=source_key,
    )
    tell(job.home_id, job.agent_id, mail)


def first_sentence(text: str) -> str:
    """The first sentence of a reply, at most 200 characters."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    found = _SENTENCE.match(line)
    return (found[0] if found and found[0] else line)[:LONGEST_SUMMARY]
