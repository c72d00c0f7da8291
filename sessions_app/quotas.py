"""How much one user may have. Requests at the same instant may exceed a quota by their number."""

from __future__ import annotations

from django.conf import settings
from django.db.models import QuerySet

from sessions_app.exceptions import TooManyAgents, TooManySessions
from sessions_app.models import Agent, Session, SessionType


def check_agents(owner_id: int) -> None:
    """Refuse another agent of this user. TooManyAgents."""
    most = settings.RONDO_AGENTS_PER_USER
    if _has(Agent.objects.filter(owner_id=owner_id), most):
        raise TooManyAgents(f"you have {most:,} agents, as many as a user may have here; delete one first")


def check_sessions(owner_id: int) -> None:
    """Refuse another session of this user, beside those of agents and automations. TooManySessions."""
    most = settings.RONDO_SESSIONS_PER_USER
    if _has(Session.objects.filter(owner_id=owner_id, type=SessionType.SUB), most):
        raise TooManySessions(
            f"you have {most:,} sessions, as many as a user may have here; delete some first"
        )


def _has(rows: QuerySet[Agent] | QuerySet[Session], most: int) -> bool:
    return rows.order_by()[most - 1 : most].exists()
