"""The briefing: what a background session is told of the person's affairs, by code, never from history (rule 3.4)."""

from __future__ import annotations

from agent_core.prompts import inside_block
from automations.models import CronJob
from automations.zone_files import zone_or_utc
from sessions_app.lines import one_line
from sessions_app.models import Agent, Session, SessionState, SessionType, TaskState

MOST_SESSIONS = 10
MOST_JOBS = 20
LONGEST_LINE = 200


def briefing(agent: Agent) -> str:
    """Task states, conversations with their last activity, and active jobs, one line each; no word of any message."""
    lines = [*_states(agent), *_conversations(agent), *_jobs(agent)]
    return "\n".join(lines) or "(nothing)"


def _states(agent: Agent) -> list[str]:
    rows = TaskState.objects.filter(session__agent=agent).order_by("-updated_at")[:MOST_SESSIONS]
    told = [(label, text) for row in rows for label, text in _parts(row)]
    return [f"- {label}: {_line(text)}" for label, text in told if text.strip()]


def _parts(row: TaskState) -> list[tuple[str, str]]:
    return [("goal", row.current_goal), *(("open", loop) for loop in row.open_loops)]


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
    """One that a person gave. What a conversation got by itself are the words of its first message."""
    return row.title if row.title and row.title_given else row.key


def _jobs(agent: Agent) -> list[str]:
    rows = CronJob.objects.filter(agent=agent, enabled=True, system_event="").order_by("created_at", "pk")
    return [f"- appointment: {_line(row.name)}" for row in rows[:MOST_JOBS]]


def _line(text: str) -> str:
    """On one line that cannot pass for the end of the block."""
    return inside_block(one_line(text, LONGEST_LINE))
