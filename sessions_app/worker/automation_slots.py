"""The slots of a process that automations may use, and the sessions that wait in it for one of them."""

from __future__ import annotations

import threading
import uuid

from sessions_app.hints import Hint, send
from sessions_app.models import Lane

AUTO_SHARE = 0.8  # the part of the slots that automations may use
MOST_FORWARDED = 20  # sessions that are forwarded at once


class AutomationSlots:
    """Thread-safe."""

    def __init__(self, slots: int) -> None:
        self._free = threading.BoundedSemaphore(max(1, int(slots * AUTO_SHARE)))
        self._parked: dict[uuid.UUID, None] = {}  # in the order in which they came
        self._guard = threading.Lock()

    def take(self, session_id: uuid.UUID) -> bool:
        """Take a slot for the session. If none is free, the session is parked."""
        if self._free.acquire(blocking=False):
            return True
        self.park(session_id)
        return False

    def give_back(self) -> None:
        """Give a slot back."""
        self._free.release()

    def is_one_free(self) -> bool:
        """Whether a slot is free."""
        if is_free := self._free.acquire(blocking=False):
            self._free.release()
        return is_free

    def park(self, session_id: uuid.UUID) -> None:
        """Have the session wait for a slot."""
        with self._guard:
            self._parked[session_id] = None

    def unpark(self) -> uuid.UUID | None:
        """Return the session that was parked first, if any, and forget it."""
        with self._guard:
            session_id = next(iter(self._parked), None)
            if session_id is not None:
                del self._parked[session_id]
        return session_id

    def is_waited_for(self) -> bool:
        """Whether sessions are parked."""
        return bool(self._parked)

    def forward(self, most: int = MOST_FORWARDED) -> None:
        """Ask all workers to take the sessions that were parked first. One whose hint comes back is parked again."""
        with self._guard:
            forwarded = list(self._parked)[:most]
            for session_id in forwarded:
                del self._parked[session_id]
        send(Hint(session_id=session_id, lane=Lane.AUTO, anywhere=True) for session_id in forwarded)

    def forward_all(self) -> None:
        """Ask all workers to take all parked sessions."""
        self.forward(len(self._parked))
