"""The base of all scheduled kinds: each turn has a run, and does not drain the mailbox."""

from __future__ import annotations

from typing import Any

from agent_core import prompts
from agent_core.text import fence
from agent_core.types import ToolCall, TurnResult
from automations.runs import record, report
from automations.schedules.zone_files import load_zone
from sessions_app.models import Turn
from sessions_app.models.message import BY_AUTOMATION
from sessions_app.models.turn import JOB_KEY
from sessions_app.permits import is_marked
from sessions_app.queue.kinds import Kind, Trigger

NO_PERSONS = (
    "This task was created or changed by another system or from outside text; no person alone asked for it."
)


def with_warning(turn: Turn, task: str) -> str:
    """The task of a slot; with a warning before it when a person alone did not ask for it (rule 3.5)."""
    return f"{NO_PERSONS}\n\n{task}" if is_marked(turn) else task


class SlotKind(Kind):
    """A slot's turn; each kind adds its name and its trigger."""

    def refused(self, turn: Turn, call: ToolCall) -> None:
        """Report the refused call: to the bound session itself, a routine's home, or the primary session."""
        report.ask_for_consent(turn, call)

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Store the run's outcome, in the turn's own commit."""
        record.record_outcome(turn, result, closure)


def trigger_of(turn: Turn, prompt_id: str, route: dict[str, Any] | None) -> Trigger:
    """The trigger of a turn: a text for the history, the rendered prompt for the model. The job is not read."""
    about = turn.metadata
    prompt = prompts.render_prompt(prompt_id, variables_of(turn))
    return Trigger(
        content=f"Scheduled automation triggered: {about['automation_name']}\n\n{turn.content}",
        model_content=prompt.text,
        metadata={
            BY_AUTOMATION: True,
            "automation_id": about[JOB_KEY],
            "automation_name": about["automation_name"],
            "automation_run_id": turn.origin_run,
            "automation_prompt_ref": prompt.ref.to_json(),
        },
        source={
            "kind": "automation",
            "id": about[JOB_KEY],
            "name": about["automation_name"],
            "run_id": turn.origin_run,
        },
        route=route,
        template=prompt.to_json(),
    )


def variables_of(turn: Turn) -> dict[str, Any]:
    """The variables of a slot's prompt template."""
    zone = turn.metadata["timezone"]
    return {
        "name": turn.metadata["automation_name"],
        "task": with_warning(turn, fence.fenced("task", turn.content, fence.INSTRUCTIONS)),
        "scheduled_for": turn.due_at.astimezone(load_zone(zone)).isoformat(timespec="seconds"),
        "timezone": zone,
    }
