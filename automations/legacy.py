"""Legacy jobs run the old way: in a session of their own, the answer handed to a channel (rule 4.1).

They enter by import only, and are never migrated, bound or inferred.
"""

from __future__ import annotations

from agent_core.types import Ending, TurnResult
from automations.slot_kind import SlotKind, trigger_of
from sessions_app.deliver import hand_over_judged
from sessions_app.kinds import Trigger
from sessions_app.models import Turn, TurnKind

PROMPT = "cron.legacy.reminder"


class LegacyKind(SlotKind):
    """A slot of a legacy job: a turn of the internal session `cron:<job id>`."""

    name = TurnKind.LEGACY
    hands_over = False  # what is judged may be withheld

    def trigger(self, turn: Turn) -> Trigger:
        """The job's own words; the answer goes to the job's address, if it has one."""
        return trigger_of(turn, PROMPT, turn.metadata["deliver_to"])

    def to_judge(self, turn: Turn, result: TurnResult) -> str | None:
        """An answer that would be delivered is judged; a failure, a cancel or silence delivers nothing."""
        answered = result.ending is Ending.SUCCEEDED and result.reply.strip()
        return turn.content if turn.metadata["deliver_to"] and answered else None

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """The run's outcome and, of an answer that was judged, its delivery: pending, or withheld with the reason."""
        super().closed(turn, result, closure)
        if result.verdict is not None and result.ending is Ending.SUCCEEDED:
            hand_over_judged(
                turn,
                turn.metadata["deliver_to"],
                key=f"run:{turn.origin_run}",
                withheld="" if result.verdict.notify else result.verdict.reason,
            )
