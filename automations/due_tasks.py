"""Beat's watch over inline routines: what is due starts a heartbeat, and who cannot start one is left alone a while."""

from __future__ import annotations

import time

import structlog
from django.db import InterfaceError, OperationalError

from automations.inline import agents_with_due, start
from sessions_app.wake import Hint, send

log = structlog.get_logger(__name__)

SHORTEST_WAIT = 0.1  # seconds
LONGEST_REST = 30.0  # after an agent's routines could not be started for a reason that nobody foresaw


class DueTasks:
    """One step of it belongs to each tick of beat. Nothing is kept but who rests until when."""

    def __init__(self) -> None:
        self._rest: dict[int, float] = {}

    def look_anew(self) -> None:
        """Somebody's plan or settings changed: nobody's rest holds any more."""
        self._rest.clear()

    def step(self) -> float:
        """Start what is due; seconds until somebody who could not start has rested."""
        now = time.monotonic()
        self._rest = {agent: until for agent, until in self._rest.items() if until > now}
        hints: list[Hint] = []
        try:
            for agent_id in agents_with_due(self._rest):
                hint, rest = self._start(agent_id)
                self._rest[agent_id] = now + rest
                hints += [hint] if hint else []
        finally:
            send(hints)
        return max(SHORTEST_WAIT, min((until - now for until in self._rest.values()), default=SHORTEST_WAIT))

    def _start(self, agent_id: int) -> tuple[Hint | None, float]:
        try:
            hint, rest = start(agent_id)
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # one agent's trouble is nobody else's
            log.exception("due_tasks_failed", agent=agent_id)
            return None, LONGEST_REST
        return hint, rest.total_seconds()
