"""Heartbeat turns: a reflection at intervals, and due inline routines at once (rules 5.1 to 5.6).

The turn runs in the agent's heartbeat session, whose history is short. Its reply is kept there. A reply worth reporting
is deposited in a mailbox, never written into a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from agent_core import prompts
from agent_core.text import fence
from agent_core.turn.control import TurnControl
from agent_core.turn.judge import read_heartbeat_reply
from agent_core.types import Ended, Ending, TurnResult, with_note
from automations.heartbeats.briefing import briefing
from automations.heartbeats.readiness import answer_without_model
from automations.jobs.removed_routines import latest_removed
from automations.models import CronJob, ExecutionMode, ScheduleKind
from automations.routines import heartbeat_document, reflection
from automations.routines.heartbeat_document import Corruption
from automations.routines.heartbeat_md import prose
from automations.routines.plan import routine_schedule_text
from automations.runs import record, report
from automations.schedules.zone_files import zone_or_utc
from automations.turn_kinds.recollection import bring_up_to_date
from automations.turn_kinds.slot import NO_PERSONS, SlotKind
from sessions_app import flags, metrics
from sessions_app.journal import Journal
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Document, Priority, Session, Turn, TurnKind, TurnStep
from sessions_app.queue.kinds import Trigger
from sessions_app.single_line import one_line

CHECK, TASKS, LOOK = "heartbeat.check", "heartbeat.tasks", "heartbeat.look"
HISTORY = 12  # messages of the history that the next heartbeat is shown
MOST_ROUTINES = 50
MOST_REMOVED = 20
LONGEST_LINE = 200  # characters
LONGEST_BLOCK = 20_000  # characters of a broken block


class HeartbeatKind(SlotKind):
    """A heartbeat's turn: it does the tasks of its input, or reflects when there are none."""

    name = TurnKind.HEARTBEAT
    policy: Mapping[str, Any] = MappingProxyType({"timeout_seconds": 120})
    may_plan = False
    keeps = HISTORY

    def before(self, turn: Turn, journal: Journal, control: TurnControl) -> None:
        """Before a reflection, bring the conversations' task states up to date."""
        reflects = not turn.input.tasks and flags.reflects()
        was_shown = turn.attempt > 1 and TurnStep.objects.filter(turn=turn).exists()
        if reflects and not was_shown:
            bring_up_to_date(turn, journal, control)

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """The due tasks, or the state to reflect on."""
        agent = session.agent
        tasks = turn.input.tasks
        now = datetime.now(UTC).astimezone(zone_or_utc(agent.timezone))
        given = {"now": now.isoformat(" ", "minutes"), "timezone": agent.timezone}
        if tasks:
            prompt = prompts.render_prompt(TASKS, given | {"warning": _of_tasks(turn)})
        else:
            given |= state_variables(agent)
            if not flags.reflects():
                del given["intents"]
            prompt = prompts.render_prompt(CHECK if flags.reflects() else LOOK, given)
        titles = ", ".join(one_line(task["title"], 80) for task in tasks)
        return Trigger(
            content=f"Heartbeat: {titles}" if tasks else "Heartbeat",
            model_content=prompt.text,
            metadata={"prompt_ref": prompt.ref.to_json(), "run_id": turn.origin_run or None},
            source={"kind": "heartbeat", "id": "", "name": "Heartbeat", "run_id": turn.origin_run},
            template=prompt.to_json(),
        )

    def answer_without_model(self, turn: Turn) -> str | None:
        """The result of tasks that need no model; None: a model is needed."""
        return answer_without_model(turn)

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Store the outcome in each task's run, and report the reply."""
        failed = record.record_outcome(turn, result, closure).failed
        if result.ending is Ending.SUCCEEDED:
            _report(turn, result, closure)
        for run in failed:
            text, key = f"{run.of_job.name}: {closure}", report.failure_dedupe_key(run.of_job.pk)
            report.report_turn(
                turn, "routine_failed", text, about=run.pk, priority=Priority.HIGH, dedupe_key=key
            )


def _report(turn: Turn, result: TurnResult, closure: str) -> None:
    """Deliver the reply as one mail to the home of its tasks, or suppress it: then it stays in this session only.

    A reply that is not whole is never suppressed for its HEARTBEAT_OK, because its end is missing.
    """
    reply, ended_by = result.reply, result.ended_by or Ended.STOP
    tasks = turn.input.tasks
    if turn.input.deterministic:
        _report_reminders(turn, reply)
        return
    verdict = read_heartbeat_reply(reply, turn.session.agent.heartbeat["ack_max_chars"])
    is_silent = not reply.strip()
    is_cut = bool(verdict.text) and ended_by is not Ended.STOP
    if not verdict.deliver and not is_cut and not (is_silent and tasks):
        metrics.count(Counted.HEARTBEAT_SUPPRESS)
        return
    ids = [task["id"] for task in tasks]
    key = report.routine_dedupe_key(ids, "no_output" if is_silent else "result") if ids else ""
    text = closure if is_silent else with_note(verdict.text, ended_by)
    report.report_turn(turn, "heartbeat_result", text, about=str(turn.input.home_id), dedupe_key=key)
    metrics.count(Counted.HEARTBEAT_DELIVER)


def _report_reminders(turn: Turn, reply: str) -> None:
    """Deliver each reminder. It replaces an unread one of its routine, and is dropped when unread for a day."""
    for line in sorted(json.loads(reply), key=lambda line: str(line["id"])):
        key = report.routine_dedupe_key([line["id"]], "reminder")
        text, about = line["display"], line["id"]
        report.report_turn(turn, "reminder", text, about=about, dedupe_key=key, suppress_if_stale=True)


def _of_tasks(turn: Turn) -> str:
    """Warnings for the prompt: a failed task that needs no model, and tasks with outside provenance."""
    warning = turn.input.warning
    return f"{warning}\n\n{NO_PERSONS}" if turn.input.is_restricted else warning


# The state that a heartbeat without tasks is shown: routines, briefing, HEARTBEAT.md, intents.


def state_variables(agent: Agent) -> dict[str, str]:
    """The variables of a reflection's prompt, all of them blocks."""
    rows = CronJob.objects.filter(agent=agent).exclude(execution_mode=ExecutionMode.SESSION)
    # enabled ones first; disabled ones are listed so that they are not registered again
    ordered = rows.select_related("clock").order_by("-enabled", "-created_at", "pk")
    routines = list(ordered[:MOST_ROUTINES])
    once = [each for each in routines if each.schedule_kind == ScheduleKind.AT]
    done = [each for each in once if each.clock.next_run_at is None]
    listed = [each for each in routines if each not in done]
    removed = latest_removed(agent.pk).values_list("title", flat=True)[:MOST_REMOVED]
    names = [heartbeat_document.NAME, reflection.MEMORY]
    documents = {each.name: each for each in Document.objects.filter(agent=agent, name__in=names)}
    broken, notes = _read_heartbeat_md(agent, documents.get(heartbeat_document.NAME))
    return {
        "routines": _block("routines", "\n".join([*map(_line, listed), *map(_removed, removed)])),
        "finished": _block("finished", "\n".join(map(_line, done))),
        "briefing": briefing(agent, whole=True),
        "notes": _block("HEARTBEAT.md", notes, fence.INSTRUCTIONS),
        "warning": _warning(broken),
        "intents": _intents(documents.get(reflection.MEMORY)),
    }


def _read_heartbeat_md(agent: Agent, document: Document | None) -> tuple[Corruption | None, str]:
    """The corruption of HEARTBEAT.md, if any, and its prose."""
    if document is None:
        return None, ""
    text = document.content
    return heartbeat_document.corruption_of(text, agent, document.revision), prose(text)


def _intents(memory: Document | None) -> str:
    """The intents of MEMORY.md with their lines and the document's revision, by which they are registered once."""
    found = reflection.find_intents(memory.content)[:MOST_ROUTINES] if memory else ()
    if memory is None or not found:
        return _block("intents", "")
    lines = "\n".join(f"- line {each.line}: {one_line(each.text, LONGEST_LINE)}" for each in found)
    return _block("intents", f"(MEMORY.md has revision {memory.revision})\n{lines}")


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


def _removed(title: str) -> str:
    return f"- {one_line(title, LONGEST_LINE)} (removed by a person: do not register it again)"
