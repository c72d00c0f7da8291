"""Everything of one user as a zip, piece by piece: `archive.jsonl`, each conversation as Markdown, files. No secrets.

`archive.jsonl` has one JSON object with one key in a line. The key says what it is: `archive`, then for each agent
`agent`, `document`, `preferences`, `routine`, then for each of its conversations `conversation`, `memory`, `routine`,
`automation`, `scheduled_message`, `message`, `turn`. What follows a line belongs to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from django.contrib.auth.models import User
from django.core.serializers.json import DjangoJSONEncoder

from automations.archives.markdown import PAGE, markdown_of, messages_of
from automations.exceptions import ScheduleError
from automations.models import CronJob, MessageStatus, ScheduledMessage
from automations.routines.edit import agent_routines
from automations.routines.heartbeat_document import NAME as HEARTBEAT_MD
from automations.routines.heartbeat_md import text_around_blocks
from automations.routines.plan import routine_schedule_text
from automations.schedules.plan import schedule_of
from sessions_app.agents.mcp_servers import visible_servers
from sessions_app.agents.zones import zone_of
from sessions_app.memory.task_state import stored_state, task_state_of
from sessions_app.models import Agent, Attachment, Document, Message, Preference, Session, SessionType, Turn
from sessions_app.models.message import BY_AUTOMATION, ENDED_KEY

FORMAT, VERSION = "rondo", 1
LINES = "archive.jsonl"
_ENDINGS = {"text/plain": "txt"}
CONVERSATIONS = (SessionType.PRIMARY, SessionType.SUB)
SETTINGS = (
    *("timezone", "engine", "unified_session", "heartbeat", "routine_limit", "policy", "limits"),
    *("model", "fallback_model", "model_settings"),
)
NOT_IMPORTED = (
    "events_url",
    "allow_tools",
)  # an archive of somebody else must not reach out or allow anything
PLAIN = (  # of automations, as the API names them
    *("name", "message", "enabled", "overlap", "catch_up", "timeout_seconds", "ends_at", "max_runs"),
    *(
        "jitter_seconds",
        "max_retry",
        "ping_url",
        "model",
        "fallback_model",
        "max_output_tokens",
        "allow_tools",
    ),
    *("gate", "limits"),
)
PLAIN_ROUTINE = (
    *("description", "timezone", "execution_mode", "timeout_seconds", "policy", "max_retry", "task_type"),
    *("enabled", "gate", "limits"),
)
MARKS = (BY_AUTOMATION, "automation_name", "injected", "partial", "closure", ENDED_KEY)
OF_TURN = (
    *("id", "kind", "state", "content", "model", "ended_by", "usage", "error_code", "error"),
    *("queued_at", "started_at", "finished_at"),
)


class _Sink:
    """Where the zip is written to: a file that cannot seek, whose bytes are taken away."""

    def __init__(self) -> None:
        self.held = bytearray()

    def write(self, data: bytes) -> int:
        self.held += data
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered elsewhere."""

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = bytes(self.held)
        self.held.clear()
        return taken


def export(user: User) -> Iterator[bytes]:
    """The archive, piece by piece; a piece may be empty. No cursor stays open between them."""
    sink = _Sink()
    with ZipFile(sink, "w", ZIP_DEFLATED) as archive:  # type: ignore[call-overload]  # it needs write and flush
        for name, pieces in _files(user):
            with archive.open(name, "w", force_zip64=True) as file:
                for piece in pieces:
                    file.write(piece)
                    yield sink.take()
    yield sink.take()


def _files(user: User) -> Iterator[tuple[str, Iterator[bytes]]]:
    yield LINES, (f"{json.dumps(line, cls=DjangoJSONEncoder)}\n".encode() for line in _lines(user))
    number = 0
    for agent in _agents(user):
        for session in _sessions(agent):
            number += 1
            texts = markdown_of(session, zone_of(user.pk) or agent.timezone)
            yield f"conversations/{number}.md", (text.encode() for text in texts)
            for pk, kind in Attachment.objects.filter(session=session).values_list("pk", "media_type"):
                yield f"files/{pk}.{_ENDINGS.get(kind, kind.partition('/')[2])}", _file(pk)


def _file(pk: Any) -> Iterator[bytes]:
    for content in Attachment.objects.filter(pk=pk).values_list("content", flat=True):
        yield bytes(content)


def _lines(user: User) -> Iterator[Mapping[str, Any]]:
    """The lines of `archive.jsonl`."""
    about = {"format": FORMAT, "version": VERSION, "made_at": datetime.now(UTC), "timezone": zone_of(user.pk)}
    yield {"archive": about | {"user": user.get_username()}}
    for agent in _agents(user):
        yield {"agent": _agent(agent)}
        for row in Document.objects.filter(agent=agent).order_by("name"):
            # the routines that it lists have lines of their own
            text = "".join(text_around_blocks(row.content)) if row.name == HEARTBEAT_MD else row.content
            yield {"document": {"name": row.name, "content": text}}
        for text in Preference.objects.filter(agent=agent, user=user).values_list("content", flat=True):
            yield {"preferences": {"content": text}}
        yield from ({"routine": _routine(job)} for job in agent_routines(agent.pk).filter(home=None))
        for session in _sessions(agent):
            yield from _conversation(session)


def _agents(user: User) -> Iterator[Agent]:
    """The user's agents, each read when it is its turn."""
    for pk in list(Agent.objects.filter(owner=user).order_by("pk").values_list("pk", flat=True)):
        yield from Agent.objects.filter(pk=pk)


def _sessions(agent: Agent) -> Iterator[Session]:
    """The conversations of an agent, the primary one first."""
    rows = Session.objects.filter(agent=agent, type__in=CONVERSATIONS).order_by("type", "created_at", "pk")
    for pk in list(rows.values_list("pk", flat=True)):
        yield from Session.objects.select_related("agent").filter(pk=pk)


def _agent(agent: Agent) -> dict[str, Any]:
    shown = {name: getattr(agent, name) for name in ("name", *SETTINGS, *NOT_IMPORTED)}
    return shown | {"mcp_servers": visible_servers(agent)}


def _conversation(session: Session) -> Iterator[Mapping[str, Any]]:
    shown = (
        "title",
        "title_given",
        "type",
        "channel",
        "state",
        "window_from_seq",
        "created_at",
        "updated_at",
    )
    yield {"conversation": {name: getattr(session, name) for name in shown}}
    if state := stored_state(session.pk):
        yield {"memory": task_state_of(state).to_json()}
    yield from ({"routine": _routine(job)} for job in agent_routines(session.agent_id).filter(home=session))
    for job in CronJob.objects.filter(session=session).select_related("agent").order_by("created_at", "pk"):
        with suppress(ScheduleError):  # one that was disabled because its schedule cannot be read
            schedule = schedule_of(job).to_json(zone=job.agent.timezone)
            yield {"automation": {name: getattr(job, name) for name in PLAIN} | {"schedule": schedule}}
    waiting = ScheduledMessage.objects.filter(session=session, status=MessageStatus.PENDING)
    for row in waiting.order_by("send_at", "pk"):
        yield {"scheduled_message": {"send_at": row.send_at, "message_text": row.message_text}}
    yield from ({"message": _message(row)} for row in messages_of(session))
    yield from ({"turn": {name: getattr(row, name) for name in OF_TURN}} for row in _turns(session))


def _turns(session: Session) -> Iterator[Turn]:
    last = 0
    while rows := list(Turn.objects.filter(session=session, pk__gt=last).order_by("pk")[:PAGE]):
        yield from rows
        last = rows[-1].pk


def _message(row: Message) -> dict[str, Any]:
    marks = {name: row.metadata[name] for name in MARKS if name in row.metadata}
    shown = {"role": row.role, "content": row.content, "created_at": row.created_at, "turn": row.turn_id}
    return shown | {"parts": row.parts, "marks": marks}


def _routine(job: CronJob) -> dict[str, Any]:
    shown = {name: getattr(job, name) for name in PLAIN_ROUTINE}
    named = {"title": job.name, "instructions": job.message, "schedule": routine_schedule_text(job)}
    return shown | named | {"at": job.at}
