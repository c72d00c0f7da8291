"""Isolated routines: each slot is done in a fresh session of its own, in as many turns as it needs (rule 6.3).

The session is archived with the commit that ends its run, and the home is told once: of the result, or of the
failure when no attempt is left.
"""

from __future__ import annotations

from agent_core import prompts
from agent_core.types import Ending, TurnResult
from automations import told
from automations.briefing import briefing
from automations.models import RunRecord, RunState
from automations.slot_kind import SlotKind, variables_of
from sessions_app import events
from sessions_app.archive import archive
from sessions_app.kinds import Trigger
from sessions_app.models import Agent, Lane, OnBusy, Session, Turn, TurnKind, TurnState

PROMPT = "job.task"
MOST_TURNS = 20  # of one attempt
NEXT_TURN = "next_turn"  # in the metadata: this turn goes on with the one before


class JobKind(SlotKind):
    """A turn of a slot's own session: the first one has the task, each further one what its agent left itself to do."""

    name = TurnKind.JOB

    def trigger(self, turn: Turn) -> Trigger:
        """The task with a briefing, or the next step in the agent's own words."""
        about = turn.metadata
        source = {
            "kind": "job",
            "id": about["automation_id"],
            "name": about["automation_name"],
            "run_id": turn.origin_run,
        }
        if about.get(NEXT_TURN):
            return Trigger(content=turn.content, model_content=turn.content, source=source)
        agent = Agent.objects.get(sessions=turn.session_id)
        prompt = prompts.render(PROMPT, variables_of(turn) | {"briefing": briefing(agent)})
        return Trigger(
            content=turn.content,
            model_content=prompt.text,
            metadata={"run_id": turn.origin_run, "prompt_ref": prompt.ref.to_json()},
            source=source,
            template=prompt.to_json(),
        )

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """The run goes on with its next turn, or ends: outcome, archive and mail in one commit."""
        following = _following(turn)
        if following is not None and result.ending is Ending.SUCCEEDED:
            RunRecord.objects.filter(pk=turn.origin_run, state=RunState.RUNNING).update(turn=following)
            return
        if following is not None:
            Turn.objects.cancel_queued(following.pk, "not_reached")
        super().closed(turn, result, closure)
        run = RunRecord.objects.filter(pk=turn.origin_run).first()
        if run is None or run.finished_at is not None:
            _end(turn, result, closure)


def _following(turn: Turn) -> Turn | None:
    return Turn.objects.filter(
        session_id=turn.session_id, origin_run=turn.origin_run, state=TurnState.QUEUED, pk__gt=turn.pk
    ).first()


def _end(turn: Turn, result: TurnResult, closure: str) -> None:
    session = Session.objects.only("key", "agent_id").get(pk=turn.session_id)
    archive(turn.session_id)
    if result.ending is Ending.CANCELLED:
        return  # whoever stopped it knows
    good = result.ending is Ending.SUCCEEDED
    text = (result.reply.strip() if good else "") or closure
    kind = "job_completed" if good else "job_failed"
    mail = told.mail_of(turn, kind, text, about="run", source_key=session.key, urgent=not good)
    told.tell(told.home_of(turn.metadata), session.agent_id, mail)


def go_on(turn: Turn, agent_id: int, task: str) -> Turn:
    """Queue the next turn of a job's session, behind this one; part of this turn's own transaction."""
    following = Turn(
        session_id=turn.session_id,
        kind=TurnKind.JOB,
        lane=Lane.AUTO,
        content=task,
        metadata=turn.metadata | {NEXT_TURN: True},
        origin_run=turn.origin_run,
        origin_attempt=turn.origin_attempt,
        on_busy=OnBusy.ENQUEUE,
        idempotency_key=f"after:{turn.pk}",
        due_at=turn.due_at,
    )
    events.queued(following, agent_id)
    return following


def turns_so_far(turn: Turn) -> int:
    """How many turns the attempt has had."""
    return Turn.objects.filter(
        session_id=turn.session_id, origin_run=turn.origin_run, origin_attempt=turn.origin_attempt
    ).count()
