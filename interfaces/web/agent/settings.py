"""Sections of an agent's page: its model, its memory, its hooks and system events."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from agent_core.connections import EFFORTS
from agent_core.exceptions import ModelError
from agent_core.models import resolve
from interfaces.web.pages import FormResult, given_revision, person
from sessions_app.agents.documents import LONGEST_PREFERENCES, preference, put_preference
from sessions_app.agents.edit import known_zones, update_agent
from sessions_app.connections.usable import connections, model_warnings, usable_connections
from sessions_app.models import Agent, Engine, MailboxEvent
from sessions_app.reads import selectors

MOST_MAIL = 20  # updates that are shown
MOST_COUNTED = 1_000  # unread updates
MOST_HOOKS = 50
MOST_MODELS = 200  # that are proposed
OFFLINE = "offline"
SETTINGS = ("temperature", "max_tokens", "reasoning")


def change_model(request: HttpRequest, agent: Agent) -> None:
    """Change the models and their settings, the engine, the time zone or the unified mode."""
    typed = {name: request.POST[name].strip() for name in request.POST}
    changes: dict[str, Any] = {name: typed.get(name, "") for name in ("model", "engine", "timezone")}
    changes["unified_session"] = typed.get("unified_session") == "yes"
    if "fallback_model" in typed:
        changes["fallback_model"] = typed["fallback_model"]
    if model_settings := {name: _setting(typed[name]) for name in SETTINGS if name in typed}:
        changes["model_settings"] = model_settings
    update_agent(agent.pk, changes, revision=given_revision(request))


def _setting(typed: str) -> Any:
    """The value of a setting from the typed text; None removes it. A text that is no number is refused later."""
    for read in (int, float):
        with suppress(ValueError):
            return read(typed)
    return typed or None


def model(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The model with its settings, the engine and the time zone."""
    stored = {
        "model": agent.model,
        "engine": agent.engine,
        "timezone": agent.timezone,
        "unified_session": "yes" if agent.unified_session else "",
        "fallback_model": agent.fallback_model,
        **{name: agent.model_settings.get(name, "") for name in SETTINGS},
    }
    shown = outcome.shown(stored)
    is_offline = agent.effective_model == OFFLINE
    is_checked = request.GET.get("check") == "model" or is_offline
    return {
        "form": shown,
        "engines": Engine.choices,
        "efforts": EFFORTS,
        "has_settings": any(shown[name] != "" for name in SETTINGS),
        "models": _known_models(request),
        "warnings": model_warnings(agent).uncallable,
        "zones": sorted(known_zones()),
        "server_model": settings.RONDO_MODEL,
        "is_offline": is_offline,
        "is_checked": is_checked,
        "model_problem": _why_not_set_up(agent) if is_checked else "",
    }


def _known_models(request: HttpRequest) -> list[str]:
    """Models that the person's connections allow by name, and the beginnings of the others."""
    found: dict[str, None] = {}
    for row in connections(person(request)):
        found |= dict.fromkeys(f"{row.name}:{each}" for each in row.allowed_models or [""])
    return list(found)[:MOST_MODELS]


def _why_not_set_up(agent: Agent) -> str:
    """Why this process cannot use the agent's model; empty when it can. Nothing is sent to its provider."""
    name = agent.effective_model
    try:
        resolve(name, usable_connections(agent.owner_id, [name]))
    except ModelError as error:
        return str(error).splitlines()[0]
    return ""


def change_preferences(request: HttpRequest, agent: Agent) -> None:
    """Replace the person's preferences; empty ones are removed."""
    content = "" if "remove" in request.POST else request.POST.get("content", "").replace("\r\n", "\n")
    put_preference(agent, person(request).pk, content, revision=given_revision(request))


def memory(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The person's preferences, and the mailbox of the agent's own conversation."""
    user = person(request)
    stored = preference(agent, user.pk)
    primary = agent.primary_session  # type: ignore[attr-defined]
    unread = MailboxEvent.objects.filter(target=primary, acknowledged_at=None, dropped_at=None)
    return {
        "stored": stored,
        "content": outcome.shown({"content": stored.content})["content"],
        "longest": LONGEST_PREFERENCES,
        "mail": selectors.mailbox(user, primary).newest(MOST_MAIL),
        "unread": unread[:MOST_COUNTED].count(),
    }


def change_events_url(request: HttpRequest, agent: Agent) -> None:
    """Change the address to which system events are posted; an empty one ends them."""
    url = request.POST.get("events_url", "").strip()
    update_agent(agent.pk, {"events_url": url}, revision=given_revision(request))


def hooks(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The agent's hooks, and the address for system events."""
    return {
        "hooks": selectors.hooks_of(person(request), agent.name).order_by("name", "pk")[:MOST_HOOKS],
        "events_url": outcome.shown({"events_url": agent.events_url})["events_url"],
        "is_wrong": bool(outcome.problem),
        "longest_url": Agent._meta.get_field("events_url").max_length,
    }
