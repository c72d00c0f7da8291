"""What background work has to say: one deposit in the mailbox of its home (rules 5.4, 6.3)."""

from __future__ import annotations

import re
import uuid

from automations.models import CronJob
from sessions_app.mailbox import LONGEST_SUMMARY, Mail, deposit
from sessions_app.models import PRIMARY_KEY, Priority, Session, Turn

_NAMESPACE = uuid.UUID("6f0b7b0e-1d0c-4d5a-9a52-5d3a3c7f2b11")  # event ids follow from what they tell of
_SENTENCE = re.compile(r".*?(?:[.!?。！？](?=\s|$)|(?<=[。！？])|$)")  # noqa: RUF001


def tell(job: CronJob | None, agent_id: int, mail: Mail) -> bool:
    """Deposit at the job's home, or, when that is gone or none was given, in the primary session."""
    primary = Session.objects.values_list("pk", flat=True).get(agent_id=agent_id, key=PRIMARY_KEY)
    home = job.home_id if job is not None else None
    return deposit(home or primary, mail, or_else=primary)


def mail_of(
    turn: Turn, event_type: str, text: str, *, about: str, source_key: str, urgent: bool = False
) -> Mail:
    """The mail about what a turn did; the same `about` of the same turn is the same event."""
    return Mail(
        event_id=uuid.uuid5(_NAMESPACE, f"{turn.pk}:{about}"),
        event_type=event_type,
        summary=first_sentence(text),
        detail=text,
        source_key=source_key,
        priority=Priority.HIGH if urgent else Priority.NORMAL,
    )


def first_sentence(text: str) -> str:
    """The first sentence of a reply, at most 200 characters."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    found = _SENTENCE.match(line)
    return (found[0] if found and found[0] else line)[:LONGEST_SUMMARY]
