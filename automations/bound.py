"""Bound automations: what a slot's turn begins with, and what its run records."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import BigIntegerField, DurationField, ExpressionWrapper, F
from django.db.models.functions import Cast, Extract, Now

from agent_core import prompts
from agent_core.types import Ending, TurnResult
from automations.models import CronJob, JobClock, RunRecord, RunState
from automations.zones import load_zone
from sessions_app.delete import Blocker
from sessions_app.kinds import Trigger
from sessions_app.models import Session, Turn, TurnKind

PROMPT = "cron.agent_turn.reminder"
RUN_STATES = {
    Ending.SUCCEEDED: RunState.SUCCEEDED,
    Ending.FAILED: RunState.FAILED,
    Ending.CANCELLED: RunState.CANCELLED,
}


# by the database's clock, which also set the start; null for a run that never started
_ELAPSED = ExpressionWrapper(Now() - F("started_at"), DurationField())
_MILLISECONDS = Cast(Extract(_ELAPSED, "epoch") * 1000, BigIntegerField())


class AutomationKind:
    """A slot of a bound job: a normal turn of its session, with a readable trigger and a recorded run."""

    name = TurnKind.AUTOMATION
    drains_mailbox = False
    interactive = False
    replays_model_content = False

    def started(self, turn: Turn) -> None:
        """The run is running; a second attempt of the turn changes nothing."""
        RunRecord.objects.filter(run_id=turn.origin_run, state=RunState.QUEUED).update(
            state=RunState.RUNNING, started_at=Now()
        )

    def trigger(self, turn: Turn) -> Trigger:
        """The readable trigger for the history, the rendered prompt for the model: from the turn, not the job."""
        about = turn.metadata
        prompt = prompts.render(PROMPT, prompt_variables(turn))
        reference = prompt.ref.to_json()
        return Trigger(
            content=f"Scheduled automation triggered: {about['automation_name']}\n\n{turn.content}",
            model_content=prompt.text,
            metadata={
                "_automation_turn": True,
                "automation_id": about["automation_id"],
                "automation_name": about["automation_name"],
                "automation_run_id": turn.origin_run,
                "automation_prompt_ref": reference,
            },
            source={
                "kind": "automation",
                "id": about["automation_id"],
                "name": about["automation_name"],
                "run_id": turn.origin_run,
            },
            route=route_of(turn.session_id),
            template={"prompt_ref": reference, "variables": dict(prompt.variables)},
        )

    def shown(self, turn: Turn, trigger: Trigger) -> None:
        """The run keeps what the model is shown; the history does not."""
        template = trigger.template or {}
        RunRecord.objects.filter(run_id=turn.origin_run).update(
            prompt_ref=template["prompt_ref"],
            prompt_variables=template["variables"],
            rendered_prompt=trigger.model_content,
        )

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """The run's real outcome, in the turn's own commit."""
        ended = {
            "state": RUN_STATES[result.ending],
            "reason": result.error_code or "",
            "finished_at": Now(),
            "error": (result.error_text or "")[:300],
            "error_detail": (result.error_detail or "").replace("\x00", ""),
            "response_summary": first_line(closure),
            "usage": result.usage.to_json(),
            "duration_ms": _MILLISECONDS,
        }
        RunRecord.objects.filter(
            run_id=turn.origin_run, state__in=[RunState.QUEUED, RunState.RUNNING]
        ).update(**ended)


def prompt_variables(turn: Turn) -> dict[str, Any]:
    """What the template of an automation's prompt has places for."""
    zone = turn.metadata["timezone"]
    return {
        "name": turn.metadata["automation_name"],
        "message": turn.content,
        "scheduled_for": turn.due_at.astimezone(load_zone(zone)).isoformat(timespec="seconds"),
        "timezone": zone,
    }


def route_of(session_id: uuid.UUID) -> dict[str, Any]:
    """Where the answer goes: where a person last wrote in this session, `web` before anyone has."""
    last = Session.objects.values_list("last_route", flat=True).get(pk=session_id)
    return last or {"channel": "web", "chat_id": "", "meta": {}}


def first_line(text: str) -> str:
    """The first line of a reply, at most 200 characters."""
    return next(iter(text.strip().splitlines()), "")[:200]


class SessionAutomations:
    """What automations bind to sessions, for deletion."""

    def blockers(self, session_id: uuid.UUID) -> tuple[Blocker, ...]:
        """The session's bound jobs, disabled ones too."""
        jobs = CronJob.objects.filter(session_id=session_id).order_by("created_at", "id")
        return tuple(Blocker(id=job.pk, name=job.name, enabled=job.enabled) for job in jobs)

    def lock(self, session_ids: list[uuid.UUID]) -> tuple[str, ...]:
        """Lock the clocks, then the jobs: the order beat and edits lock in; the jobs' ids."""
        clocks = (
            JobClock.objects.select_for_update().filter(job__session_id__in=session_ids).order_by("job_id")
        )
        ids = tuple(clock.job_id for clock in clocks)
        list(CronJob.objects.select_for_update().filter(pk__in=ids).order_by("pk").values_list("pk"))
        return ids

    def delete(self, ids: tuple[str, ...]) -> None:
        """Delete these jobs with their runs. One that was bound since the lock stays, and is in the way."""
        RunRecord.objects.filter(job_id__in=ids).delete()
        JobClock.objects.filter(job_id__in=ids).delete()
        CronJob.objects.filter(pk__in=ids).delete()
