"""Scheduled messages and the deletion of their sessions: they are in nobody's way, and go along."""

from __future__ import annotations

import uuid

from automations.models import RunRecord, ScheduledMessage
from sessions_app.delete import Blocker


class SessionMessages:
    """What is scheduled in sessions, for deletion."""

    def blockers(self, session_id: uuid.UUID) -> tuple[Blocker, ...]:  # noqa: ARG002 - all that is bound is asked alike
        """None: what is not sent yet is cancelled by the deletion."""
        return ()

    def lock(self, session_ids: list[uuid.UUID], agent_id: int | None) -> tuple[str, ...]:  # noqa: ARG002
        """Lock what waits before the sessions, as beat does, which takes no message that is locked."""
        rows = ScheduledMessage.objects.waiting().filter(session_id__in=session_ids)
        list(rows.select_for_update().order_by("pk").values_list("pk", flat=True))
        return ()

    def delete(self, ids: tuple[str, ...]) -> None:
        """Nothing is named by `lock`."""

    def let_go(self, session_ids: list[uuid.UUID]) -> None:
        """All of them go with their sessions, with their runs, before the history that they name."""
        RunRecord.objects.filter(scheduled_message__session_id__in=session_ids).delete()
        mine = ScheduledMessage.objects.filter(session_id__in=session_ids)
        mine.update(replaced_by=None)
        mine.delete()
