"""Calls of tools as a person reads them: what was done, in words, and beneath it the raw call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from agent_core.turn.consent import NEEDED
from automations.tools.refusals import AlreadyScheduled

LONGEST_OUTPUT = 4_000  # characters of a tool's arguments or result
LONGEST_NAME = 60  # characters of what a call is about
_APPOINTMENT = "an appointment"
# by tool, or by tool and action: what a call is doing, what it did, and to what
_WORDS = {
    "current_time": ("looking up", "looked up", "the time"),
    "cron": ("using", "used", "the appointments"),
    "cron add": ("adding", "added", _APPOINTMENT),
    "cron list": ("listing", "listed", "the appointments"),
    "cron change": ("changing", "changed", _APPOINTMENT),
    "cron upcoming": ("looking up", "looked up", "what is due"),
    "cron pause": ("pausing", "paused", _APPOINTMENT),
    "cron resume": ("resuming", "resumed", _APPOINTMENT),
    "cron skip": ("skipping", "skipped", "a run"),
    "cron unskip": ("putting back", "put back", "a skipped run"),
    "cron explain": ("looking up", "looked up", "why an appointment ran or not"),
    "cron remove": ("removing", "removed", _APPOINTMENT),
    "schedule_private_message": ("scheduling", "scheduled", "a message"),
    "list_scheduled_private_messages": ("listing", "listed", "the scheduled messages"),
    "cancel_scheduled_private_message": ("cancelling", "cancelled", "a scheduled message"),
    "add_routine": ("adding", "added", "a routine"),
    "list_routines": ("listing", "listed", "the routines"),
    "update_routine": ("changing", "changed", "a routine"),
    "remove_routine": ("removing", "removed", "a routine"),
    "read_document": ("reading", "read", "a document"),
    "edit_document": ("changing", "changed", "a document"),
    "fetch_url": ("reading", "read", "a page"),
}
DOING = {name: f"{doing} {what}" for name, (doing, _did, what) in _WORDS.items()}
# by error class: what became of calls that did nothing for a reason
_REASONS = {NEEDED: "asked", AlreadyScheduled.__name__: "already"}
_BECAME = {"": "no result", "ok": "done", "asked": "asked you first", "already": "already scheduled"}


@dataclass(frozen=True, kw_only=True)
class ShownCall:
    """A call of a tool. `words`: what it did, or was to do. `outcome` is empty while there is no result, `asked` if it
    needed the person's consent, and `already` if it was to schedule what is scheduled; `became` says it in words.
    """

    name: str
    words: str
    arguments: str = ""
    outcome: str = ""
    output: str = ""

    @property
    def became(self) -> str:
        """What came of it."""
        return _BECAME.get(self.outcome, self.outcome)


def shown_call(asked: Mapping[str, Any], result: Mapping[str, Any] | None) -> ShownCall:
    """The call of a message, with its result."""
    arguments = asked.get("arguments")
    shown = json.dumps(arguments, indent=2, ensure_ascii=False)[:LONGEST_OUTPUT] if arguments else ""
    name, output, outcome = str(asked["name"]), "", ""
    if result is not None:
        outcome = _REASONS.get(result.get("error_class", ""), str(result["outcome"]))
        output = str(result["output"])[:LONGEST_OUTPUT]
    words = _words(name, arguments if isinstance(arguments, dict) else {}, is_done=outcome == "ok")
    return ShownCall(name=name, words=words, arguments=shown, outcome=outcome, output=output)


def _words(name: str, arguments: Mapping[str, Any], *, is_done: bool) -> str:
    words = _WORDS.get(f"{name} {arguments.get('action')}") or _WORDS.get(name) or ("using", "used", name)
    doing, did, what = words
    about = arguments.get("url" if name == "fetch_url" else "name")
    if isinstance(about, str) and name in {"fetch_url", "read_document", "edit_document"}:
        what = f"{what} of {_host(about)}" if name == "fetch_url" else about[:LONGEST_NAME]
    return f"{did if is_done else doing} {what}"


def _host(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "?")[:LONGEST_NAME]
    except ValueError:
        return "?"


def in_one_line(calls: Iterable[ShownCall]) -> str:
    """What the calls of a message did: `Looked up the time, added an appointment`."""
    said = Counter(call.words if call.outcome == "ok" else f"{call.words} ({call.became})" for call in calls)
    line = ", ".join(words if number == 1 else f"{words} ({number} times)" for words, number in said.items())
    return line[:1].upper() + line[1:]


@dataclass(frozen=True, kw_only=True)
class ShownPlan:
    """What a plan did that has ended. `steps`: pairs of a step and its call, if it is one."""

    goal: str
    status: str
    steps: tuple[tuple[Mapping[str, Any], ShownCall | None], ...]


def shown_plan(execution: Any) -> ShownPlan:
    """The plan of an ended execution, without the steps that were replaced."""
    told: dict[str, str] = {}
    for seen in execution.observations:
        if seen["kind"] in {"tool", "error"}:
            told[seen["step"]] = f"{told.get(seen['step'], '')}\n\n{seen['text']}".strip()
    steps = [step for step in execution.steps if step["status"] != "dropped"]
    return ShownPlan(
        goal="" if execution.goal == execution.request else execution.goal,
        status=execution.status,
        steps=tuple((step, _call_of(step, told) if step["type"] == "tool" else None) for step in steps),
    )


def _call_of(step: Mapping[str, Any], told: Mapping[str, str]) -> ShownCall:
    asked = {"name": step["tool"], "arguments": step["arguments"]}
    if step["status"] not in {"done", "failed"}:
        return shown_call(asked, None)
    outcome = "ok" if step["status"] == "done" else "failed"
    call = shown_call(asked, {"outcome": outcome, "output": told.get(step["id"], "")})
    return replace(call, words=f"{call.words} (asked you first)") if step.get("consented") else call
