"""Turns of bound automations."""

from __future__ import annotations

from automations.turn_kinds.slot import SlotKind, trigger_of
from sessions_app.models import Session, Turn, TurnKind
from sessions_app.queue.kinds import Trigger

PROMPT = "cron.agent_turn.reminder"


class AutomationKind(SlotKind):
    """A slot of a bound job: a turn of its session, with a trigger that people can read and a recorded run."""

    name = TurnKind.AUTOMATION
    uses_standing_route = True

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """The automation's message. The answer takes the session's route, never a legacy address (rule 4.9)."""
        return trigger_of(turn, PROMPT, session.standing_route)
