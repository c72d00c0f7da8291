"""The briefing of a background session: built by code from stored state, never from history (rule 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import BooleanField, F, Func, OuterRef
from django.db.models.functions import JSONObject

from agent_core.text import fence
from automations.models import CronJob
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import PRIMARY_KEY, Agent, Session, SessionState, SessionType, TaskState
from sessions_app.single_line import one_line

MOST_SESSIONS = 10
NEWEST = 500  # conversations among which the last active ones are looked for
MOST_JOBS = 20
LONGEST_LINE = 200
_STATE = ("current_goal", "open_loops", "important_facts", "last_decision")
_CONVERSATION = ("key", "title", "title_given", "updated_at")


def briefing(agent: Agent) -> str:
    """A data block of task states, conversations with their last activity, and active jobs, one line each.

    It has no text of any message.
    """
    row = Agent.objects.filter(pk=agent.pk).only("pk").annotate(**briefing_rows(agent)).first()
    return briefing_of(row, agent)


def briefing_of(row: Any, agent: Agent, *, whole: bool = False) -> str:
    """The briefing from a row with `briefing_rows`. `whole`: with facts and decisions, for a reflection."""
    if row is None:  # the agent is gone
        return fence.fenced("briefing", "(nothing)")
    told = [pair for state in row.states for pair in _parts(state, whole)]
    lines = [f"- {label}: {_line(text)}" for label, text in told if text.strip()]
    lines += [_conversation(each, agent) for each in row.conversations]
    lines += [f"- appointment: {_line(name)}" for name in row.appointments]
    return fence.fenced("briefing", "\n".join(lines) or "(nothing)")


def briefing_rows(agent: Agent) -> dict[str, ArraySubquery]:
    """The rows that a briefing reads, as annotations of the agent's row.

    The subqueries contain the agent's id, not a reference to its row, so that PostgreSQL can plan for agents with many
    rows.
    """
    states = TaskState.objects.filter(of_conversation("session_id", agent.pk)).order_by("-updated_at")
    conversations = Session.objects.filter(of_conversation("pk", agent.pk), state=SessionState.OPEN)
    jobs = CronJob.objects.filter(agent=OuterRef("pk"), enabled=True, system_event="")
    return {
        "states": json_rows(states[:MOST_SESSIONS], *_STATE),
        "conversations": json_rows(conversations.order_by("-updated_at")[:MOST_SESSIONS], *_CONVERSATION),
        "appointments": ArraySubquery(jobs.order_by("created_at", "pk").values("name")[:MOST_JOBS]),
    }


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


def json_rows(rows: Any, *names: str) -> ArraySubquery:
    """The rows as a list of JSON objects with these fields; instants are ISO texts."""
    return ArraySubquery(rows.values(shown=JSONObject(**{name: name for name in names})))


def _parts(state: Mapping[str, Any], whole: bool) -> list[tuple[str, str]]:
    parts = [("goal", state["current_goal"]), *(("open", loop) for loop in state["open_loops"])]
    if whole:
        parts += [("fact", fact) for fact in state["important_facts"]]
        parts += [("decided", state["last_decision"])]
    return parts


def _conversation(row: Mapping[str, Any], agent: Agent) -> str:
    # a title that a person gave, else the key: an automatic title has words of the first message
    title = row["title"] if row["title"] and row["title_given"] else row["key"]
    at = datetime.fromisoformat(row["updated_at"]).astimezone(zone_or_utc(agent.timezone))
    return f"- conversation: {_line(title)}, last active {at.isoformat(' ', 'minutes')}"


def _line(text: str) -> str:
    """The text on one line, so that it cannot imitate another line."""
    return one_line(text, LONGEST_LINE)
