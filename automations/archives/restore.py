"""Import an archive into new agents of a user: all or nothing, checked as what people type, and trusted in nothing.

Names that exist get a number. Automations and routines come in paused; connections, hooks, tokens, channels, addresses,
gates, permissions of tools, scheduled messages and turns do not come. Imported messages count as text from outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, Any

from django.contrib.auth.models import User
from django.db import DataError, transaction

from agent_core.types import Ended, Ending, Role, ToolCall, ToolOutcome, ToolResult
from automations.archives.export import MARKS, PLAIN, PLAIN_ROUTINE, SETTINGS
from automations.archives.read import ArchiveRefused, read_lines
from automations.jobs.edit import NewJob, create_job
from automations.models import Source
from automations.routines.edit import NewRoutine, add_routine
from automations.routines.heartbeat_document import NAME as HEARTBEAT_MD
from automations.routines.heartbeat_md import text_around_blocks
from sessions_app import permits
from sessions_app.agents.documents import put_document, put_preference
from sessions_app.agents.edit import new_agent
from sessions_app.connections.usable import refusal
from sessions_app.exceptions import BadInput, SessionsError
from sessions_app.limits import quotas
from sessions_app.memory.history import FINDINGS
from sessions_app.memory.task_state import LISTS, TEXTS, remember
from sessions_app.models import Agent, Message, ReadMark, Session, SessionState, SessionType
from sessions_app.models.agent import DOCUMENTS
from sessions_app.models.message import BY_AUTOMATION, ENDED_KEY
from sessions_app.sessions.open import open_session, primary_session
from sessions_app.single_line import check_line

LONGEST_NAME = 64  # characters of an agent's name
LONGEST_CONTENT = 1_000_000  # characters of a message
LONGEST_TITLE = LONGEST_MARK = 200
MOST_PLANNED = 2_000  # automations and routines of an archive: paused ones have no other bound
STORED_AT_ONCE = 200  # messages
INERT = {"enabled": False, "gate": None, "source": Source.IMPORT}  # a gate asks an address
STORED = (
    *("title", "title_given", "created_at", "updated_at"),
    *("last_seq", "window_from_seq", "stored_bytes"),
)
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_FLAG_MARKS = {BY_AUTOMATION, "injected", "partial"}
_ENDS: dict[str, set[Any]] = {ENDED_KEY: set(Ended), "closure": {Ending.FAILED, Ending.CANCELLED}}


@transaction.atomic
def import_archive(user: User, file: IO[bytes]) -> Counter[str]:
    """Import an archive. Returns how many lines of each kind came in; `left out`: scheduled messages, and those
    whose time has passed.

    ArchiveRefused, which names the line; then nothing is stored.
    """
    quotas.check_room(user.pk)
    restoring = _Restoring(user=user)
    for number, kind, value in read_lines(file):
        try:
            restoring.take(kind, value)
        except ArchiveRefused:
            raise
        except SessionsError as refused:
            raise ArchiveRefused(f"line {number}: {refused}") from refused
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DataError) as error:
            raise ArchiveRefused(f"line {number}: a {kind[:60]!r} with a wrong or missing value") from error
    restoring.end_session()
    return restoring.done


@dataclass(kw_only=True)
class _Restoring:
    """The import so far: the agent and the conversation that the next lines belong to."""

    user: User
    agent: Agent | None = None
    session: Session | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    unchecked: int = 0  # bytes that were stored since the user's storage was added up
    done: Counter[str] = field(default_factory=Counter)

    def take(self, kind: str, value: dict[str, Any]) -> None:
        """Store one line. SessionsError; KeyError, TypeError or ValueError for a value of a wrong shape."""
        if kind == "turn":  # only to be read: it would count as used here
            return
        takes: dict[str, Callable[[dict[str, Any]], bool | None]] = {
            "agent": self._agent,
            "document": self._document,
            "preferences": self._preferences,
            "routine": self._routine,
            "conversation": self._conversation,
            "memory": self._memory,
            "automation": self._automation,
            "scheduled_message": lambda _: False,  # it would be sent
            "message": self._message,
        }
        if takes[kind](value) is False:
            self.done["left out"] += 1
        else:
            self.done[kind] += 1

    def _agent(self, given: dict[str, Any]) -> None:
        self.end_session()
        settings = {name: given[name] for name in SETTINGS}
        settings["heartbeat"] = {**settings["heartbeat"], "enabled": False}
        for name in ("model", "fallback_model"):
            settings[name] = self._usable(settings[name])
        self.agent = new_agent(self.user, self._free_name(_text(given["name"], LONGEST_NAME)), settings)

    def _free_name(self, name: str) -> str:
        taken = set(Agent.objects.filter(owner=self.user).values_list("name", flat=True))
        others = (f"{name[: LONGEST_NAME - 5].rstrip()} {number}" for number in range(2, len(taken) + 3))
        return name if name not in taken else next(each for each in others if each not in taken)

    def _usable(self, model: Any) -> str:
        """The model if the user may use it here, else the default."""
        name = _text(model, LONGEST_MARK)
        return "" if name and refusal(self.user.pk, name) else name

    def _document(self, given: dict[str, Any]) -> None:
        if given["name"] not in DOCUMENTS:
            raise BadInput(f"there is no document {str(given['name'])[:60]!r}")
        text = _text(given["content"])
        if given["name"] == HEARTBEAT_MD:  # its block would become routines that are not paused
            while len(pieces := text_around_blocks(text)) > 1:  # without one block another may count as one
                text = "".join(pieces)
        put_document(_there(self.agent).pk, given["name"], text)

    def _preferences(self, given: dict[str, Any]) -> None:
        put_preference(_there(self.agent), self.user.pk, _text(given["content"]))

    def _routine(self, given: dict[str, Any]) -> None:
        self._count_planned()
        agent, once = _there(self.agent), given["schedule"] is None
        plain = {name: given[name] for name in PLAIN_ROUTINE} | INERT
        texts: dict[str, Any] = {"title": _text(given["title"]), "instructions": _text(given["instructions"])}
        at = _instant(given["at"]) if once else None
        first = at.isoformat() if at else None
        add_routine(
            NewRoutine(
                agent_id=agent.pk,
                session_id=self.session.pk if self.session else None,
                schedule=None if once else _text(given["schedule"]),
                next_run_at=first,
                ended=at is not None and at <= datetime.now(UTC),
                **texts,
                **plain,
            )
        )

    def _count_planned(self) -> None:
        if self.done["routine"] + self.done["automation"] >= MOST_PLANNED:
            raise ArchiveRefused(f"the archive has more than {MOST_PLANNED:,} automations and routines")

    def _conversation(self, given: dict[str, Any]) -> None:
        agent = _there(self.agent)
        self.end_session()
        title = check_line("title", _text(given["title"], LONGEST_TITLE))
        if given["type"] == SessionType.PRIMARY:
            self.session = primary_session(agent)
        else:
            self.session = open_session(agent)
            self.session.title, self.session.title_given = title, given["title_given"] is True
        self.session.created_at, self.session.updated_at = (
            _past(given["created_at"]),
            _past(given["updated_at"]),
        )
        self.about = {"window": int(given["window_from_seq"]), "state": given["state"]}

    def _memory(self, given: dict[str, Any]) -> None:
        remember(_there(self.session).pk, {name: given[name] for name in (*TEXTS, *LISTS) if name in given})

    def _automation(self, given: dict[str, Any]) -> bool | None:
        self._count_planned()
        ends = [given["ends_at"], given["schedule"].get("at")]
        if any(end is not None and _instant(end) <= datetime.now(UTC) for end in ends):
            return False
        plain = {name: given[name] for name in PLAIN} | INERT | {"ping_url": ""}
        for name in ("model", "fallback_model"):
            plain[name] = self._usable(plain[name])
        if plain["allow_tools"] is not None:
            plain["allow_tools"] = [name for name in plain["allow_tools"] if _is_tool(name)]
        create_job(NewJob(session_id=_there(self.session).pk, schedule=given["schedule"], **plain))
        return None

    def _message(self, given: dict[str, Any]) -> None:
        session = _there(self.session)
        session.last_seq += 1
        row = Message(
            session=session,
            seq=session.last_seq,
            role=Role(given["role"]),
            content=_text(given["content"], LONGEST_CONTENT),
            parts=_parts(given["parts"]),
            metadata={name: _mark(name, given["marks"][name]) for name in MARKS if name in given["marks"]},
            created_at=_past(given["created_at"]),
        )
        row.metadata[FINDINGS] = True
        self.messages.append(row)
        if len(self.messages) >= STORED_AT_ONCE:
            self._store_messages()

    def _store_messages(self) -> None:
        session = _there(self.session)
        stored = sum(len(f"{row.content}{row.parts}{row.metadata}".encode()) for row in self.messages)
        session.stored_bytes += stored
        quotas.count_stored(session.owner_id, stored)
        Message.objects.bulk_create(self.messages)
        self.messages.clear()
        self.unchecked += stored
        if self.unchecked >= quotas.CHECKED_EACH:
            self.unchecked = 0
            session.save(update_fields=["stored_bytes"])
            quotas.check_room(session.owner_id)

    def end_session(self) -> None:
        """Store what is left of a conversation, which then is as it was: archived or open, and read."""
        if (session := self.session) is None:
            return
        self._store_messages()
        session.window_from_seq = min(max(1, self.about["window"]), session.last_seq + 1)
        if self.about["state"] == SessionState.ARCHIVED and session.type == SessionType.SUB:
            Session.objects.filter(pk=session.pk).archive()
        session.save(update_fields=STORED)
        ReadMark.objects.update_or_create(session=session, defaults={"seq": session.last_seq})
        self.session = None


def _there(found: Any) -> Any:
    """What the line belongs to. ArchiveRefused if it stands before it."""
    if found is None:
        raise BadInput("it stands before its agent or its conversation")
    return found


def _text(value: Any, most: int = 1_000_000) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError
    return value


def _instant(value: Any) -> datetime:
    found = datetime.fromisoformat(_text(value, 40))
    if found.tzinfo is None:
        raise ValueError
    return found.astimezone(UTC)


def _past(value: Any) -> datetime:
    """An instant that can have been."""
    found = _instant(value)
    if found < EARLIEST:
        raise ValueError
    return min(found, datetime.now(UTC))


def _mark(name: str, value: Any) -> Any:
    if name in _FLAG_MARKS:
        return bool(value)
    known = _ENDS.get(name)
    if known is not None and value not in known:
        raise ValueError
    return _text(value, LONGEST_MARK)


def _parts(given: dict[str, Any]) -> dict[str, Any]:
    """The tool calls and results of a message. KeyError, TypeError, ValueError."""
    calls = [_call(ToolCall.from_json(each)) for each in given.get("calls", [])]
    results = [_result(ToolResult.from_json(each)) for each in given.get("results", [])]
    return {name: each for name, each in (("calls", calls), ("results", results)) if each}


def _call(call: ToolCall) -> dict[str, Any]:
    _text(call.id, LONGEST_MARK), _text(call.name, LONGEST_MARK), _text(call.unparsed or "")
    if not isinstance(call.arguments, dict):
        raise TypeError
    return call.to_json()


def _result(result: ToolResult) -> dict[str, Any]:
    _text(result.id, LONGEST_MARK), _text(result.name, LONGEST_MARK)
    (
        _text(result.output, LONGEST_CONTENT),
        _text(result.error_class, LONGEST_MARK),
        ToolOutcome(result.outcome),
    )
    return result.to_json() | ({"foreign": True} if result.foreign else {})


def _is_tool(name: Any) -> bool:
    """Whether this server has the tool: a list of allowed ones gets shorter, never longer."""
    try:
        permits.check_allowed_tools([_text(name, LONGEST_MARK)], (), {})
    except BadInput:
        return False
    return True
