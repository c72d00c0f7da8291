"""Isolated routines: each slot runs in a new session, in as many turns as it needs (rule 6.3).

The commit that ends the run archives the session and sends one mail to the home: the result, or the failure when no
attempt is left, unless the routine failed before.
"""

from __future__ import annotations

from dataclasses import replace

from agent_core import prompts
from agent_core.types import Ending, TurnResult, with_note
from automations.heartbeats.briefing import briefing
from automations.models import RunRecord, RunState
from automations.runs import report
from automations.turn_kinds.gate import findings_mark, noted, with_findings
from automations.turn_kinds.slot import SlotKind, variables_of
from sessions_app.exceptions import OwnerInactive
from sessions_app.models import Lane, OnBusy, Priority, Session, Turn, TurnKind, TurnState
from sessions_app.queue import enqueue
from sessions_app.queue.kinds import Trigger
from sessions_app.sessions.open import archive

PROMPT = "job.task"
MOST_TURNS = 20  # of one attempt


class IsolatedRoutineKind(SlotKind):
    """A turn in a slot's own session: the first turn has the task, each later one the task that its agent set."""

    name = TurnKind.JOB

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """The task with a briefing, or in a later turn the task that the agent set."""
        source = {
            "kind": "job",
            "id": turn.input.automation_id,
            "name": turn.input.automation_name,
            "run_id": turn.origin_run,
        }
        if turn.input.next_turn:
            return Trigger(content=turn.content, model_content=turn.content, source=source)
        prompt = prompts.render_prompt(PROMPT, variables_of(turn) | {"briefing": briefing(session.agent)})
        return Trigger(
            content=noted(turn, turn.content),
            model_content=with_findings(turn, prompt.text),
            metadata={"run_id": turn.origin_run, "prompt_ref": prompt.ref.to_json(), **findings_mark(turn)},
            source=source,
            template=prompt.to_json(),
        )

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Continue the run in its next turn, or end it: outcome, archive and mail in one commit."""
        following = _following(turn)
        if following is not None and result.ending is Ending.SUCCEEDED:
            RunRecord.objects.filter(pk=turn.origin_run).continue_in(following, result.usage)
            return
        if following is not None:
            Turn.objects.cancel_queued(following.pk, "not_reached")
        is_no_news = super().closed(turn, result, closure)
        run = RunRecord.objects.filter(pk=turn.origin_run).first()
        if run is None or run.finished_at is not None:
            archive(turn.session_id)
            # of a cap its owner was told
            if not is_no_news and (run is None or run.state != RunState.SKIPPED):
                _report(turn, result, closure)


def _following(turn: Turn) -> Turn | None:
    return Turn.objects.filter(
        session_id=turn.session_id, origin_run=turn.origin_run, state=TurnState.QUEUED, pk__gt=turn.pk
    ).first()


def _report(turn: Turn, result: TurnResult, closure: str) -> None:
    if result.ending is Ending.CANCELLED and result.error_code != OwnerInactive.code:
        return  # the person who cancelled it knows
    good = result.ending is Ending.SUCCEEDED
    said = with_note(result.reply.strip(), result.ended_by or "") if good else ""
    kind, priority = ("job_completed", Priority.NORMAL) if good else ("job_failed", Priority.HIGH)
    key = _key(turn, good, said)
    report.report_turn(turn, kind, said or closure, about="run", priority=priority, dedupe_key=key)


def _key(turn: Turn, good: bool, said: str) -> str:
    """The dedupe key: a result replaces an unread one; an empty result does not replace one with text."""
    routine_id = turn.input.automation_id
    if not good:
        return report.failure_dedupe_key(routine_id)
    return report.routine_dedupe_key([routine_id], "result" if said else "no_output")


def queue_next_turn(turn: Turn, task: str, *, has_read: bool) -> Turn:
    """Queue the next turn of a job's session, in this turn's own transaction.

    If this turn has read text from outside, the next one is restricted in the same way, whatever its history shows.
    """
    given = replace(turn.input, next_turn=True, read_before=turn.input.read_before or has_read)
    following = Turn(
        session_id=turn.session_id,
        kind=TurnKind.JOB,
        lane=Lane.AUTO,
        content=task,
        metadata=given.to_json(),
        origin_run=turn.origin_run,
        origin_attempt=turn.origin_attempt,
        on_busy=OnBusy.ENQUEUE,
        idempotency_key=f"after:{turn.pk}",
        due_at=turn.due_at,
    )
    enqueue.enqueue(following)
    return following


def count_turns(turn: Turn) -> int:
    """The number of turns of this attempt so far."""
    return Turn.objects.filter(
        session_id=turn.session_id, origin_run=turn.origin_run, origin_attempt=turn.origin_attempt
    ).count()
