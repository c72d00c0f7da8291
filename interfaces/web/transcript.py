"""The contents of a conversation's page: messages with tool calls and origin, and turns that wait or run.

Everything here is data for the templates. Only `content` is shown: what the model saw may hold internal prompts.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from agent_core.text.formats import has_visible
from agent_core.turn.consent import NEEDED
from agent_core.types import Role
from automations.appointments.messages import appointments_made
from automations.tools.refusals import AlreadyScheduled
from interfaces.web.rendering import render
from sessions_app.connections.prices import used_text
from sessions_app.models import ConsentQuestion, ConsentState, MailboxEvent, Turn, TurnKind, TurnState
from sessions_app.models.message import ASKED_FROM, BY_AUTOMATION, BY_CLIENT, ENDED_KEY
from sessions_app.models.turn import OPEN_STATES
from sessions_app.reads.selectors import owned
from sessions_app.sessions.history import some_messages
from sessions_app.single_line import one_line

PAGE = 50  # messages that are shown at a time
LONGEST_OUTPUT = 4_000  # characters of a tool's arguments or result
MOST_OPEN = 101  # turns of a session that wait or run
RENDERED = 60_000  # characters of a page that are rendered; the oldest beyond that are shown as they are
MOST_UPDATES = 500  # background updates that are read for a page
MOST_CHIPS, LONGEST_CHIP = 5, 80  # updates that an answer names; characters of one
TRIGGER = "Scheduled automation triggered: "
CLOSED = {"cancelled": "Stopped", "failed": "Failed"}  # chips of closures
ENDED = {  # chips of answers that are not whole
    "length": "Cut at the length limit",
    "filter": "Stopped by the content filter",
    "refusal": "Refused by the model",
}
SETTLED: dict[str, str] = {
    ConsentState.GRANTED: "Allowed",
    ConsentState.REFUSED: "Refused",
    ConsentState.CLOSED: "Closed",
}
_QUESTION_ID = re.compile(r"\(#(\w+)\)")
MARKS = {"scheduled_message_id": "Scheduled message", BY_CLIENT: "By the client", "injected": "Taken along"}
# by error class: what the page says of calls that did nothing for a reason
_IN_WORDS = {NEEDED: "asked", AlreadyScheduled.__name__: "already"}
STOPPED = "Stopped."  # the closure of a turn that a person stopped


@dataclass(frozen=True, kw_only=True)
class ShownCall:
    """A call of a tool. `outcome` is empty while there is no result, `asked` if it needed the person's consent, and
    `already` if it was to schedule what is scheduled.
    """

    name: str
    arguments: str
    outcome: str = ""
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class ShownMessage:
    """One message. `who`: person, agent, automation (an automation's input) or tool (results without their call).

    `html` is rendered markdown; None: `text` is shown as it was written. `asked`, the server's question for consent
    below it, is always shown so. `chips` are labels that say where the message comes from or what became of it.
    `run` is the run of an automation; `used` says what its turn used.
    """

    id: int
    place: str
    who: str
    text: str
    at: datetime
    turn: int | None = None
    html: SafeString | None = None
    asked: str = ""
    chips: tuple[str, ...] = ()
    calls: tuple[ShownCall, ...] = ()
    deliveries: tuple[Mapping[str, Any], ...] = ()
    name: str = ""
    run: str = ""
    is_failure: bool = False
    provider_message: str = ""
    used: str = ""


@dataclass(frozen=True, kw_only=True)
class MessagePage:
    """Messages, oldest first. `before`: where the page before begins; None: there is none. `last`: of the newest."""

    entries: tuple[ShownMessage, ...] = ()
    before: str | None = None
    last: str = ""


def newest(user: User, session_id: uuid.UUID, before: str = "") -> MessagePage:
    """The newest messages of a session, or those before a place. NotFound; ValueError for a malformed place."""
    found, more = some_messages(user, session_id, PAGE, before=before)
    while more and len(found) > 1 and found[-1].role == Role.TOOL:
        found.pop()  # it is shown with its call, on the page before
    return _page(found[::-1], str(found[-1].place) if more else None)


def after(user: User, session_id: uuid.UUID, place: str) -> MessagePage | None:
    """The messages after a place; None if there are more than a page. NotFound; ValueError."""
    found, more = some_messages(user, session_id, PAGE, after=place or "0")
    return None if more else _page(found)


def open_turns(user: User, session_id: uuid.UUID) -> list[Turn]:
    """The turns of a session of the user that run or wait, the running one first.

    Each has `note`, what will happen to its message, and `name` unless it is a person's message.
    """
    rows: Any = Turn.objects.filter(session=owned(user, session_id), state__in=OPEN_STATES)[:MOST_OPEN]
    for turn in rows:
        is_message = turn.kind == TurnKind.MESSAGE
        turn.name = "" if is_message else turn.input.automation_name or turn.get_kind_display()
        turn.note = _note(turn)
    return sorted(rows, key=lambda turn: (turn.state != TurnState.RUNNING, turn.pk))


def _note(turn: Turn) -> str:
    if turn.state == TurnState.RUNNING:
        return "Stopping…" if turn.cancel_requested_at else ""
    return "Taken along by the running turn" if turn.host_id else "Queued"


def _page(rows: Sequence[Any], before: str | None = None) -> MessagePage:
    results = {each["id"]: each for row in rows for each in row.parts.get("results", ())}
    with_call = {each["id"] for row in rows for each in row.parts.get("calls", ())}
    told, turns, made, settled = _updates(rows), _turns(rows), _made(rows), _settled(rows)
    left, entries = RENDERED, []
    for row in reversed(rows):
        # the updates of a turn, what it scheduled and what it used stand at its last answer
        is_last = row.role == Role.ASSISTANT and has_visible(row.content)
        more = [*told.pop(row.turn_id, []), *made.pop(row.turn_id, [])] if is_last else []
        more += settled.get(row.pk, [])
        entry = _entry(row, results, with_call, more, is_rendered=left > 0)
        if is_last and (turn := turns.pop(row.turn_id, None)):
            said = turn.provider_message if entry.is_failure else ""
            entry = replace(entry, provider_message=said, used=used_text(turn.usage))
        left -= len(row.content)
        if entry.text or entry.asked or entry.calls or entry.chips:
            entries.append(entry)
    return MessagePage(
        entries=tuple(reversed(entries)), before=before, last=str(rows[-1].place) if rows else ""
    )


def _updates(rows: Sequence[Any]) -> dict[int, list[str]]:
    """By turn: chips for the first background updates that it was shown."""
    found: dict[int, list[str]] = {}
    shown = MailboxEvent.objects.filter(acknowledged_by__in={row.turn_id for row in rows if row.turn_id})
    for turn_id, summary in shown.order_by("id").values_list("acknowledged_by", "summary")[:MOST_UPDATES]:
        found.setdefault(turn_id, []).append(f"Background update: {_short(summary)}")
    return {turn_id: texts[:MOST_CHIPS] for turn_id, texts in found.items()}


def _made(rows: Sequence[Any]) -> dict[int, list[str]]:
    """By turn: chips for the appointments that it made."""
    answers = [row for row in rows if row.turn_id and row.role == Role.ASSISTANT]
    if not answers:
        return {}
    made = appointments_made({row.session_id for row in answers}, {row.turn_id for row in answers})
    return {
        turn_id: [f"Scheduled: {_short(name)}, {at}" for name, at in found[:MOST_CHIPS]]
        for turn_id, found in made.items()
    }


def _settled(rows: Sequence[Any]) -> dict[int, list[str]]:
    """By message: a chip if it asks for consent and waits for no answer any more."""
    asked = {row.pk: row.content[row.metadata[ASKED_FROM] :] for row in rows if ASKED_FROM in row.metadata}
    ids = {pk: _QUESTION_ID.findall(text) for pk, text in asked.items()}
    here = ConsentQuestion.objects.filter(session__in={row.session_id for row in rows if row.pk in asked})
    known = here.in_bulk({each for found in ids.values() for each in found}) if asked else {}
    states = {pk: {known[each].state for each in found if each in known} for pk, found in ids.items()}
    return {
        pk: [SETTLED[found.pop()]]
        for pk, found in states.items()
        if len(found) == 1 and found < SETTLED.keys()
    }


def _short(text: str) -> str:
    return Truncator(one_line(text, LONGEST_CHIP + 1)).chars(LONGEST_CHIP)


def _turns(rows: Sequence[Any]) -> dict[int, Turn]:
    """The turns of answers: what they used, and what the model's provider said."""
    answered = {row.turn_id for row in rows if row.turn_id and row.role == Role.ASSISTANT}
    return Turn.objects.only("usage", "provider_message").in_bulk(answered)


def _entry(
    row: Any,
    results: Mapping[str, Any],
    with_call: Iterable[str],
    more: Iterable[str] = (),
    *,
    is_rendered: bool,
) -> ShownMessage:
    about = row.metadata
    who, text = _who(row), row.content
    if about.get("closure") == "cancelled" and text == STOPPED:
        text = ""  # its chip says it
    if who == "agent" and not has_visible(text):
        text = ""
    if who == "automation" and text.startswith(TRIGGER):
        text = text.partition("\n\n")[2]
    asked = ""
    if who == "agent" and ASKED_FROM in about:
        text, asked = text[: about[ASKED_FROM]].rstrip(), text[about[ASKED_FROM] :]
    calls = [_call(each, results.get(each["id"])) for each in row.parts.get("calls", ())]
    if row.role == Role.TOOL:
        text = ""
        calls = [_call(each, each) for each in row.parts.get("results", ()) if each["id"] not in with_call]
    return ShownMessage(
        id=row.pk,
        place=str(row.place),
        who=who,
        text=text,
        html=render(text) if is_rendered and text and who == "agent" else None,
        asked=asked,
        at=row.created_at,
        turn=row.turn_id,
        chips=(*_chips(about), *more),
        calls=tuple(calls),
        deliveries=tuple(row.shown_deliveries),
        name=about.get("automation_name") or about.get("source", {}).get("name", ""),
        run=about.get("automation_run_id") or about.get("source", {}).get("run_id", ""),
        is_failure=about.get("closure") == "failed",
    )


def _who(row: Any) -> str:
    if row.role == Role.USER:
        return "automation" if row.metadata.get(BY_AUTOMATION) or "run_id" in row.metadata else "person"
    return "tool" if row.role == Role.TOOL else "agent"


def _chips(about: Mapping[str, Any]) -> Iterable[str]:
    source = about.get("source") or {}
    if source.get("kind") == "automation":
        yield f"Automation: {source.get('name', '')}"
    yield from (chip for name, chip in MARKS.items() if about.get(name))
    if chip := CLOSED.get(about.get("closure", "")) or (about.get("partial") and "Cut off"):
        yield chip
    if chip := ENDED.get(about.get(ENDED_KEY, "")):
        yield chip
    if via := about.get("via"):
        yield f"From {via.get('name') or via.get('hook') or 'another system'}"


def _call(asked: Mapping[str, Any], result: Mapping[str, Any] | None) -> ShownCall:
    arguments = asked.get("arguments")
    shown = json.dumps(arguments, indent=2, ensure_ascii=False)[:LONGEST_OUTPUT] if arguments else ""
    call = ShownCall(name=str(asked["name"]), arguments=shown)
    if result is None:
        return call
    outcome = _IN_WORDS.get(result.get("error_class", ""), str(result["outcome"]))
    return replace(call, outcome=outcome, output=str(result["output"])[:LONGEST_OUTPUT])
