"""What the kinds of scheduled turns share: nobody waits, no mailbox is drained, a run is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_core import prompts
from agent_core.types import ToolCall, TurnResult
from automations import runs, told
from automations.zone_files import load_zone
from sessions_app.kinds import NO_LIMITS, Trigger
from sessions_app.models import Turn


class SlotKind:
    """A slot's turn; each kind adds its name and its trigger."""

    drains_mailbox = False
    interactive = False
    replays_model_content = False
    policy: Mapping[str, Any] = NO_LIMITS
    alone = False
    plans = True
    hands_over = True

    def started(self, turn: Turn) -> None:
        """The run is running."""
        runs.started(turn)

    def shown(self, turn: Turn, trigger: Trigger) -> None:
        """The run keeps the prompt."""
        runs.shown(turn, trigger)

    def refused(self, turn: Turn, call: ToolCall) -> None:
        """The home is told what is asked for: the bound session itself, a routine's home, else the primary session."""
        told.ask_for_consent(turn, call)

    def said(self, turn: Turn) -> str | None:
        """Slots ask the model."""

    def to_judge(self, turn: Turn, result: TurnResult) -> str | None:
        """Nobody judges what the kind does not ask to be judged."""

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """The run's real outcome, in the turn's own commit."""
        runs.closed(turn, result, closure)


def trigger_of(turn: Turn, prompt_id: str, route: dict[str, Any] | None) -> Trigger:
    """The readable trigger for the history, the rendered prompt for the model: from the turn, not the job."""
    about = turn.metadata
    prompt = prompts.render(prompt_id, variables_of(turn))
    return Trigger(
        content=f"Scheduled automation triggered: {about['automation_name']}\n\n{turn.content}",
        model_content=prompt.text,
        metadata={
            "_automation_turn": True,
            "automation_id": about["automation_id"],
            "automation_name": about["automation_name"],
            "automation_run_id": turn.origin_run,
            "automation_prompt_ref": prompt.ref.to_json(),
        },
        source={
            "kind": "automation",
            "id": about["automation_id"],
            "name": about["automation_name"],
            "run_id": turn.origin_run,
        },
        route=route,
        template=prompt.to_json(),
    )


def variables_of(turn: Turn) -> dict[str, Any]:
    """What the template of a slot's prompt has places for."""
    zone = turn.metadata["timezone"]
    return {
        "name": turn.metadata["automation_name"],
        "message": turn.content,
        "scheduled_for": turn.due_at.astimezone(load_zone(zone)).isoformat(timespec="seconds"),
        "timezone": zone,
    }
