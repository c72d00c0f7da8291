"""The base of all scheduled kinds, and the turns of bound automations and of legacy jobs.

Each turn has a run, and does not drain the mailbox.
"""

from __future__ import annotations

from typing import Any

from agent_core import prompts
from agent_core.text import fence
from agent_core.tool_spec import ToolSpec
from agent_core.turn.control import TurnControl
from agent_core.types import Ending, ToolCall, TurnResult
from automations.jobs.provenance import provenance_of
from automations.models import CronJob, RunRecord
from automations.runs import record, report
from automations.runs.health import was_stopped_before
from automations.runs.with_turn import keep_prompt, start_runs
from automations.schedules.zone_files import load_zone
from automations.turn_kinds.gate import check_gate, findings_mark, noted, with_findings
from sessions_app.deliveries.outbox import enqueue_judged_delivery
from sessions_app.models import Session, Turn, TurnKind
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.queue.kinds import Kind, Trigger

BOUND_PROMPT, LEGACY_PROMPT = "cron.agent_turn.reminder", "cron.legacy.reminder"
RUNS_SHOWN = 3  # so a run costs the same however many there were before it
NO_PERSONS = (
    "This task was created or changed by another system or from outside text; no person alone asked for it."
)


def with_warning(turn: Turn, task: str) -> str:
    """The task of a slot, after a warning if a hook or a turn with outside text made or changed the job (rule 3.5)."""
    return f"{NO_PERSONS}\n\n{task}" if turn.input.is_restricted else task


class SlotKind(Kind):
    """A slot's turn; each kind adds its name and its trigger."""

    def before(self, turn: Turn, journal: Any, control: TurnControl) -> None:  # noqa: ARG002 - every kind is asked alike
        """Run the gate of the job, if it has one."""
        check_gate(turn, control)

    def started(self, turn: Turn) -> None:
        """Start the run, too, or the runs that share the turn."""
        start_runs(turn)

    def prompted(self, turn: Turn, trigger: Trigger) -> None:
        """Keep a prompt from a template in the run, as the history does not have it."""
        if trigger.template is not None:
            keep_prompt(turn, trigger.template, trigger.model_content)

    def refused(self, turn: Turn, call: ToolCall, spec: ToolSpec, *, has_read: bool) -> None:
        """Ask for the refused call: in the bound session itself, a routine's home, or the primary session."""
        report.ask_for_consent(turn, call, spec, has_read=has_read)

    def why_outdated(self, turn: Turn, tool: str) -> str:
        """Why the call is outdated: its job was removed, restricted or changed by others since. Empty: it is not."""
        given = turn.input
        ids = {given.automation_id} - {""} or {str(task["id"]) for task in given.tasks}
        jobs = list(CronJob.objects.filter(pk__in=ids))
        if len(jobs) < len(ids):
            return "what asked for it was removed"
        if any(job.allow_tools is not None and tool not in job.allow_tools for job in jobs):
            return "what asked for it may not use this tool any more"
        now = provenance_of(jobs)
        if now.stranger or now.read_before > given.read_before:
            return "what asked for it was changed by others since"
        return ""

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> bool | None:
        """Store the run's outcome, in the turn's own commit. A failure is no news if the last run failed, too, or if
        another attempt follows.
        """
        return not record.record_outcome(turn, result, closure).is_news


def trigger_of(turn: Turn, prompt_id: str, route: dict[str, Any] | None) -> Trigger:
    """The trigger of a turn: a text for the history, the rendered prompt for the model. The job is not read."""
    given = turn.input
    prompt = prompts.render_prompt(prompt_id, variables_of(turn))
    return Trigger(
        content=noted(turn, f"Scheduled automation triggered: {given.automation_name}\n\n{turn.content}"),
        model_content=with_findings(turn, prompt.text),
        metadata={
            BY_AUTOMATION: True,
            "automation_id": given.automation_id,
            "automation_name": given.automation_name,
            "automation_run_id": turn.origin_run,
            "automation_prompt_ref": prompt.ref.to_json(),
            **findings_mark(turn),
        },
        source={
            "kind": "automation",
            "id": given.automation_id,
            "name": given.automation_name,
            "run_id": turn.origin_run,
        },
        route=route,
        template=prompt.to_json(),
    )


def variables_of(turn: Turn) -> dict[str, Any]:
    """The variables of a slot's prompt template."""
    zone = turn.input.timezone
    return {
        "name": turn.input.automation_name,
        "task": with_warning(turn, fence.fenced("task", turn.content, fence.INSTRUCTIONS)),
        "scheduled_for": turn.due_at.astimezone(load_zone(zone)).isoformat(timespec="seconds"),
        "timezone": zone,
    }


class LegacyKind(SlotKind):
    """A slot of a legacy job: a turn of the internal session `cron:<job id>`, answered to its own address (rule 4.1).

    Legacy jobs are created by import only, and never migrated, bound or inferred.
    """

    name = TurnKind.LEGACY
    runs_shown = RUNS_SHOWN
    delivers_answer = False  # the answer is judged first, and may be withheld

    def trigger(self, turn: Turn, session: Session) -> Trigger:  # noqa: ARG002 - every kind is asked alike
        """The job's message. The answer goes to the job's address, if it has one."""
        return trigger_of(turn, LEGACY_PROMPT, turn.input.deliver_to)

    def to_judge(self, turn: Turn, result: TurnResult) -> str | None:
        """The task, when there is an answer to deliver; a failed, cancelled or empty turn is not judged."""
        answered = result.ending is Ending.SUCCEEDED and result.reply.strip()
        return turn.content if turn.input.deliver_to and answered else None

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Store the run's outcome and the delivery of a judged answer: pending, or withheld with the reason."""
        super().closed(turn, result, closure)
        address = turn.input.deliver_to
        if address is not None and result.verdict is not None and result.ending is Ending.SUCCEEDED:
            enqueue_judged_delivery(
                turn,
                address,
                key=f"run:{turn.origin_run}",
                withheld="" if result.verdict.notify else result.verdict.reason,
            )


class AutomationKind(SlotKind):
    """A slot of a bound job: a turn of its session, with a trigger that people can read and a recorded run."""

    name = TurnKind.AUTOMATION
    runs_shown = RUNS_SHOWN
    uses_standing_route = True

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """The automation's message. The answer takes the session's route, never a legacy address (rule 4.9)."""
        return trigger_of(turn, BOUND_PROMPT, session.standing_route)

    def repeats(self, turn: Turn, result: TurnResult) -> bool:
        """Whether a cap stopped the slot before its first model call, as it stopped the one before."""
        if not record.was_stopped(turn, result):
            return False
        run = RunRecord.objects.filter(pk=turn.origin_run).first()
        return run is not None and run.attempt == 1 and was_stopped_before(run)
