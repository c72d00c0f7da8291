"""Read nanobot's job store from a file, and convert each of its jobs or refuse it with a reason.

The whole file is refused when it is not UTF-8 or JSON, repeats a key, or has a value of an impossible type.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_core.text.json_values import clean_value, is_storable
from automations.exceptions import ScheduleError
from automations.jobs.validate import LONGEST_NAME, validated
from automations.models import JobKind, ScheduleKind
from automations.models.job import RESERVED_IDS, Category
from automations.schedules.schedule import (
    AtSchedule,
    EverySchedule,
    Schedule,
    parse_schedule,
    whole_milliseconds,
)
from sessions_app.exceptions import SessionsError
from sessions_app.models import PRIMARY_KEY
from sessions_app.single_line import one_line

LARGEST = 50_000_000  # bytes
DEEPEST = 60  # levels
_TEXT = (str, int, float)  # numbers are accepted as text, such as chat ids
_NUMBER = (int, float, str)  # and text as numbers
_FLAG = (bool, int, str)
_SHAPE: Mapping[str, Any] = {
    "id": _TEXT,
    "name": _TEXT,
    "enabled": _FLAG,
    "schedule": {"kind": (str,), "atMs": _NUMBER, "everyMs": _NUMBER, "expr": (str,), "tz": (str,)},
    "payload": {
        "kind": (str,),
        "message": _TEXT,
        "deliver": _FLAG,
        "channel": _TEXT,
        "to": _TEXT,
        "channelMeta": dict,
        "sessionKey": _TEXT,
    },
    "state": {"nextRunAtMs": _NUMBER, "lastRunAtMs": _NUMBER},
}
LONGEST = {"id": 200, "sessionKey": 200, "channel": 64, "to": 200}
NAME_FROM_MESSAGE = 30  # characters
NANOBOTS_WEB, OUR_WEB = "websocket:", "web:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR = 9000
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class StoreRefused(Exception):
    """The file is not a valid job store; the message names the place."""

    code = "corrupt_store"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredJob:
    """One job of the file, its known fields in camelCase; `place` is its position, such as `jobs[3]`."""

    place: str
    fields: Mapping[str, Any]

    def get(self, *path: str) -> Any:
        """The value of a field, such as ("schedule", "expr"); None when it is missing or null."""
        found: Any = self.fields
        for name in path:
            found = (found or {}).get(name)
        return found


class _Fault:
    """Replaces an ambiguous or invalid value in the tree, until its place is known for the error text."""

    def __init__(self, text: str) -> None:
        self.text = text


def read_store(content: bytes) -> list[StoredJob]:
    """The jobs of a store: `{"jobs": [...]}` or a list. StoreRefused."""
    if len(content) > LARGEST:
        raise StoreRefused(f"the file is larger than {LARGEST:,} bytes")
    tree = _parsed(_decoded(content))
    if isinstance(tree, dict) and "jobs" not in tree:
        raise StoreRefused("the file has no `jobs`")
    found, place = (tree["jobs"], "jobs") if isinstance(tree, dict) else (tree, "the file")
    if not isinstance(found, list | None):
        raise StoreRefused(f"{place} is {_kind(found)} where a list of jobs is expected")
    return [_job(entry, f"jobs[{number}]") for number, entry in enumerate(found or ())]


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise StoreRefused(f"line {line}, byte {column}: the file is not UTF-8") from None


def _parsed(text: str) -> Any:
    try:
        tree = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_int)
        fault = _fault_in(tree, "", DEEPEST)
    except json.JSONDecodeError as error:
        raise StoreRefused(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise StoreRefused("the file is nested too deeply") from None
    if fault is not None:
        raise StoreRefused(fault)
    return tree


def _object(pairs: list[tuple[str, Any]]) -> Any:
    made: dict[str, Any] = {}
    for key, value in pairs:
        made[key] = _Fault("is repeated") if key in made else value
    return made


def _constant(name: str) -> Any:
    return _Fault(f"is {name}, which is not JSON")


def _int(digits: str) -> Any:
    # Python refuses to read more than 4,300 digits; no field needs 40
    return int(digits) if len(digits) < 40 else _Fault("is a number with too many digits")


def _fault_in(tree: Any, place: str, depth: int) -> str | None:
    """The first fault in the tree with its place; None: there is none. RecursionError below `depth` levels."""
    if depth == 0:
        raise RecursionError
    if isinstance(tree, _Fault):
        return f"{place or 'the file'} {tree.text}"
    inside: list[tuple[str, Any]] = []
    if isinstance(tree, dict):
        inside = [(f"{place}.{_shown(key)}" if place else _shown(key), value) for key, value in tree.items()]
    elif isinstance(tree, list):
        inside = [(f"{place}[{number}]", value) for number, value in enumerate(tree)]
    return next((fault for where, value in inside if (fault := _fault_in(value, where, depth - 1))), None)


def _shown(key: str) -> str:
    """A key as at most 60 printable characters."""
    return ascii(key)[1:-1][:60]


def _job(entry: Any, place: str) -> StoredJob:
    if not isinstance(entry, dict):
        raise StoreRefused(f"{place} is {_kind(entry)} where a job is expected")
    return StoredJob(place=place, fields=_fields(entry, _SHAPE, place))


def _fields(data: dict[str, Any], shape: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The known fields in camelCase, whether spelt in camelCase or snake_case. StoreRefused for a wrong type."""
    found: dict[str, Any] = {}
    for name, wanted in shape.items():
        spelt = name if data.get(name) is not None else _snake(name)
        value, where = data.get(spelt), f"{place}.{spelt}"
        if value is None:
            continue
        if isinstance(wanted, Mapping):
            if not isinstance(value, dict):
                raise StoreRefused(f"{where} is {_kind(value)} where an object is expected")
            found[name] = _fields(value, wanted, where)
        elif not _fits(value, wanted):
            raise StoreRefused(f"{where} is {_kind(value)}, which is not allowed")
        else:
            found[name] = value
    return found


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(value, bool) and wanted is not _FLAG:
        return False  # true is an int to Python
    return isinstance(value, wanted)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
    (str, "a text"),
    (list, "a list"),
    (dict, "an object"),
)


def _kind(value: Any) -> str:
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "null")


class JobRefused(Exception):
    """The job cannot be imported; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A job to import. `legacy`: the columns of a legacy job. `note`: what differs from the file."""

    stored_id: str
    name: str
    category: Category
    schedule: Schedule
    enabled: bool
    message: str = ""
    session_key: str = ""
    legacy: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def id_of(job: StoredJob) -> str:
    """The job's id in the store. JobRefused when it has none: a second import could not recognise it."""
    stored = stored_text(job, "id")
    if not stored:
        raise JobRefused("it has no id")
    return stored


def category_of(job: StoredJob) -> Category:
    """System by kind or reserved id; bound with a session key and no legacy field that is set; else legacy."""
    kind = stored_text(job, "payload", "kind") or JobKind.AGENT_TURN
    if kind == JobKind.SYSTEM_EVENT or stored_text(job, "id") in RESERVED_IDS:
        return Category.SYSTEM
    if kind != JobKind.AGENT_TURN:
        raise JobRefused(f"unknown kind {kind[:60]!r}")
    set_fields = [stored_text(job, "payload", name) for name in ("channel", "to")]
    legacy = any(set_fields) or _flag(job, "payload", "deliver") or job.get("payload", "channelMeta")
    return Category.LEGACY if legacy or not stored_text(job, "payload", "sessionKey") else Category.BOUND


def wanted_of(job: StoredJob, *, timezone: str, now: datetime) -> Wanted:
    """The job to import; times and schedules without a zone are read in `timezone`. JobRefused."""
    category = category_of(job)
    enabled = _flag(job, "enabled", default=True)
    schedule = _schedule(job, timezone, now, enabled=enabled)
    name = one_line(stored_text(job, "name"), LONGEST_NAME)
    more: dict[str, Any] = {}
    if category is not Category.SYSTEM:
        message = stored_text(job, "payload", "message")
        name = name or one_line(message, NAME_FROM_MESSAGE) or "Imported job"
        try:
            validated({"message": message, "name": name})
        except SessionsError as error:
            raise JobRefused(str(error)) from error
        more = {"message": message} | (_legacy(job) if category is Category.LEGACY else _bound(job))
    return Wanted(
        stored_id=id_of(job), name=name, category=category, schedule=schedule, enabled=enabled, **more
    )


def _bound(job: StoredJob) -> dict[str, Any]:
    key = stored_text(job, "payload", "sessionKey")
    if key != PRIMARY_KEY and key.startswith(NANOBOTS_WEB):
        ours = OUR_WEB + key.removeprefix(NANOBOTS_WEB)
        return {"session_key": ours, "note": f"{one_line(key, 60)} is a web thread here"}
    return {"session_key": key}


def _legacy(job: StoredJob) -> dict[str, Any]:
    meta = job.get("payload", "channelMeta") or {}
    try:
        is_whole = clean_value(meta) == meta
    except ValueError as error:
        raise JobRefused(f"payload.channelMeta cannot be stored: {error}") from None
    if not is_whole:
        raise JobRefused("payload.channelMeta holds a character that cannot be stored")
    columns = {
        "session_key": stored_text(job, "payload", "sessionKey"),
        "deliver": _flag(job, "payload", "deliver"),
        "channel": stored_text(job, "payload", "channel"),
        "to": stored_text(job, "payload", "to"),
        "channel_meta": meta,
    }
    nowhere = columns["deliver"] and not (columns["channel"] and columns["to"])
    note = "it has no channel or address, so its answers are not delivered" if nowhere else ""
    return {"legacy": columns, "note": note}


def _schedule(job: StoredJob, timezone: str, now: datetime, *, enabled: bool) -> Schedule:
    kind = stored_text(job, "schedule", "kind")
    try:
        match kind:
            case ScheduleKind.CRON:
                return _cron(job, timezone, now)
            case ScheduleKind.EVERY:
                return _every(job, timezone, now)
            case ScheduleKind.AT:
                return _at(job, now, enabled=enabled)
    except ScheduleError as error:
        raise JobRefused(error.message) from error
    raise JobRefused(f"unknown schedule kind {kind[:60]!r}" if kind else "it has no schedule")


def _cron(job: StoredJob, timezone: str, now: datetime) -> Schedule:
    data = {
        "kind": ScheduleKind.CRON,
        "expr": stored_text(job, "schedule", "expr"),
        "timezone": stored_text(job, "schedule", "tz") or timezone,
    }
    return parse_schedule(data, default_timezone=timezone, now=now)


def _every(job: StoredJob, timezone: str, now: datetime) -> Schedule:
    """The interval is aligned to the store's next run, or to its last run."""
    interval = _number(job, "schedule", "everyMs")
    if interval is None or interval % 1000:
        raise JobRefused(f"schedule.everyMs must be whole seconds, not {interval or 'nothing'}")
    data = {"kind": ScheduleKind.EVERY, "seconds": interval // 1000}
    parsed = parse_schedule(data, default_timezone=timezone, now=now)
    beat = _instant(job, "state", "nextRunAtMs") or _instant(job, "state", "lastRunAtMs")
    if beat is None or not isinstance(parsed, EverySchedule):
        return parsed
    step = timedelta(seconds=parsed.seconds)
    # a next run more than one period ahead must not delay the job until then
    beat -= max(0, (beat - now) // step) * step
    return replace(parsed, anchor=whole_milliseconds(beat))


def _at(job: StoredJob, now: datetime, *, enabled: bool) -> Schedule:
    at = _instant(job, "schedule", "atMs")
    if at is None:
        raise JobRefused("schedule.atMs is missing")
    if enabled and at <= now:
        raise JobRefused(f"its time, {at.isoformat()}, has passed")
    return AtSchedule(at=whole_milliseconds(at))


def stored_text(job: StoredJob, *path: str) -> str:
    """A trimmed text; a number is converted, a missing value is empty. JobRefused when it cannot be stored."""
    value = job.get(*path)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value)
    if not is_storable(text):
        raise JobRefused(f"{'.'.join(path)} holds a character that cannot be stored")
    text = text if path[-1] == "message" else text.strip()
    if len(text) > LONGEST.get(path[-1], len(text)):
        raise JobRefused(f"{'.'.join(path)} is longer than {LONGEST[path[-1]]} characters")
    return text


def _number(job: StoredJob, *path: str) -> int | None:
    value = job.get(*path)
    if isinstance(value, str):
        value = value.strip() or None
    if value is None:
        return None
    try:
        number = float(value)
        return int(value) if isinstance(value, int) else math.trunc(number)
    except (ValueError, OverflowError):
        raise JobRefused(f"{'.'.join(path)} is {str(value)[:60]!r}, which is not a number") from None


def _instant(job: StoredJob, *path: str) -> datetime | None:
    number = _number(job, *path)
    if not number:  # nanobot writes 0 for "not known"
        return None
    try:
        instant = _EPOCH + timedelta(milliseconds=number)
    except OverflowError:
        instant = _EPOCH
    if instant <= _EPOCH or instant.year > _LAST_YEAR:
        raise JobRefused(f"{'.'.join(path)} is {str(number)[:60]}, which is not a time in milliseconds")
    return instant


def _flag(job: StoredJob, *path: str, default: bool = False) -> bool:
    value = job.get(*path)
    if value is None or value == "":
        return default
    found = _FLAGS.get(str(value).strip().lower())
    if found is None:
        raise JobRefused(f"{'.'.join(path)} is {str(value)[:60]!r}, not true or false")
    return found
