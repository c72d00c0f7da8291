"""Legacy jobs: they run in a session of their own and deliver the answer to their own address (rule 4.1).

They are created by import only, and never migrated, bound or inferred.
"""

from __future__ import annotations

from agent_core.types import Ending, TurnResult
from automations.turn_kinds.slot import SlotKind, trigger_of
from sessions_app.deliveries.outbox import enqueue_judged_delivery
from sessions_app.models import Session, Turn, TurnKind
from sessions_app.queue.kinds import Trigger

PROMPT = "cron.legacy.reminder"


class LegacyKind(SlotKind):
    """A slot of a legacy job: a turn of the internal session `cron:<job id>`."""

    name = TurnKind.LEGACY
    delivers_answer = False  # the answer is judged first, and may be withheld

    def trigger(self, turn: Turn, session: Session) -> Trigger:  # noqa: ARG002 - every kind is asked alike
        """The job's message. The answer goes to the job's address, if it has one."""
        return trigger_of(turn, PROMPT, turn.metadata["deliver_to"])

    def to_judge(self, turn: Turn, result: TurnResult) -> str | None:
        """The task, when there is an answer to deliver; a failed, cancelled or empty turn is not judged."""
        answered = result.ending is Ending.SUCCEEDED and result.reply.strip()
        return turn.content if turn.metadata["deliver_to"] and answered else None

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Store the run's outcome and the delivery of a judged answer: pending, or withheld with the reason."""
        super().closed(turn, result, closure)
        if result.verdict is not None and result.ending is Ending.SUCCEEDED:
            enqueue_judged_delivery(
                turn,
                turn.metadata["deliver_to"],
                key=f"run:{turn.origin_run}",
                withheld="" if result.verdict.notify else result.verdict.reason,
            )
