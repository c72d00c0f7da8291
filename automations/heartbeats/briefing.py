"""The briefing of a background session: built by code from stored state, never from history (rule 3.4)."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import BooleanField, F, Func

from agent_core.text import fence
from automations.models import CronJob
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import PRIMARY_KEY, Agent, Session, SessionState, SessionType, TaskState
from sessions_app.single_line import one_line

MOST_SESSIONS = 10
NEWEST = 500  # conversations among which the last active ones are looked for
MOST_JOBS = 20
LONGEST_LINE = 200


def briefing(agent: Agent, *, whole: bool = False) -> str:
    """A data block of task states, conversations with their last activity, and active jobs, one line each.

    It has no text of any message. `whole`: with facts and decisions, for a reflection.
    """
    # with the agent's id, not a reference to its row, so that PostgreSQL can plan for agents with many rows
    states = TaskState.objects.filter(of_conversation("session_id", agent.pk)).order_by("-updated_at")
    conversations = Session.objects.filter(of_conversation("pk", agent.pk), state=SessionState.OPEN)
    jobs = CronJob.objects.filter(agent=agent, enabled=True, system_event="").order_by("created_at", "pk")
    told = [pair for state in states[:MOST_SESSIONS] for pair in _parts(state, whole)]
    lines = [f"- {label}: {_line(text)}" for label, text in told if text.strip()]
    lines += [_conversation(each, agent) for each in conversations.order_by("-updated_at")[:MOST_SESSIONS]]
    lines += [f"- appointment: {_line(name)}" for name in jobs.values_list("name", flat=True)[:MOST_JOBS]]
    return fence.fenced("briefing", "\n".join(lines) or "(nothing)")


def of_conversation(column: str, agent: Any) -> Func:
    """Condition: the column is the id of the agent's primary session or of one of its newest conversations.

    There is no index on activity, since each commit would have to write it. So the most recently active conversations
    are looked for among the newest ones only.
    """
    threads = Session.objects.filter(agent=agent, type=SessionType.SUB).order_by("-created_at", "-pk")
    primary = Session.objects.filter(agent=agent, key=PRIMARY_KEY)
    ids = [ArraySubquery(rows.values("pk")) for rows in (threads[:NEWEST], primary)]
    found = Func(*ids, template="ANY(ARRAY_CAT(%(expressions)s))")
    return Func(F(column), found, template="%(expressions)s", arg_joiner=" = ", output_field=BooleanField())


def _parts(state: TaskState, whole: bool) -> list[tuple[str, str]]:
    parts = [("goal", state.current_goal), *(("open", loop) for loop in state.open_loops)]
    if whole:
        parts += [("fact", fact) for fact in state.important_facts]
        parts += [("decided", state.last_decision)]
    return parts


def _conversation(row: Session, agent: Agent) -> str:
    # a title that a person gave, else the key: an automatic title has words of the first message
    title = row.title if row.title and row.title_given else row.key
    at = row.updated_at.astimezone(zone_or_utc(agent.timezone))
    return f"- conversation: {_line(title)}, last active {at.isoformat(' ', 'minutes')}"


def _line(text: str) -> str:
    """The text on one line, so that it cannot imitate another line."""
    return one_line(text, LONGEST_LINE)
