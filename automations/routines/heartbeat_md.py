"""Parse and render HEARTBEAT.md: prose with one JSON block that lists the agent's routines (rule 6.6).

A text is `ok`, `empty` (it has no block) or `corrupted` (its block cannot be read).
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any

from agent_core.text.json_values import is_storable, values_at_most
from automations.exceptions import ScheduleError
from automations.jobs.validate import validated
from automations.models import ExecutionMode
from automations.routines.plan import EPOCH, RoutineFields, read_first_run, read_routine_schedule
from automations.schedules.zone_files import load_zone
from sessions_app.exceptions import SessionsError

VERSIONS = (1, 2)
MOST_TASKS = 1_000
MOST_VALUES = 50_000  # of the block's JSON
LONGEST_ID = 200  # characters
HEADING = "## Tasks"
# written by the server, ignored when read
RUN_TIME = frozenset({"state", "last_run_at", "retry", "error_message", "created_at"})
PLAIN = (
    "title", "description", "instructions", "execution_mode", "source", "enabled", "timeout_seconds", "policy",
    "max_retry", "task_type",
)  # fmt: skip
FIELDS = frozenset({"id", "schedule", "timezone", "next_run_at", *PLAIN}) | RUN_TIME
# null is a value of them; of other fields it says nothing
CLEARABLE = frozenset({"schedule", "timeout_seconds"})
_TASKS_KEY = re.compile(r"""(?:^|[{,])[^\S\n]*["']?tasks?["']?\s*:""", re.MULTILINE | re.IGNORECASE)
_TASK_KEYS = tuple(re.compile(rf"""["']{name}["']\s*:""") for name in ("title", "(?:schedule|next_run_at)"))
ALIKE = 0.8  # an unknown name this similar to a known one is taken for a misspelling
MOST_FENCES = 1_000  # fenced blocks that are read; later ones count as prose
MOST_FOREIGN = 100  # names of unknown fields in all tasks
LONGEST_MEANT = 2 * max(map(len, FIELDS))
LONGEST_FOREIGN, DEEPEST_FOREIGN = 2_000, 50  # of one unknown field as JSON: characters; brackets


class Parse(StrEnum):
    """The result of parsing a text."""

    OK = "ok"
    CORRUPTED = "corrupted"
    EMPTY = "empty"


@dataclass(frozen=True, kw_only=True)
class Task(RoutineFields):
    """A routine in the document, with defaults for missing fields. Empty `id`: new.

    `given`: the names of the fields that the text has; a known routine keeps its values of the others. No `title`: a
    known routine is meant. `is_done`: the state of a task without schedule is `done`; used for new routines only.
    `foreign`: unknown fields, written by other programs or people; they are stored unchanged.
    """

    id: str = ""
    is_done: bool = False
    foreign: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A parsed text. `problem`: why a corrupted text cannot be read."""

    parse: Parse
    tasks: tuple[Task, ...] = ()
    problem: str = ""


class _Corrupted(Exception):
    """The block cannot be read."""


def parse_heartbeat_md(content: str, *, zone: str, now: datetime) -> Parsed:
    """Parse a text. `zone`: the agent's, for tasks without a zone."""
    blocks = _task_blocks(content)
    if not blocks:
        return Parsed(parse=Parse.EMPTY)
    try:
        return Parsed(parse=Parse.OK, tasks=_tasks(content, blocks, zone, now))
    except (_Corrupted, SessionsError, ScheduleError) as error:
        return Parsed(parse=Parse.CORRUPTED, problem=str(error))


def render_heartbeat_md(content: str, tasks: Sequence[Mapping[str, Any]]) -> str:
    """The text with these tasks as its block; the prose is unchanged. Without tasks no block is added."""
    block = _block(tasks)
    blocks = _task_blocks(content)
    if blocks:
        first = blocks[0]
        return content[: first.start] + block + content[first.end :]
    if not tasks:
        return content
    found = list(fences(content))
    if found and not found[-1].closed:  # close it, so that the new block is not part of it
        content += "" if content.endswith("\n") else "\n"
        content += ticks_of(content, found[-1])
    prose = content.rstrip()
    return (f"{prose}\n\n" if prose else "") + f"{HEADING}\n\n{block}\n"


def prose(content: str) -> str:
    """The text without its block of tasks."""
    pieces = text_around_blocks(content)
    pieces[:-1] = [piece.rstrip().removesuffix(HEADING) for piece in pieces[:-1]]
    return "\n\n".join(piece for each in pieces if (piece := each.strip())).strip()


def text_around_blocks(content: str) -> list[str]:
    """The pieces of text before, between and after the blocks of tasks."""
    blocks = _task_blocks(content)
    starts, ends = [0, *(block.end for block in blocks)], [*(block.start for block in blocks), len(content)]
    return [content[start:end] for start, end in zip(starts, ends, strict=True)]


def task_blocks_text(content: str) -> str:
    """The blocks of tasks as they are in the text, for their repair."""
    return "\n\n".join(content[block.start : block.end].rstrip() for block in _task_blocks(content))


def replace_broken_block(content: str, tasks: Sequence[Mapping[str, Any]]) -> str:
    """A corrupted text with one block of these tasks instead of its blocks; the prose is unchanged."""
    last, pieces = _task_blocks(content)[-1], text_around_blocks(content)
    # in a block that was not closed, text after the JSON is prose; its fences must not open a new block
    body = "" if last.closed else content[slice(*last.body)]
    swallowed = body[max(body.rfind("}"), body.rfind("]")) + 1 :].strip().replace("```", "~~~")
    return pieces[0] + _block(tasks) + (f"\n\n{swallowed}\n" if swallowed else "") + "".join(pieces[1:])


def _block(tasks: Sequence[Mapping[str, Any]]) -> str:
    data = {"version": VERSIONS[-1], "tasks": [dict(task) for task in tasks]}
    return f"```json\n{json.dumps(data, indent=2, ensure_ascii=False)}\n```"


def _task_blocks(content: str) -> list[Fence]:
    """The JSON blocks with `"tasks"`; if there is none, those that seem to list tasks or cannot be read.

    Other JSON blocks are prose.
    """
    blocks = {
        each: content[each.body[0] : each.body[1]]
        for each in islice(fences(content), MOST_FENCES)
        if each.language == "json"
    }
    speaking = [each for each, text in blocks.items() if '"tasks"' in text]
    return speaking or [each for each, text in blocks.items() if _seems_to_list_tasks(text)]


def _seems_to_list_tasks(text: str) -> bool:
    """Whether the JSON looks like a list of tasks; also if it cannot be read, because it may have been one."""
    if _TASKS_KEY.search(text) or all(key.search(text) for key in _TASK_KEYS):
        return True
    if values_at_most(text) > MOST_VALUES:
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return True
    return False


def _tasks(content: str, blocks: list[Fence], zone: str, now: datetime) -> tuple[Task, ...]:
    if len(blocks) > 1:
        raise _Corrupted(f"there are {len(blocks)} JSON blocks; put all tasks into one")
    if not blocks[0].closed:
        raise _Corrupted("the JSON block is not closed with ```")
    block = content[blocks[0].body[0] : blocks[0].body[1]]
    if values_at_most(block) > MOST_VALUES:
        raise _Corrupted(f"the JSON block cannot be read: it holds more than {MOST_VALUES:,} values")
    try:
        data = json.loads(block)
    except json.JSONDecodeError as error:
        line = content.count("\n", 0, blocks[0].body[0]) + error.lineno
        problem = f"the JSON block cannot be read: {error.msg}: line {line}, column {error.colno}"
        raise _Corrupted(problem) from None
    except (ValueError, RecursionError) as error:
        raise _Corrupted(f"the JSON block cannot be read: {error}") from None
    given = _listed(data)
    # version 1 knows no modes, so all of its tasks are inline
    unsaid = ExecutionMode.INLINE if data.get("version", VERSIONS[0]) == VERSIONS[0] else None
    tasks = tuple(_task(number, each, zone, now, unsaid) for number, each in enumerate(given, 1))
    if twice := [each for each, times in Counter(task.id for task in tasks if task.id).items() if times > 1]:
        raise _Corrupted(f"two tasks have the id {twice[0]!r}")
    return tasks


def _listed(data: Any) -> list[Any]:
    if not isinstance(data, dict) or not isinstance(data.get("tasks"), list):
        raise _Corrupted("the JSON block is not an object with a list `tasks`")
    version = data.get("version", VERSIONS[0])
    if isinstance(version, bool) or version not in VERSIONS:
        raise _Corrupted(f"the version must be one of {', '.join(map(str, VERSIONS))}")
    given: list[Any] = data["tasks"]
    if len(given) > MOST_TASKS:
        raise _Corrupted(f"there are more than {MOST_TASKS} tasks")
    unknown = {name for each in given if isinstance(each, dict) for name in each.keys() - FIELDS}
    if len(unknown) > MOST_FOREIGN:
        raise _Corrupted(
            f"the tasks have {len(unknown):,} unknown fields; at most {MOST_FOREIGN} are allowed"
        )
    return given


def _task(number: int, given: Any, zone: str, now: datetime, unsaid: ExecutionMode | None) -> Task:
    if not isinstance(given, dict):
        raise _Corrupted(f"task {number} is not an object")
    where = f"task {number} ({str(given.get('title') or given.get('id'))[:60]!r})"
    foreign = {name: given[name] for name in given if name not in FIELDS}
    for name, value in foreign.items():
        _check_foreign(f"{where} has a field {name[:60]!r}", name, value)
    told = {name: given[name] for name in (FIELDS - RUN_TIME) & given.keys() if given[name] is not None}
    names = told.keys() | {name for name in CLEARABLE if name in given}
    try:
        _check(told, zone, now)
        is_done = given.get("state") == "done" and "schedule" not in told
        told = {"execution_mode": unsaid} | told
        return Task(**told, is_done=is_done, foreign=foreign, given=frozenset(names))
    except (SessionsError, ScheduleError) as error:
        raise _Corrupted(f"{where}: {error}") from None


def _check_foreign(what: str, name: str, value: Any) -> None:
    """Reject an unknown field that is too large or looks misspelt: a misspelt `schedule` would make it run at once."""
    if meant := _meant(name):
        raise _Corrupted(f"{what} that is unknown; did you mean {meant!r}?")
    written = json.dumps({name: value}, ensure_ascii=False)
    if not is_storable(written):
        raise _Corrupted(f"{what} that cannot be stored")
    brackets = written.count("[") + written.count("{")
    if len(written) > LONGEST_FOREIGN or brackets > DEEPEST_FOREIGN:
        raise _Corrupted(f"{what} that is unknown and too large to store")


@lru_cache(maxsize=MOST_FOREIGN)
def _meant(name: str) -> str:
    """The known field that the name may be a misspelling of; empty: none."""
    if len(name) > LONGEST_MEANT:  # a slow search that would find nothing
        return ""
    return next(iter(difflib.get_close_matches(name.lower(), FIELDS, n=1, cutoff=ALIKE)), "")


def _check(told: dict[str, Any], zone: str, now: datetime) -> None:
    """Raise _Corrupted, BadJob, BadInput or ScheduleError for an invalid field."""
    for name, value in told.items():
        if isinstance(value, str) and not is_storable(value):
            raise _Corrupted(f"{name} holds a character that cannot be stored")
    identity = told.get("id", "")
    title = {} if identity else {"title": ""}  # a known routine keeps its title
    validated(title | {name: told[name] for name in PLAIN if name in told})
    if not isinstance(identity, str) or len(identity) > LONGEST_ID or not identity.isprintable():
        raise _Corrupted(f"the id must be text of at most {LONGEST_ID} characters on one line")
    if not isinstance(told.get("timezone", ""), str):
        raise _Corrupted("the timezone must be text")
    zone = told.get("timezone") or zone
    load_zone(zone)
    if "schedule" in told:
        read_routine_schedule(told["schedule"], timezone=zone, now=now)
    elif "next_run_at" in told:  # with a schedule the server writes it
        read_first_run(told["next_run_at"], timezone=zone, now=EPOCH)
    else:
        return
    if not isinstance(told.get("next_run_at", ""), str):
        raise _Corrupted("next_run_at must be text")


_FENCE_LINE = re.compile(r"^[^\S\n]*(?P<ticks>`{3,})(?P<info>.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A fenced block: its position with fences, the position of its body, and the word after the opening fence."""

    start: int
    end: int
    body: tuple[int, int]
    language: str
    closed: bool


def fences(content: str) -> Iterator[Fence]:
    """The fenced blocks of a Markdown text; an unclosed one ends with the text."""
    opened: tuple[int, int, int, str] | None = None  # start, body, ticks, language
    for line in _FENCE_LINE.finditer(content):
        ticks, info = len(line["ticks"]), line["info"].strip()
        if opened is None and "`" not in info:
            after = min(line.end() + 1, len(content))
            opened = (line.start(), after, ticks, info.split(None, 1)[0].lower() if info else "")
        elif opened is not None and not info and ticks >= opened[2]:
            body = (opened[1], line.start())
            yield Fence(start=opened[0], end=line.end("ticks"), body=body, language=opened[3], closed=True)
            opened = None
    if opened is not None:
        end = len(content)
        yield Fence(start=opened[0], end=end, body=(opened[1], end), language=opened[3], closed=False)


def ticks_of(content: str, fence: Fence) -> str:
    """The backticks that open a block."""
    line = content[fence.start : fence.body[0]].strip()
    return "`" * (len(line) - len(line.lstrip("`")))
