"""Beat's watch over inline routines: what is due starts a heartbeat, and who cannot start one is left alone a while."""

from __future__ import annotations

import time

import structlog
from django.db import InterfaceError, OperationalError

from automations.inline import BUSY, agents_with_due, seconds_to_next, start
from sessions_app.wake import Hint, send

log = structlog.get_logger(__name__)

LONGEST_WAIT = 30.0  # seconds


class DueTasks:
    """One step of it belongs to each tick of beat. Nothing is kept but who rests until when."""

    def __init__(self) -> None:
        self._rest: dict[int, float] = {}

    def look_anew(self) -> None:
        """Somebody's plan or settings changed: nobody's rest holds any more."""
        self._rest.clear()

    def step(self) -> float:
        """Start what is due; seconds until the next look."""
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
        wait = seconds_to_next()
        waits = [LONGEST_WAIT if wait is None or wait <= 0 else wait]
        waits += [until - now for until in self._rest.values()]
        return max(0.1, min(waits))

    def _start(self, agent_id: int) -> tuple[Hint | None, float]:
        try:
            hint, rest = start(agent_id)
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # one agent's trouble is nobody else's
            log.exception("due_tasks_failed", agent=agent_id)
            return None, LONGEST_WAIT
        return hint, max(rest, BUSY).total_seconds()
