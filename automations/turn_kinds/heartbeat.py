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

from agent_core import prompts
from agent_core.strategies import DueTask
from agent_core.turn.control import TurnControl
from agent_core.turn.judge import read_heartbeat_reply
from agent_core.types import Ended, Ending, TurnResult, Usage, with_note
from automations.heartbeats.readiness import answer_without_model
from automations.jobs.hold import release_after_commit
from automations.models.run import HOME_KEY, TASKS_KEY
from automations.runs import record, report
from automations.schedules.zone_files import zone_or_utc
from automations.turn_kinds.heartbeat_state import state_variables
from automations.turn_kinds.recollection import bring_up_to_date
from automations.turn_kinds.slot import NO_PERSONS, SlotKind
from sessions_app import flags, metrics
from sessions_app.journal.journal import Journal
from sessions_app.metrics import Counted
from sessions_app.models import Session, Turn, TurnKind, TurnStep
from sessions_app.permits import comes_from_outside
from sessions_app.queue.kinds import Trigger
from sessions_app.single_line import one_line

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
    keeps = HISTORY

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
        """Store the outcome in each task's run, and report the reply."""
        ended = record.record_shared_outcome(turn, result, closure)
        release_after_commit(turn)
        if result.ending is Ending.SUCCEEDED:
            _report(turn, turn.session, result, closure)
        for run in ended:
            if run.is_final and result.ending is Ending.FAILED:
                text, key = f"{run.job.name}: {closure}", report.failure_dedupe_key(run.job.pk)
                mail = report.mail_about(
                    turn,
                    "routine_failed",
                    text,
                    about=run.pk,
                    source_key=turn.session.key,
                    urgent=True,
                    key=key,
                )
                report.report_to_home(report.home_of(turn.metadata), turn.session.agent_id, mail)


def _report(turn: Turn, session: Session, result: TurnResult, closure: str) -> None:
    """Deliver the reply as one mail to the home of its tasks, or suppress it: then it stays in this session only.

    A reply that is not whole is never suppressed for its token: what would follow is not known.
    """
    reply, ended_by = result.reply, result.ended_by or Ended.STOP
    tasks = turn.metadata.get(TASKS_KEY, ())
    if turn.metadata.get("deterministic"):
        _report_reminders(turn, session, reply)
        return
    verdict = read_heartbeat_reply(reply, session.agent.heartbeat["ack_max_chars"])
    is_silent = not reply.strip()
    is_cut = bool(verdict.text) and ended_by is not Ended.STOP
    if not verdict.deliver and not is_cut and not (is_silent and tasks):
        metrics.count(Counted.HEARTBEAT_SUPPRESS)
        return
    ids = [task["id"] for task in tasks]
    key = report.routine_dedupe_key(ids, "no_output" if is_silent else "result") if ids else ""
    home = report.home_of(turn.metadata)
    mail = report.mail_about(
        turn,
        "heartbeat_result",
        closure if is_silent else with_note(verdict.text, ended_by),
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


def _of_tasks(turn: Turn) -> str:
    """Warnings for the prompt: a failed task that needs no model, and tasks with outside provenance."""
    said_before = str(turn.metadata.get("warning", ""))
    return f"{said_before}\n\n{NO_PERSONS}" if comes_from_outside(turn) else said_before
