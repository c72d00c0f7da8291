"""Heartbeat turns: a reflection at intervals, and due inline routines at once (rules 5.1 to 5.6).

The turn runs in the agent's heartbeat session, whose history is short. Its reply is kept there. A reply worth reporting
is deposited in a mailbox, never written into a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest

from agent_core import prompts
from agent_core.heartbeat_reply import read_heartbeat_reply
from agent_core.strategies import DueTask
from agent_core.text import fence
from agent_core.turn.control import TurnControl
from agent_core.types import Ending, TurnResult, Usage
from automations.heartbeats.briefing import briefing
from automations.heartbeats.reminders import answer_without_model
from automations.jobs.hold import release_after_commit
from automations.jobs.removed_routines import removed_titles
from automations.models import CronJob, ExecutionMode, ScheduleKind
from automations.models.run import HOME_KEY, TASKS_KEY
from automations.routines import heartbeat_document
from automations.routines.heartbeat_document import Corruption
from automations.routines.intents import find_intents
from automations.routines.schedule_text import routine_schedule_text
from automations.runs import record, report
from automations.schedules.zone_files import zone_or_utc
from automations.turn_kinds.recollection import bring_up_to_date
from automations.turn_kinds.slot import NO_PERSONS, SlotKind
from sessions_app import flags, metrics
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Document, Message, Session, Turn, TurnKind, TurnStep
from sessions_app.permits import is_marked
from sessions_app.single_line import one_line
from sessions_app.turns.journal import Journal
from sessions_app.turns.kinds import Trigger

CHECK, TASKS, LOOK = "heartbeat.check", "heartbeat.tasks", "heartbeat.look"
HISTORY = 12  # messages of the history that the next heartbeat is shown
MOST_ROUTINES = 50
MOST_REMOVED = 20
LONGEST_LINE = 200  # characters
LONGEST_BLOCK = 20_000  # characters of a broken block


class HeartbeatKind(SlotKind):
    """A heartbeat's turn: it does the tasks in its metadata, or reflects when there are none."""

    name = TurnKind.HEARTBEAT
    policy: Mapping[str, Any] = MappingProxyType({"timeout_seconds": 120})
    may_plan = False

    def before(self, turn: Turn, journal: Journal, control: TurnControl) -> Usage:
        """Before a reflection, bring the conversations' task states up to date."""
        reflects = not turn.metadata.get(TASKS_KEY) and flags.reflects()
        was_shown = turn.attempt > 1 and TurnStep.objects.filter(turn=turn).exists()
        return bring_up_to_date(turn, journal, control) if reflects and not was_shown else Usage()

    def remembers(self, turn: Turn) -> Mapping[str, Any]:
        """Limit the history to turns with the same home, so that nothing crosses between homes."""
        return {HOME_KEY: turn.metadata.get(HOME_KEY, "")}

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """The due tasks, or the state to reflect on."""
        agent = session.agent
        tasks = turn.metadata.get(TASKS_KEY, ())
        now = datetime.now(UTC).astimezone(zone_or_utc(agent.timezone))
        given = {"now": now.isoformat(" ", "minutes"), "timezone": agent.timezone}
        if tasks:
            prompt = prompts.render_prompt(TASKS, given | {"warning": _of_tasks(turn)})
        else:
            around = _around(agent)
            if flags.reflects():
                prompt = prompts.render_prompt(CHECK, given | around | {"intents": _intents(agent)})
            else:
                prompt = prompts.render_prompt(LOOK, given | around)
        titles = ", ".join(one_line(task["title"], 80) for task in tasks)
        return Trigger(
            content=f"Heartbeat: {titles}" if tasks else "Heartbeat",
            model_content=prompt.text,
            metadata={"prompt_ref": prompt.ref.to_json(), "run_id": turn.origin_run or None},
            source={"kind": "heartbeat", "id": "", "name": "Heartbeat", "run_id": turn.origin_run},
            template=prompt.to_json(),
        )

    def due_tasks(self, turn: Turn) -> tuple[DueTask, ...]:
        """The tasks in its metadata."""
        return tuple(
            DueTask(id=task["id"], title=task["title"], description=task["description"])
            for task in turn.metadata.get(TASKS_KEY, ())
        )

    def answer_without_model(self, turn: Turn) -> str | None:
        """The result of tasks that need no model; None: a model is needed."""
        return answer_without_model(turn)

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Store the outcome in each task's run, report the reply, and shorten the history."""
        ended = record.record_shared_outcome(turn, result, closure)
        session = Session.objects.select_related("agent").get(pk=turn.session_id)
        _shorten(session)
        release_after_commit(turn)
        if result.ending is Ending.SUCCEEDED:
            _report(turn, session, result.reply, closure)
        for run in ended:
            if run.is_final and result.ending is Ending.FAILED:
                text, key = f"{run.job.name}: {closure}", report.failure_dedupe_key(run.job.pk)
                mail = report.mail_about(
                    turn, "routine_failed", text, about=run.pk, source_key=session.key, urgent=True, key=key
                )
                report.report_to_home(report.home_of(turn.metadata), session.agent_id, mail)


def _report(turn: Turn, session: Session, reply: str, closure: str) -> None:
    """Deliver the reply as one mail to the home of its tasks, or suppress it: then it stays in this session only."""
    tasks = turn.metadata.get(TASKS_KEY, ())
    if turn.metadata.get("deterministic"):
        _report_reminders(turn, session, reply)
        return
    verdict = read_heartbeat_reply(reply, session.agent.heartbeat["ack_max_chars"])
    is_silent = not reply.strip()
    if not verdict.deliver and not (is_silent and tasks):
        metrics.count(Counted.HEARTBEAT_SUPPRESS)
        return
    ids = [task["id"] for task in tasks]
    key = report.routine_dedupe_key(ids, "no_output" if is_silent else "result") if ids else ""
    home = report.home_of(turn.metadata)
    mail = report.mail_about(
        turn,
        "heartbeat_result",
        closure if is_silent else verdict.text,
        about=str(home),
        source_key=session.key,
        key=key,
    )
    report.report_to_home(home, session.agent_id, mail)
    metrics.count(Counted.HEARTBEAT_DELIVER)


def _report_reminders(turn: Turn, session: Session, reply: str) -> None:
    """Deliver each reminder. It replaces an unread one of its routine, and is dropped when unread for a day."""
    for line in sorted(json.loads(reply), key=lambda line: str(line["id"])):
        key = report.routine_dedupe_key([line["id"]], "reminder")
        mail = report.mail_about(
            turn, "reminder", line["display"], about=line["id"], source_key=session.key, key=key
        )
        report.report_to_home(
            report.home_of(turn.metadata), session.agent_id, replace(mail, suppress_if_stale=True)
        )


def _shorten(session: Session) -> None:
    """Move the history window. It begins with a turn, so that no tool result is without its call."""
    begin = (
        Message.objects.filter(session=session, role="user", seq__gt=session.last_seq - HISTORY)
        .order_by("seq")
        .values_list("seq", flat=True)
        .first()
    )
    if begin is not None:
        Session.objects.filter(pk=session.pk).update(window_from_seq=Greatest(F("window_from_seq"), begin))


def _around(agent: Agent) -> dict[str, str]:
    """The state for a reflection: routines with removed and finished ones, the briefing, the prose of HEARTBEAT.md."""
    routines = CronJob.objects.filter(agent=agent).exclude(execution_mode=ExecutionMode.SESSION)
    # enabled ones first; disabled ones are listed so that they are not registered again
    ordered = routines.select_related("clock").order_by("-enabled", "-created_at", "pk")
    rows = list(ordered[:MOST_ROUTINES])
    done = [row for row in rows if row.schedule_kind == ScheduleKind.AT and row.clock.next_run_at is None]
    listed = [row for row in rows if row not in done]
    broken, notes = heartbeat_document.read_heartbeat_md(agent.pk)
    return {
        "routines": _block("routines", "\n".join([*map(_line, listed), *_removed(agent)])),
        "finished": _block("finished", "\n".join(map(_line, done))),
        "briefing": briefing(agent, whole=True),
        "notes": _block("HEARTBEAT.md", notes, fence.INSTRUCTIONS),
        "warning": _warning(broken),
    }


def _intents(agent: Agent) -> str:
    """The intents of MEMORY.md with their lines and the document's revision, by which they are registered once."""
    memory = Document.objects.filter(agent=agent, name="MEMORY.md").first()
    found = find_intents(memory.content)[:MOST_ROUTINES] if memory else ()
    if memory is None or not found:
        return _block("intents", "")
    lines = "\n".join(f"- line {each.line}: {one_line(each.text, LONGEST_LINE)}" for each in found)
    return _block("intents", f"(MEMORY.md has revision {memory.revision})\n{lines}")


def _of_tasks(turn: Turn) -> str:
    """Warnings for the prompt: a failed task that needs no model, and tasks with outside provenance."""
    said_before = str(turn.metadata.get("warning", ""))
    return f"{said_before}\n\n{NO_PERSONS}" if is_marked(turn) else said_before


def _warning(broken: Corruption | None) -> str:
    """The problem of a corrupted HEARTBEAT.md and its broken block; empty when it can be read."""
    if broken is None:
        return ""
    blocks = broken.blocks.strip()
    if len(blocks) > LONGEST_BLOCK:
        blocks = f"{blocks[:LONGEST_BLOCK]}\n[... the rest is in HEARTBEAT.md: use read_document]"
    return (
        f"\n\nHEARTBEAT.md (revision {broken.revision}) cannot be read: {broken.problem} Until it is repaired"
        " the routines are as they were, and new tasks in it are not done. Repair it now with the tool"
        " repair_heartbeat: pass that revision, and all tasks of the block below as they were meant."
        f"\n\n{_block('HEARTBEAT.md', blocks)}"
    )


def _block(name: str, text: str, kind: str = fence.DATA) -> str:
    return fence.fenced(name, text.strip() or "(none)", kind)


def _line(row: CronJob) -> str:
    what = one_line(f"{row.name}: {row.description}", LONGEST_LINE)
    plan = f"{routine_schedule_text(row) or 'once'}, {row.execution_mode}"
    state = f"next {_at(row)}" if row.enabled else "disabled by a person: leave it so"
    return f"- [{row.pk}] {what} ({plan}, {state})"


def _at(row: CronJob) -> str:
    following = row.clock.next_run_at
    if following is None:
        return "never, it is done"
    return following.astimezone(zone_or_utc(row.timezone)).isoformat(" ", "minutes")


def _removed(agent: Agent) -> list[str]:
    titles = removed_titles(agent.pk, MOST_REMOVED)
    return [
        f"- {one_line(title, LONGEST_LINE)} (removed by a person: do not register it again)"
        for title in titles
    ]
