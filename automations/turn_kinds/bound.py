"""Turns of bound automations."""

from __future__ import annotations

import uuid
from typing import Any

from automations.turn_kinds.slot import SlotKind, trigger_of
from sessions_app.models import Session, Turn, TurnKind
from sessions_app.turns.kinds import Trigger

PROMPT = "cron.agent_turn.reminder"


class AutomationKind(SlotKind):
    """A slot of a bound job: a turn of its session, with a trigger that people can read and a recorded run."""

    name = TurnKind.AUTOMATION
    uses_standing_route = True

    def trigger(self, turn: Turn) -> Trigger:
        """The automation's message. The answer takes the session's route, never a legacy address."""
        return trigger_of(turn, PROMPT, route_of(turn.session_id))


def route_of(session_id: uuid.UUID) -> dict[str, Any]:
    """The route of the answer: where a person last wrote, else the session's own address, else `web` (rule 4.9)."""
    columns = ("last_route", "channel", "chat_id", "channel_meta")
    return Session.objects.only(*columns).get(pk=session_id).standing_route
