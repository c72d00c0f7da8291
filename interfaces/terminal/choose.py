"""The agent and the session that a command is about, by what somebody types."""

from __future__ import annotations

import re
import uuid

from django.db.models import Q

from sessions_app.exceptions import NotFound
from sessions_app.models import Agent, Session

MOST_NAMESAKES = 5  # agents of one name that a refusal lists

# what could move the cursor or change colours; line ends and tabs stay
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """The text without control characters: what a model writes must not control the terminal."""
    return _CONTROL.sub("", text)


def choose_agent(name: str | None) -> Agent:
    """The agent `NAME` or `USER/NAME`; without a name the only one. NotFound names the agents to choose from."""
    if name:
        return agent_called(name)
    found = list(Agent.objects.select_related("owner").order_by("pk")[: MOST_NAMESAKES + 1])
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound("there is no agent; make one in the admin or by the API")
    names = ", ".join(f"{each.owner.get_username()}/{each.name}" for each in found[:MOST_NAMESAKES])
    raise NotFound(f"there are several agents; name one with --agent, such as {names}")


def choose_session(text: str, agent: str | None) -> Session:
    """The session with this id, or with this key of the agent. NotFound."""
    rows = Session.objects.select_related("owner", "agent")
    try:
        rows = rows.filter(pk=uuid.UUID(text))
    except ValueError:
        rows = rows.filter(key=text, agent=choose_agent(agent))
    else:
        rows = rows.filter(agent=choose_agent(agent)) if agent else rows
    found = rows.first()
    if found is None:
        raise NotFound(f"there is no session {text[:100]!r}" + (f" of agent {agent!r}" if agent else ""))
    return found


def agent_called(name: str) -> Agent:
    """Find an agent of any user by its name, or by `user/name` where several users have one. NotFound."""
    owner, _, rest = name.partition("/")
    found = list(
        Agent.objects.filter(Q(name=name) | Q(name=rest, owner__username=owner))
        .select_related("owner")
        .order_by("owner__username")[:MOST_NAMESAKES]
    )
    if not found:
        raise NotFound(f"there is no agent {name!r}")
    if len(found) > 1:
        names = ", ".join(f"{agent.owner.get_username()}/{agent.name}" for agent in found)
        raise NotFound(f"several users have an agent {name!r}; use one of {names}")
    return found[0]
