"""The briefing of a background session: built by code from stored state, never from history (rule 3.4)."""

from __future__ import annotations

from agent_core.text import fence
from automations.models import CronJob
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import Agent, Session, SessionState, SessionType, TaskState
from sessions_app.single_line import one_line

MOST_SESSIONS = 10
MOST_JOBS = 20
LONGEST_LINE = 200


def briefing(agent: Agent, *, whole: bool = False) -> str:
    """A data block of task states, conversations with their last activity, and active jobs, one line each.

    It has no text of any message. `whole`: task states with facts and decisions, for a reflection.
    """
    lines = [*_states(agent, whole), *_conversations(agent), *_jobs(agent)]
    return fence.fenced("briefing", "\n".join(lines) or "(nothing)")


def _states(agent: Agent, whole: bool) -> list[str]:
    rows = TaskState.objects.filter(session__agent=agent).order_by("-updated_at")[:MOST_SESSIONS]
    told = [(label, text) for row in rows for label, text in _parts(row, whole)]
    return [f"- {label}: {_line(text)}" for label, text in told if text.strip()]


def _parts(row: TaskState, whole: bool) -> list[tuple[str, str]]:
    parts = [("goal", row.current_goal), *(("open", loop) for loop in row.open_loops)]
    if whole:
        parts += [("fact", fact) for fact in row.important_facts] + [("decided", row.last_decision)]
    return parts


def _conversations(agent: Agent) -> list[str]:
    rows = Session.objects.filter(
        agent=agent, type__in=[SessionType.PRIMARY, SessionType.SUB], state=SessionState.OPEN
    ).order_by("-updated_at")[:MOST_SESSIONS]
    zone = zone_or_utc(agent.timezone)
    return [
        f"- conversation: {_line(_title(row))}, last active"
        f" {row.updated_at.astimezone(zone).isoformat(' ', 'minutes')}"
        for row in rows
    ]


def _title(row: Session) -> str:
    """A title that a person gave, else the key: an automatic title has words of the first message."""
    return row.title if row.title and row.title_given else row.key


def _jobs(agent: Agent) -> list[str]:
    rows = CronJob.objects.filter(agent=agent, enabled=True, system_event="").order_by("created_at", "pk")
    return [f"- appointment: {_line(row.name)}" for row in rows[:MOST_JOBS]]


def _line(text: str) -> str:
    """The text on one line, so that it cannot imitate another line."""
    return one_line(text, LONGEST_LINE)
