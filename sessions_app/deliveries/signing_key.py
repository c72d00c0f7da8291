"""The key that signs an agent's webhooks: made when it is first needed, shown only to the agent's owner."""

from __future__ import annotations

from sessions_app.channels.webhook import new_secret
from sessions_app.exceptions import NotFound
from sessions_app.models import Agent


def secret_of(agent_id: int) -> str:
    """The agent's key. NotFound."""
    Agent.objects.filter(pk=agent_id, signing_secret="").update(signing_secret=new_secret())
    found = Agent.objects.filter(pk=agent_id).values_list("signing_secret", flat=True).first()
    if found is None:
        raise NotFound("there is no such agent")
    return found


def new_secret_of(agent_id: int) -> str:
    """Replace the key. An attempt that is running may still use the old one. NotFound."""
    if not Agent.objects.filter(pk=agent_id).update(signing_secret=new_secret()):
        raise NotFound("there is no such agent")
    return secret_of(agent_id)
