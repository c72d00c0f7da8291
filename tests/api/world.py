"""Two users with something of everything, each full of a word that only its owner may ever be shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.core import serializers

from sessions_app.models import Agent, Event, Turn
from sessions_app.models.turn import OPEN_STATES
from tests.api.conftest import Caller, made, new_caller
from tests.api.places import Place, furnish
from tests.fleet import until

# path parameters of what can be deleted
SPARED = ("name", "session_id", "job_id", "routine_id", "message_id", "hook_id", "connection", "token_id")
GUESSED = {"document", "revision", "turn_id", "delivery_id", "chat_id"}  # whose values anybody may know
MESSAGES = 4  # more in the first session: enough events to fill a look into its stream
MARKS = 30  # for every window of the first agent: enough to fill a look into the stream of the agent


@dataclass(kw_only=True)
class Inhabitant:
    """A user with two sessions of one agent, `places`."""

    caller: Caller
    places: list[Place]
    numbers: Any = field(default_factory=itertools.count)

    @property
    def token(self) -> str:
        return self.caller.token

    @property
    def hook_token(self) -> str:
        """Of the first hook."""
        return self.places[0].hook_token

    @property
    def ids(self) -> dict[str, list[Any]]:
        """By the name of a path parameter, the values that are this user's own."""
        return {name: [each.ids[name] for each in self.places] for name in self.places[0].ids}

    @property
    def words(self) -> set[bytes]:
        """What nobody else may be shown: the secrets, and ids that are not guessed by chance."""
        own = {each for name, ids in self.ids.items() if name not in GUESSED for each in ids}
        secrets = {word for each in self.places for word in (each.secret, each.hook_token)}
        return {each.encode() for each in own | secrets}

    def spare(self, parameter: str) -> str:
        """Something new of this kind, which may be deleted."""
        if parameter == "name":
            return self._agent()
        if parameter == "hook_id":  # one agent has not so many hooks
            return str(made(self.caller.post(f"/api/agents/{self._agent()}/hooks/", {"name": "x"}))["id"])
        agent, session, secret = self.places[0].agent, self.places[0].session, self.places[0].secret
        number = next(self.numbers)
        one = f"{secret} {number}"
        there = {"provider": "ollama", "base_url": "https://models.invalid/v1", "models": ["m"]}
        later = {"send_at": "2099-01-01T00:00:00Z", "message_text": one, "replace_existing": True}
        routine = {"title": one, "schedule": "1d", "enabled": False}
        makers: dict[str, Callable[[], Any]] = {
            "session_id": lambda: self.caller.session(agent, title=one),
            "job_id": lambda: self.caller.automation(session, name=one, enabled=False)["id"],
            "routine_id": lambda: self._made(f"/api/agents/{agent}/routines/", routine)["id"],
            "message_id": lambda: self._made(f"/api/sessions/{session}/scheduled-messages/", later)["id"],
            "connection": lambda: self._made("/api/connections/", there | {"name": f"n{number}"})["name"],
            "token_id": lambda: self._made("/api/tokens/", {"name": one, "scopes": ["read"]})["id"],
        }
        return str(makers[parameter]())

    def _agent(self) -> str:
        return str(self.caller.agent(f"agent-of-{self.caller.user.username}-{next(self.numbers)}")["name"])

    def _made(self, path: str, body: Any) -> Any:
        return made(self.caller.post(path, body))


def settle(name: str) -> Inhabitant:
    """A user with all that is to be seen of one, once the turns have ended."""
    caller = new_caller(name)
    agent = str(caller.agent(f"agent-of-{name}")["name"])
    places = [furnish(caller, agent, f"{word}-of-{name}") for word in ("secret", "other")]
    session = places[0].session
    for number in range(MESSAGES):
        caller.post(f"/api/sessions/{session}/messages/", {"content": f"{places[0].secret} {number}"})
    caller.patch(f"/api/sessions/{session}/memory/", {"current_goal": places[0].secret})
    mark: dict[str, Any] = {"agent": Agent.objects.get(name=agent), "session_id": session, "scope": "agent"}
    Event.objects.bulk_create(Event(type="status", content={"n": n}, **mark) for n in range(MARKS))
    mine = Turn.objects.filter(session__owner=caller.user, state__in=OPEN_STATES)
    until(lambda: not mine.exists(), 60)
    return Inhabitant(caller=caller, places=places)


def belongings(words: set[bytes]) -> list[str]:
    """Every row that has one of these words, to the letter."""
    rows = (
        serializers.serialize("jsonl", model._default_manager.order_by("pk")) for model in apps.get_models()
    )
    lines = [line for each in rows for line in each.splitlines()]
    return [line for line in lines if any(word.decode() in line for word in words)]
