"""A conversation as Markdown: who said what and when; tools by their names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from agent_core.types import Role
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import Message, Session
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.single_line import one_line

LONGEST_TITLE = 200  # characters
PAGE = 50  # rows that are read at once: a message may be long


def markdown_of(session: Session, timezone: str) -> Iterator[str]:
    """The conversation's own messages on the clock of this zone, piece by piece. `session.agent` is read."""
    zone = zone_or_utc(timezone)

    def local(at: datetime) -> str:
        return f"{at.astimezone(zone):%Y-%m-%d %H:%M}"

    agent = session.agent.name
    title = one_line(session.title or agent, LONGEST_TITLE)
    yield f"# {title}\n\nWith {agent}, begun {local(session.created_at)} ({zone.key}).\n"
    for row in messages_of(session):
        if text := _said(row):
            yield f"\n**{_who(row, agent)}**, {local(row.created_at)}\n\n{text}\n"


def messages_of(session: Session) -> Iterator[Message]:
    """The session's own messages in their order."""
    seq = 0
    while rows := list(Message.objects.filter(session=session, seq__gt=seq).order_by("seq")[:PAGE]):
        yield from rows
        seq = rows[-1].seq


def _who(row: Message, agent: str) -> str:
    if row.role == Role.USER:
        return "Automation" if row.metadata.get(BY_AUTOMATION) else "You"
    return agent


def _said(row: Message) -> str:
    if row.role == Role.TOOL:
        return ""  # what a tool returned stands in the answer
    names = ", ".join(f"`{one_line(str(each.get('name')), 60)}`" for each in row.parts.get("calls", ()))
    return "\n\n".join(filter(None, (row.content.strip(), f"*Used {names}*" if names else "")))
