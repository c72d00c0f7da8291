"""Report results of background work as one mailbox event of its home, with the files that they name (5.4, 6.3)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from typing import Any

from agent_core.tool_spec import ToolSpec
from agent_core.turn.consent import describe_call
from agent_core.turn.tool_calls import intent
from agent_core.types import ToolCall
from automations.models import CronJob
from automations.models.job import is_of_people
from sessions_app.channels.personal import Told
from sessions_app.deliveries.notifications import notify_owner
from sessions_app.mailbox.deposit import LONGEST_SUMMARY, NewUpdate, deposit, session_for
from sessions_app.models import BACKGROUND, Priority, Turn
from sessions_app.permits import has_read_in, stranger_of
from sessions_app.questions import unattended

AFTER_REGISTERED = (
    "It can be changed, disabled or removed like any routine; a removed one is not registered again."
)
OUTSIDE_TEXT = (
    "It had read text from outside or works for another system: the text may come from an outside source."
)
NAMESPACE = uuid.UUID("6f0b7b0e-1d0c-4d5a-9a52-5d3a3c7f2b11")  # for event ids derived from their subject
LONGEST_NAMES = 150  # characters of the ids in a key
_SENTENCE = re.compile(r".*?(?:[.!?。！？](?=\s|$)|(?<=[。！？])|$)")  # noqa: RUF001


def report_to_home(home: uuid.UUID | None, agent_id: int, mail: NewUpdate) -> bool:
    """Deposit in the home's mailbox; in the primary session's when no home was given or it was deleted."""
    return deposit(home, mail, or_primary_of=agent_id)


def event_id(turn_id: int, about: str) -> uuid.UUID:
    """The id of the event that reports `about` of this turn. `about` of a reflection is the text `None`: no home."""
    return uuid.uuid5(NAMESPACE, f"{turn_id}:{about}")


def report_turn(
    turn: Turn, event_type: str, text: str, *, about: str, home: uuid.UUID | None = None, **more: Any
) -> None:
    """Report a turn's result to this home, or to the turn's own. The same `about` of the same turn is the same event.

    `more`: further fields of the update, also instead of those that are made here.
    """
    fields: dict[str, Any] = {
        "event_id": event_id(turn.pk, about),
        "event_type": event_type,
        "summary": first_sentence(text),
        "detail": text,
        "source_key": turn.session.key,
        "artifacts": artifacts_of(text),
        "of_turn": turn,
    }
    report_to_home(home or turn.input.home_id, turn.session.agent_id, NewUpdate(**fields | more))


def report_job(
    job: CronJob, event_type: str, text: str, *, key: str, cure: str = "", priority: Priority = Priority.HIGH
) -> uuid.UUID:
    """Report something about a job to its conversation or home. Returns the id of the event.

    `key`: it replaces an unread one with the same key.
    """
    detail = f"{text} {cure}".rstrip()
    mail = NewUpdate(event_type=event_type, summary=text, detail=detail, priority=priority, dedupe_key=key)
    report_to_home(job.session_id or job.home_id, job.agent_id, mail)
    return mail.event_id


def routine_dedupe_key(ids: Iterable[str], what: str) -> str:
    """The key of a routine's mail, or of routines that share a turn: newer mail replaces unread mail of the key."""
    names = ",".join(sorted(ids))
    return f"{what}:{names if len(names) <= LONGEST_NAMES else uuid.uuid5(NAMESPACE, names)}"


def failure_dedupe_key(routine_id: str) -> str:
    """The key of a routine's failures, so that repeated failures are one unread event."""
    return f"run_failed:{routine_id}"


def ask_for_consent(turn: Turn, call: ToolCall, spec: ToolSpec, *, has_read: bool) -> None:
    """Ask for a call that a scheduled turn may not make without a person's consent, and report it (rule 11.4).

    The call of a stranger's job is only reported: no yes of its owner makes it.
    """
    session = turn.session
    asked = describe_call(call.name, call.arguments, f"/api/sessions/{turn.session_id}/messages/")
    own = None if session.type in BACKGROUND else turn.session_id
    target = session_for(own or turn.input.home_id, session.agent_id)
    how, words = "ask for it in a message of your own.", ""
    more: dict[str, Any] = {}
    if target is not None and stranger_of(turn) is None:
        question = unattended.ask(turn, call, spec, target, has_read=has_read)
        if own is None:  # else the turn's commit tells it
            of = f"question_{question.same_call}_{question.expires_at:%Y%m%d}"  # once a day for the same call
            notify_owner(target, Told.QUESTION, of=of, question=question.pk)
        when = unattended.until(question, session.agent)
        how = f"a question on the conversation's page can allow it until {when}."
        words, more = question.calls[0].get("words", ""), {"event_id": unattended.update_about(question.pk)}
    text = f"A scheduled turn wanted to use {asked}, which needs your consent: {how}"
    text = f"A scheduled turn asks: {words} {text}" if words else text
    if has_read or has_read_in(turn):
        text = f"{text} {OUTSIDE_TEXT}"
    whose = turn.input.automation_id or session.key
    key = f"consent:{uuid.uuid5(NAMESPACE, f'{whose}:{intent(call)}')}"  # a repeated request is one unread event
    # files named in the arguments do not exist yet
    report_turn(
        turn, "consent_needed", text, about=intent(call), home=own, dedupe_key=key, artifacts=(), **more
    )


def report_registered(turn: Turn, job: CronJob) -> None:
    """Report a routine that the agent registered by itself, in the transaction that adds it (rule 5.6)."""
    text = f'A heartbeat registered a routine by itself: "{job.name}" ({job.pk}, {job.execution_mode}).'
    mail = NewUpdate(
        event_id=uuid.uuid5(NAMESPACE, f"registered:{job.pk}"),
        event_type="routine_registered",
        summary=text,
        detail=f"{text} {AFTER_REGISTERED}",
        source_key=turn.session.key,
        of_turn=turn,
    )
    report_to_home(job.home_id, job.agent_id, mail)


def report_paused(job: CronJob) -> None:
    """Report that the server paused a person's job, in its transaction. Urgent, as it does not run until they act."""
    if is_of_people(job):
        text = f'"{job.name}" ({job.pk}) was paused: its schedule, zone or settings cannot be used any more.'
        cure = "It runs again when it has a valid schedule and is enabled."
        report_job(job, "paused", text, key=f"paused:{job.pk}", cure=cure, priority=Priority.URGENT)


def first_sentence(text: str) -> str:
    """The first sentence of a reply, at most 200 characters."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    found = _SENTENCE.match(line)
    return (found[0] if found and found[0] else line)[:LONGEST_SUMMARY]


MOST = 20  # of one answer
LONGEST = 500  # characters of one; longer ones are ignored
_LINK = re.compile(r"https?://[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
_KINDS = (
    "pdf|csv|tsv|json|xml|ya?ml|md|txt|log|html?|docx?|xlsx?|pptx?|odt|ods|epub|png|jpe?g|gif|svg|webp|mp3|mp4|wav|zip|gz|tar|ics"
    "|py|sql|ipynb|parquet"
)
# after a separator, and not part of a longer name
_FILE = re.compile(
    rf"(?<![\w./@:-])(?:~?/|\.{{1,2}}/)?(?:[\w.-]+/)*[\w-][\w.-]*\.(?:{_KINDS})(?![\w/-])", re.IGNORECASE
)
_AFTER = ".,;:!?…。，；：！？*_~”’"  # noqa: RUF001 - what ends a sentence, no link


def artifacts_of(text: str) -> tuple[str, ...]:
    """The links and files in a text, in their order, each once."""
    found = [(match.start(), _link(match[0])) for match in _LINK.finditer(text)]
    without = _LINK.sub(lambda match: " " * len(match[0]), text)
    found += [(match.start(), match[0]) for match in _FILE.finditer(without)]
    names = dict.fromkeys(name for _, name in sorted(found) if len(name) <= LONGEST)
    return tuple(names)[:MOST]


def _link(text: str) -> str:
    """The link without the punctuation after it, and without a closing bracket that it does not open."""
    while True:
        shorter = text.rstrip(_AFTER)
        for opening, closing in ("()", "[]", "「」", "『』", "（）", "《》", "【】"):  # noqa: RUF001 - as people write
            if shorter.endswith(closing) and shorter.count(closing) > shorter.count(opening):
                shorter = shorter[:-1]
        if shorter == text:
            return text
        text = shorter
