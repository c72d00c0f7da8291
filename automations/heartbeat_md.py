"""HEARTBEAT.md: prose with one JSON block that lists the agent's routines (rule 6.6). Text in, data out.

A text is `ok`, `empty` (no block: nothing is said of routines) or `corrupted` (a block that cannot be understood).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from automations.checks import checked
from automations.models import ExecutionMode, Source
from automations.routine_schedule import BEGINNING, read_first, read_routine_schedule
from automations.schedule import ScheduleError
from automations.zone_files import load_zone
from sessions_app.exceptions import SessionsError

VERSIONS = (1, 2)
MOST_TASKS = 1_000
LONGEST_ID = 200  # characters
MAX_RETRY = 3
HEADING = "## Tasks"
RUN_TIME = frozenset(
    {"state", "last_run_at", "retry", "error_message", "created_at"}
)  # ours to write, not to read
PLAIN = (
    "title", "description", "instructions", "execution_mode", "source", "enabled", "timeout_seconds", "policy",
    "max_retry", "task_type",
)  # fmt: skip
FIELDS = frozenset({"id", "schedule", "timezone", "next_run_at", *PLAIN}) | RUN_TIME
ALIKE = 0.8  # a name as near to one of ours as this is that one misspelt, and not somebody else's
LONGEST_FOREIGN, DEEPEST_FOREIGN = 2_000, 50  # characters of one foreign field as JSON; brackets in it


class Parse(StrEnum):
    """What a text turned out to be."""

    OK = "ok"
    CORRUPTED = "corrupted"
    EMPTY = "empty"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A routine as the document says it; what it leaves out has its default. An empty id: none; zone: the agent's.

    `is_done`: the state of one without a schedule says so, which counts for a new one alone.
    `foreign`: what other programs or people wrote into the task. It means nothing here, and is kept.
    """

    title: str
    id: str = ""
    description: str = ""
    instructions: str = ""
    schedule: str | None = None
    timezone: str = ""
    execution_mode: str = ExecutionMode.INLINE
    source: str = Source.MANUAL
    enabled: bool = True
    next_run_at: str | None = None
    timeout_seconds: int | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    max_retry: int = MAX_RETRY
    task_type: str = ""
    is_done: bool = False
    foreign: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """`problem`: what is wrong with a corrupted text, for whoever mends it."""

    parse: Parse
    tasks: tuple[Task, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class _Fence:
    """A fenced block: where it lies with its fences, where its body lies, and the word after the opening."""

    start: int
    end: int
    body: tuple[int, int]
    language: str
    closed: bool


class _Corrupted(Exception):
    """The block cannot be understood."""


def parse(content: str, *, zone: str, now: datetime) -> Parsed:
    """Read a text; `zone`: the agent's, for tasks that name none."""
    blocks = _task_blocks(content)
    if not blocks:
        return Parsed(parse=Parse.EMPTY)
    try:
        return Parsed(parse=Parse.OK, tasks=_tasks(content, blocks, zone, now))
    except (_Corrupted, SessionsError, ScheduleError) as error:
        return Parsed(parse=Parse.CORRUPTED, problem=str(error))


def render(content: str, tasks: Sequence[Mapping[str, Any]]) -> str:
    """The text with these tasks in its block, and its prose as it was; without tasks a text without block stays."""
    block = _block(tasks)
    blocks = _task_blocks(content)
    if blocks:
        first = blocks[0]
        return content[: first.start] + block + content[first.end :]
    if not tasks:
        return content
    fences = list(_fences(content))
    if fences and not fences[-1].closed:  # else the block would be part of it
        content += "" if content.endswith("\n") else "\n"
        content += _ticks_of(content, fences[-1])
    prose = content.rstrip()
    return (f"{prose}\n\n" if prose else "") + f"{HEADING}\n\n{block}\n"


def prose(content: str) -> str:
    """The text without its block of tasks."""
    for block in reversed(_task_blocks(content)):
        before = content[: block.start].rstrip().removesuffix(HEADING).rstrip()
        content = f"{before}\n\n{content[block.end :].lstrip()}"
    return content.strip()


def mended(content: str, tasks: Sequence[Mapping[str, Any]]) -> str:
    """A corrupted text with a sound block; what could not be read stays, as plain text for people."""
    for block in reversed(_task_blocks(content)):
        opening = content[block.start : block.body[0]].lower().replace("json", "text", 1)
        rest = content[block.body[0] : block.end]
        content = content[: block.start] + opening + rest + content[block.end :]
    return render(content, tasks)


def _block(tasks: Sequence[Mapping[str, Any]]) -> str:
    data = {"version": VERSIONS[-1], "tasks": [dict(task) for task in tasks]}
    return f"```json\n{json.dumps(data, indent=2, ensure_ascii=False)}\n```"


def _task_blocks(content: str) -> list[_Fence]:
    """The JSON blocks that speak of tasks; where none does, every JSON block: one of them was meant to."""
    blocks = [each for each in _fences(content) if each.language == "json"]
    speaking = [each for each in blocks if '"tasks"' in content[each.body[0] : each.body[1]]]
    return speaking or blocks


def _fences(content: str) -> Iterator[_Fence]:
    """The fenced blocks of a Markdown text; one that is not closed ends with the text."""
    opened: tuple[int, int, int, str] | None = None  # start, body, ticks, language
    at = 0
    while at < len(content):
        newline = content.find("\n", at)
        after = len(content) if newline < 0 else newline + 1
        line = content[at:after].strip()
        ticks = len(line) - len(line.lstrip("`"))
        if ticks >= 3:
            info = line[ticks:].strip()
            if opened is None and "`" not in info:
                opened = (at, after, ticks, info.split(None, 1)[0].lower() if info else "")
            elif opened is not None and not info and ticks >= opened[2]:
                end = at + len(content[at:after].rstrip())
                yield _Fence(start=opened[0], end=end, body=(opened[1], at), language=opened[3], closed=True)
                opened = None
        at = after
    if opened is not None:
        end = len(content)
        yield _Fence(start=opened[0], end=end, body=(opened[1], end), language=opened[3], closed=False)


def _ticks_of(content: str, fence: _Fence) -> str:
    line = content[fence.start : fence.body[0]].strip()
    return "`" * (len(line) - len(line.lstrip("`")))


def _tasks(content: str, blocks: list[_Fence], zone: str, now: datetime) -> tuple[Task, ...]:
    if len(blocks) > 1:
        raise _Corrupted(f"there are {len(blocks)} JSON blocks; the tasks stand in one")
    if not blocks[0].closed:
        raise _Corrupted("the JSON block is not closed with ```")
    try:
        data = json.loads(content[blocks[0].body[0] : blocks[0].body[1]])
    except (ValueError, RecursionError) as error:
        raise _Corrupted(f"the JSON block cannot be read: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("tasks"), list):
        raise _Corrupted("the JSON block is no object with a list `tasks`")
    version = data.get("version", VERSIONS[0])
    if isinstance(version, bool) or version not in VERSIONS:
        raise _Corrupted(f"the version must be one of {', '.join(map(str, VERSIONS))}")
    if len(data["tasks"]) > MOST_TASKS:
        raise _Corrupted(f"there are more than {MOST_TASKS} tasks")
    tasks = tuple(_task(number, given, zone, now) for number, given in enumerate(data["tasks"], 1))
    ids = [task.id for task in tasks if task.id]
    twice = next((each for each in ids if ids.count(each) > 1), None) if len(set(ids)) < len(ids) else None
    if twice:
        raise _Corrupted(f"two tasks have the id {twice!r}")
    return tasks


def _task(number: int, given: Any, zone: str, now: datetime) -> Task:
    if not isinstance(given, dict):
        raise _Corrupted(f"task {number} is no object")
    where = f"task {number} ({str(given.get('title'))[:60]!r})"
    foreign = {name: given[name] for name in given if name not in FIELDS}
    for name, value in foreign.items():
        _check_foreign(f"{where} has a field {name[:60]!r}", name, value)
    told = {name: given[name] for name in (FIELDS - RUN_TIME) & given.keys() if given[name] is not None}
    try:
        _check(told, zone, now)
        is_done = given.get("state") == "done" and "schedule" not in told
        return Task(**told, is_done=is_done, foreign=foreign)
    except (SessionsError, ScheduleError) as error:
        raise _Corrupted(f"{where}: {error}") from None


def _check_foreign(what: str, name: str, value: Any) -> None:
    """Kept as it is, unless it is one of ours misspelt: a routine without the schedule that was meant runs at once."""
    meant = difflib.get_close_matches(name.lower(), FIELDS, n=1, cutoff=ALIKE)
    if meant:
        raise _Corrupted(f"{what} that is not known; {meant[0]!r} is")
    written = json.dumps({name: value}, ensure_ascii=False)
    if not _storable(written):
        raise _Corrupted(f"{what} that cannot be stored")
    brackets = written.count("[") + written.count("{")
    if len(written) > LONGEST_FOREIGN or brackets > DEEPEST_FOREIGN:
        raise _Corrupted(f"{what} that is not known and too large to be kept")


def _check(told: dict[str, Any], zone: str, now: datetime) -> None:
    """_Corrupted, BadJob, BadInput or ScheduleError for what no routine can be."""
    for name, value in told.items():
        if isinstance(value, str) and not _storable(value):
            raise _Corrupted(f"{name} holds a character that cannot be stored")
    checked({"title": ""} | {name: told[name] for name in PLAIN if name in told})
    identity = told.get("id", "")
    if not isinstance(identity, str) or len(identity) > LONGEST_ID or not identity.isprintable():
        raise _Corrupted(f"the id must be text of at most {LONGEST_ID} characters on one line")
    if not isinstance(told.get("timezone", ""), str):
        raise _Corrupted("the timezone must be text")
    zone = told.get("timezone") or zone
    load_zone(zone)
    if "schedule" in told:
        read_routine_schedule(told["schedule"], timezone=zone, now=now)
    elif "next_run_at" in told:  # of a task with a schedule it is ours
        read_first(told["next_run_at"], timezone=zone, now=BEGINNING)
    else:
        return
    if not isinstance(told.get("next_run_at", ""), str):
        raise _Corrupted("next_run_at must be text")


def _storable(text: str) -> bool:
    try:
        return "\x00" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False
