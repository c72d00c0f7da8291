"""The contents of a conversation's page: messages with tool calls and origin, and turns that wait or run.

Everything here is data for the templates. Only `content` is shown: what the model saw may hold internal prompts.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.utils.safestring import SafeString

from agent_core.exceptions import CapReached
from agent_core.execution import ENDED as PLANS_ENDED
from agent_core.text.formats import has_visible
from agent_core.types import Role
from automations.appointments.jobs import appointment_kind
from automations.appointments.panel import Appointment, appointments_made
from automations.jobs.causes import code_of_run
from automations.models import RunRecord
from interfaces.web.conversation_calls import ShownCall, ShownPlan, in_one_line, shown_call, shown_plan
from interfaces.web.messages import ShownFile, files_in, may_be_sent_again, shown_files
from interfaces.web.rendering import render
from sessions_app.connections.prices import used_text
from sessions_app.connections.usable import CURES
from sessions_app.memory.files import without_note
from sessions_app.models import (
    ConsentQuestion,
    ConsentState,
    ExecutionState,
    MailboxEvent,
    Message,
    Turn,
    TurnKind,
    TurnState,
)
from sessions_app.models.message import ASKED_FROM, BY_AUTOMATION, BY_CLIENT, ENDED_KEY
from sessions_app.models.turn import OPEN_STATES
from sessions_app.reads.selectors import owned, shown_id
from sessions_app.sessions.history import some_messages
from sessions_app.single_line import shortened

PAGE = 50  # messages that are shown at a time
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
    ConsentState.CLOSED: "Closed",  # and why
}
MOST_ASKED = 50  # questions of which a page asks whether they wait
_QUESTION_ID = re.compile(r"\(#(\w+)\)")
MARKS = {"scheduled_message_id": "Scheduled message", BY_CLIENT: "By the client", "injected": "Taken along"}
STOPPED = "Stopped."  # the closure of a turn that a person stopped


@dataclass(frozen=True, kw_only=True)
class ShownMessage:
    """One message. `who`: person, agent, automation (an automation's input) or tool (results without their call).

    `html` is rendered markdown; None: `text` is shown as it was written. `asked`, the server's question for consent
    below it, is always shown so; `settled` says what became of it, once it waits no more. `chips` are labels that say
    where the message comes from or what became of it. `is_own`: the person wrote it here.
    `run` is the run of an automation, `code` why a turn of `agent` failed, `cure` what ends that, `kind` and `job`
    whose it is; `used` says what its turn used, `made` the appointments that it made.
    """

    id: int
    place: str
    who: str
    text: str
    at: datetime
    turn: int | None = None
    html: SafeString | None = None
    asked: str = ""
    settled: str = ""
    chips: tuple[str, ...] = ()
    calls: tuple[ShownCall, ...] = ()
    deliveries: tuple[Mapping[str, Any], ...] = ()
    name: str = ""
    run: str = ""
    files: tuple[ShownFile, ...] = ()
    is_failure: bool = False
    is_own: bool = False
    may_try_again: bool = False
    provider_message: str = ""
    cure: str = ""
    code: str = ""
    kind: str = ""
    job: str = ""
    agent: str = ""
    used: str = ""
    made: tuple[Appointment, ...] = ()
    plans: tuple[ShownPlan, ...] = ()

    @property
    def done(self) -> str:
        """What its calls did, in one line."""
        return in_one_line(self.calls)


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
    return _page(user, found[::-1], str(found[-1].place) if more else None)


def after(user: User, session_id: uuid.UUID, place: str) -> MessagePage | None:
    """The messages after a place; None if there are more than a page. NotFound; ValueError."""
    found, more = some_messages(user, session_id, PAGE, after=place or "0")
    return None if more else _page(user, found)


def open_turns(user: User, session_id: uuid.UUID) -> list[Turn]:
    """The turns of a session of the user that run or wait, the running one first.

    Each has `note`, what will happen to its message, `said` and `files`, and `name` unless it is a person's message.
    """
    rows: Any = Turn.objects.filter(session=owned(user, session_id), state__in=OPEN_STATES)[:MOST_OPEN]
    found = shown_files(user, (turn.input.message for turn in rows))
    for turn in rows:
        turn.files = files_in(turn.input.message, found)
        turn.said = without_note(turn.content, turn.input.message)
        is_message = turn.kind == TurnKind.MESSAGE
        turn.name = "" if is_message else turn.input.automation_name or turn.get_kind_display()
        turn.note = _note(turn)
    return sorted(rows, key=lambda turn: (turn.state != TurnState.RUNNING, turn.pk))


def _note(turn: Turn) -> str:
    if turn.state == TurnState.RUNNING:
        return "Stopping…" if turn.cancel_requested_at else ""
    return "Taken along by the running turn" if turn.host_id else "Queued"


def _page(user: User, rows: Sequence[Any], before: str | None = None) -> MessagePage:
    results = {each["id"]: each for row in rows for each in row.parts.get("results", ())}
    with_call = {each["id"] for row in rows for each in row.parts.get("calls", ())}
    told, turns, settled = _updates(rows), _turns(rows), _settled(rows)
    made, plans, failed = appointments_made(user, turns.keys()), _plans(turns), _failed_runs(turns)
    files = shown_files(user, (row.metadata for row in rows))
    # what other entries of the turn say: the closure that it was cut off, the line above which automation it is of
    closed = {row.turn_id for row in rows if "closure" in row.metadata}
    named = {row.turn_id for row in rows if row.role == Role.USER and row.metadata.get(BY_AUTOMATION)}
    left, entries = RENDERED, []
    for row in reversed(rows):
        # the updates of a turn, what it planned, did and used stand at its last answer
        is_last = row.role == Role.ASSISTANT and has_visible(row.content)
        about = _about(row, turns.get(row.turn_id))
        more = [*_chips(about, is_named=row.turn_id in named, is_closed=row.turn_id in closed)]
        more += told.pop(row.turn_id, []) if is_last else []
        entry = _entry(row, results, with_call, more, is_rendered=left > 0)
        entry = replace(entry, settled=settled.get(row.pk, ""))
        entry = _with_files(entry, row.metadata, files)
        if is_last and (turn := turns.pop(row.turn_id, None)):
            entry = replace(
                entry,
                provider_message=turn.provider_message if entry.is_failure else "",
                cure=CURES.get(turn.error_code, "") if entry.is_failure else "",
                **_why_failed(turn, failed.get(turn.pk)),
                agent=turn.session.agent.name,
                used=used_text(turn.usage),
                may_try_again="closure" in row.metadata and may_be_sent_again(turn),
                made=tuple(made.get(turn.pk, ())),
                plans=tuple(plans.get(turn.pk, ())),
            )
        left -= len(row.content)
        if any((entry.text, entry.asked, entry.calls, entry.chips, entry.made, entry.plans, entry.files)):
            entries.append(entry)
    return MessagePage(
        entries=tuple(reversed(entries)), before=before, last=str(rows[-1].place) if rows else ""
    )


def _failed_runs(turns: Mapping[int, Turn]) -> dict[int | None, RunRecord]:
    """The runs of jobs in these turns that failed or that a cap stopped, by turn."""
    failed = [pk for pk, turn in turns.items() if turn.error_code]
    rows = RunRecord.objects.filter(turn__in=failed, job__isnull=False).select_related("job")
    return {run.turn_id: run for run in rows.defer("snapshot", "rendered_prompt")} if failed else {}


def _why_failed(turn: Turn, run: RunRecord | None) -> dict[str, Any]:
    """The fields of an entry that say why its turn failed, and in which job's form that may be mended."""
    if run is None or run.job is None or run.reason != turn.error_code:
        return {"code": turn.error_code}
    return {"code": code_of_run(run.job, run), "kind": appointment_kind(run.job).value, "job": run.job.pk}


def _about(row: Any, turn: Turn | None) -> Mapping[str, Any]:
    """The metadata of a message. A turn that a cap stopped is called as those that people stop."""
    about: Mapping[str, Any] = row.metadata
    if about.get("closure") and turn and turn.error_code == CapReached.code:
        return {**about, "closure": "cancelled"}
    return about


def _updates(rows: Sequence[Any]) -> dict[int, list[str]]:
    """By turn: chips for the first background updates that it was shown."""
    found: dict[int, list[str]] = {}
    shown = MailboxEvent.objects.filter(acknowledged_by__in={row.turn_id for row in rows if row.turn_id})
    for turn_id, summary in shown.order_by("id").values_list("acknowledged_by", "summary")[:MOST_UPDATES]:
        found.setdefault(turn_id, []).append(f"Background update: {_short(summary)}")
    return {turn_id: texts[:MOST_CHIPS] for turn_id, texts in found.items()}


def _plans(turns: Collection[int]) -> dict[int, list[ShownPlan]]:
    """By turn: the plans that ended in it."""
    found: dict[int, list[ShownPlan]] = {}
    for each in ExecutionState.objects.filter(turn__in=turns, status__in=PLANS_ENDED).exclude(steps=[]):
        found.setdefault(each.turn_id or 0, []).insert(0, shown_plan(each))
    return found


def settled(user: User, session_id: uuid.UUID, message_ids: Iterable[int]) -> dict[int, str]:
    """What became of the questions of these messages that the session shows, of those that wait no more."""
    shown = {session_id, shown_id(user, session_id)}
    mine = Message.objects.filter(session__in=shown, session__owner_id=user.pk)
    return _settled(list(mine.filter(pk__in=list(message_ids)[:MOST_ASKED])))


def _settled(rows: Sequence[Any]) -> dict[int, str]:
    """By message: what became of what it asks, if that waits for no answer any more."""
    asked = {row.pk: row.content[row.metadata[ASKED_FROM] :] for row in rows if ASKED_FROM in row.metadata}
    ids = {pk: _QUESTION_ID.findall(text) for pk, text in asked.items()}
    here = ConsentQuestion.objects.filter(session__in={row.session_id for row in rows if row.pk in asked})
    known = here.in_bulk({each for found in ids.values() for each in found}) if asked else {}
    said = {pk: {_became(known[each]) for each in found if each in known} for pk, found in ids.items()}
    return {pk: found.pop() for pk, found in said.items() if len(found) == 1 and found != {""}}


def _became(question: ConsentQuestion) -> str:
    """What became of a question; empty while it waits."""
    said = SETTLED.get(question.state, "")
    return f"{said}: {question.why_closed}" if question.why_closed else said


def _short(text: str) -> str:
    return shortened(text, LONGEST_CHIP)


def _turns(rows: Sequence[Any]) -> dict[int, Turn]:
    """The turns of answers: what they used and ended with, and what the model's provider said."""
    answered = {row.turn_id for row in rows if row.turn_id and row.role == Role.ASSISTANT}
    shown = Turn.objects.select_related("session__agent")
    columns = ("usage", "provider_message", "error_code", "state", "kind", "metadata", "session__agent__name")
    return shown.only(*columns).in_bulk(answered)


def _entry(
    row: Any,
    results: Mapping[str, Any],
    with_call: Iterable[str],
    chips: Iterable[str],
    *,
    is_rendered: bool,
) -> ShownMessage:
    about = row.metadata
    who, text = _who(row), row.content
    is_in_chip = about.get("closure") == "cancelled" and text == STOPPED
    if is_in_chip or (who == "agent" and not has_visible(text)):
        text = ""
    if who == "automation" and text.startswith(TRIGGER):
        text = text.partition("\n\n")[2]
    asked = ""
    if who == "agent" and ASKED_FROM in about:
        text, asked = text[: about[ASKED_FROM]].rstrip(), text[about[ASKED_FROM] :]
    calls = [shown_call(each, results.get(each["id"])) for each in row.parts.get("calls", ())]
    if row.role == Role.TOOL:
        text = ""
        calls = [
            shown_call(each, each) for each in row.parts.get("results", ()) if each["id"] not in with_call
        ]
    return ShownMessage(
        id=row.pk,
        place=str(row.place),
        who=who,
        text=text,
        html=render(text) if is_rendered and text and who == "agent" else None,
        asked=asked,
        at=row.created_at,
        turn=row.turn_id,
        chips=tuple(chips),
        calls=tuple(calls),
        deliveries=tuple(row.shown_deliveries),
        name=about.get("automation_name") or about.get("source", {}).get("name", ""),
        run=about.get("automation_run_id") or about.get("source", {}).get("run_id", ""),
        is_failure=about.get("closure") == "failed",
    )


def _with_files(
    entry: ShownMessage, about: Mapping[str, Any], found: Mapping[uuid.UUID, ShownFile]
) -> ShownMessage:
    """The message with its files in place of their note, and whether the person wrote it here."""
    files = files_in(about, found)
    is_own = entry.who == "person" and not any(about.get(name) for name in ("via", *MARKS))
    text = without_note(entry.text, about) if files else entry.text
    return replace(entry, files=files, is_own=is_own, text=text)


def _who(row: Any) -> str:
    if row.role == Role.USER:
        return "automation" if row.metadata.get(BY_AUTOMATION) or "run_id" in row.metadata else "person"
    return "tool" if row.role == Role.TOOL else "agent"


def _chips(about: Mapping[str, Any], *, is_named: bool, is_closed: bool) -> Iterable[str]:
    source = about.get("source") or {}
    if source.get("kind") == "automation" and not is_named:
        yield f"Automation: {source.get('name', '')}"
    yield from (chip for name, chip in MARKS.items() if about.get(name))
    is_cut = about.get("partial") and not is_closed
    if chip := CLOSED.get(about.get("closure", "")) or (is_cut and "Cut off"):
        yield chip
    if chip := ENDED.get(about.get(ENDED_KEY, "")):
        yield chip
    if via := about.get("via"):
        yield f"From {via.get('name') or via.get('hook') or 'another system'}"
