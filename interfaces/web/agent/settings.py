"""Sections of an agent's page: its model and connection, its documents, its memory, its hooks and system events."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from agent_core.connections import EFFORTS, Connection
from agent_core.exceptions import ModelError
from agent_core.models import resolve
from interfaces.web.agent.sections import (
    USES,
    Outcome,
    Section,
    agent_page,
    change_agent,
    given_revision,
    saved,
)
from interfaces.web.pages import person, person_page
from sessions_app.agents.edit import known_zones
from sessions_app.connections.reads import connections as connections_of
from sessions_app.connections.usable import model_warnings, usable_connections
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.memory.preferences import LONGEST, preference, put_preference
from sessions_app.models import Agent, Engine, MailboxEvent
from sessions_app.reads import selectors

MOST_MAIL = 20  # updates that are shown
MOST_COUNTED = 1_000  # unread updates
MOST_HOOKS = 50
MOST_MODELS = 200  # that are proposed
OFFLINE = "offline"
SETTINGS = ("temperature", "max_tokens", "reasoning")


@person_page("POST")
def change_model(request: HttpRequest, name: str) -> HttpResponse:
    """Change the models and their settings, the engine, the time zone or the unified mode."""

    def changes() -> dict[str, Any]:
        given: dict[str, Any] = {
            each: request.POST.get(each, "").strip() for each in ("model", "engine", "timezone")
        }
        if "fallback_model" in request.POST:
            given["fallback_model"] = request.POST["fallback_model"].strip()
        settings = {name: _setting(request.POST[name].strip()) for name in SETTINGS if name in request.POST}
        more = {"model_settings": settings} if settings else {}
        return given | more | {"unified_session": request.POST.get("unified_session") == "yes"}

    return change_agent(request, name, "model", changes)


def _setting(typed: str) -> Any:
    """A setting as it was typed; None removes it. What is no number is refused later."""
    for read in (int, float):
        with suppress(ValueError):
            return read(typed)
    return typed or None


@person_page("POST")
def change_preferences(request: HttpRequest, name: str) -> HttpResponse:
    """Replace the person's preferences; empty ones are removed."""
    user = person(request)
    agent = selectors.agent(user, name)
    content = request.POST.get("content", "").replace("\r\n", "\n")
    if "remove" in request.POST:
        content = ""
    try:
        put_preference(agent, user.pk, content, revision=given_revision(request))
    except RevisionConflict:
        again = Outcome(anchor="memory", typed={"content": content}, is_conflict=True)
        return agent_page(request, agent, again, status=412)
    except SessionsError as error:
        again = Outcome(anchor="memory", typed={"content": content}, problem=str(error))
        return agent_page(request, agent, again, status=400)
    return saved(agent, "memory")


def _model(request: HttpRequest, agent: Agent, outcome: Outcome | None) -> dict[str, Any]:
    stored = {
        "model": agent.model,
        "engine": agent.engine,
        "timezone": agent.timezone,
        "unified_session": "yes" if agent.unified_session else "",
        "fallback_model": agent.fallback_model,
        **{name: agent.model_settings.get(name, "") for name in SETTINGS},
    }
    typed = outcome.typed if outcome else stored
    checked = request.GET.get("check") == "model" or agent.effective_model == OFFLINE
    return {
        "form": {each: typed.get(each, "") for each in stored},
        "engines": Engine.choices,
        "efforts": EFFORTS,
        "has_settings": any(typed.get(each, "") != "" for each in SETTINGS),
        "models": _known_models(request),
        "warnings": model_warnings(agent),
        "zones": sorted(known_zones()),
        "server_model": settings.RONDO_MODEL,
        "is_offline": agent.effective_model == OFFLINE,
        "is_checked": checked,
        "model_problem": _why_not(agent) if checked else "",
    }


def _known_models(request: HttpRequest) -> list[str]:
    """Models that the person's connections allow by name, and the beginnings of the others."""
    found: dict[str, None] = {}
    for row in connections_of(person(request)):
        found |= dict.fromkeys(f"{row.name}:{each}" for each in row.allowed_models or [""])
    return list(found)[:MOST_MODELS]


def why_not_set_up(model: str, connections: tuple[Connection, ...] = ()) -> str:
    """Why this process cannot use the model; empty when it can. Nothing is sent to its provider."""
    try:
        resolve(model, connections)
    except ModelError as error:
        return str(error).splitlines()[0]
    return ""


def _why_not(agent: Agent) -> str:
    return why_not_set_up(agent.effective_model, usable_connections(agent.owner_id, [agent.effective_model]))


def _documents(request: HttpRequest, agent: Agent, _outcome: Outcome | None) -> dict[str, Any]:
    found = selectors.documents(person(request), agent.name)
    return {
        "documents": [
            {"row": each, "characters": len(each.content), "use": USES.get(each.name, "")} for each in found
        ]
    }


def _memory(request: HttpRequest, agent: Agent, outcome: Outcome | None) -> dict[str, Any]:
    user = person(request)
    stored = preference(agent, user.pk)
    primary = agent.primary_session  # type: ignore[attr-defined]
    unread = MailboxEvent.objects.filter(target=primary, acknowledged_at=None, dropped_at=None)
    return {
        "stored": stored,
        "content": outcome.typed["content"] if outcome else stored.content,
        "longest": LONGEST,
        "mail": selectors.mailbox(user, primary).newest(MOST_MAIL),
        "unread": unread[:MOST_COUNTED].count(),
    }


@person_page("POST")
def change_events_url(request: HttpRequest, name: str) -> HttpResponse:
    """Change the address to which system events are posted; an empty one ends them."""
    return change_agent(
        request, name, "hooks", lambda: {"events_url": request.POST.get("events_url", "").strip()}
    )


def _hooks(request: HttpRequest, agent: Agent, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "hooks": selectors.hooks_of(person(request), agent.name).order_by("name", "pk")[:MOST_HOOKS],
        "events_url": outcome.typed.get("events_url", "") if outcome else agent.events_url,
        "is_wrong": outcome is not None and bool(outcome.problem),
        "longest_url": Agent._meta.get_field("events_url").max_length,
    }


MODEL = Section(
    anchor="model", title="Model", template="web/agent/model.html", read=_model, has_revision=True
)
DOCUMENTS = Section(
    anchor="documents", title="Documents", template="web/agent/documents.html", read=_documents
)
MEMORY = Section(anchor="memory", title="Memory", template="web/agent/memory.html", read=_memory)
HOOKS = Section(
    anchor="hooks", title="Hooks", template="web/agent/hooks.html", read=_hooks, has_revision=True
)
