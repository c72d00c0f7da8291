"""Sections of an agent's page: its model and connection, its documents, its memory, its hooks."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from agent_core.exceptions import ModelError
from agent_core.models import resolve
from sessions_app import selectors
from sessions_app.agents.edit import known_zones
from sessions_app.exceptions import RevisionConflict, SessionsError
from sessions_app.memory.preferences import LONGEST, preference, put_preference
from sessions_app.models import Agent, Engine
from sessions_app.web.agent_sections import (
    Outcome,
    Section,
    agent_page,
    change_agent,
    given_revision,
    register_section,
    saved,
)
from sessions_app.web.pages import person, person_page

MOST_MAIL = 20  # updates that are shown
MOST_COUNTED = 1_000  # unread updates
MOST_HOOKS = 50
OFFLINE = "offline"


@person_page("POST")
def change_model(request: HttpRequest, name: str) -> HttpResponse:
    """Change the model, the engine, the time zone or the unified mode."""

    def changes() -> dict[str, Any]:
        given = {each: request.POST.get(each, "").strip() for each in ("model", "engine", "timezone")}
        return given | {"unified_session": request.POST.get("unified_session") == "yes"}

    return change_agent(request, name, "model", changes)


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
    }
    typed = outcome.typed if outcome else stored
    checked = request.GET.get("check") == "model" or agent.effective_model == OFFLINE
    return {
        "form": {each: typed.get(each, "") for each in stored},
        "engines": Engine.choices,
        "zones": sorted(known_zones()),
        "server_model": settings.RONDO_MODEL,
        "is_offline": agent.effective_model == OFFLINE,
        "is_checked": checked,
        "model_problem": why_not_set_up(agent.effective_model) if checked else "",
    }


def why_not_set_up(model: str) -> str:
    """Why this process cannot use the model; empty when it can. Nothing is sent to its provider."""
    try:
        resolve(model)
    except ModelError as error:
        return str(error).splitlines()[0]
    return ""


def _documents(request: HttpRequest, agent: Agent, _outcome: Outcome | None) -> dict[str, Any]:
    found = selectors.documents(person(request), agent.name)
    return {"documents": [{"row": each, "characters": len(each.content)} for each in found]}


def _memory(request: HttpRequest, agent: Agent, outcome: Outcome | None) -> dict[str, Any]:
    user = person(request)
    stored = preference(agent, user.pk)
    rows = selectors.mailbox(user, agent.primary_session)  # type: ignore[attr-defined]
    return {
        "stored": stored,
        "content": outcome.typed["content"] if outcome else stored.content,
        "longest": LONGEST,
        "mail": rows.order_by("-id")[:MOST_MAIL],
        "unread": len(rows.filter(acknowledged_at=None, dropped_at=None)[:MOST_COUNTED]),
    }


def _hooks(request: HttpRequest, agent: Agent, _outcome: Outcome | None) -> dict[str, Any]:
    return {"hooks": selectors.hooks_of(person(request), agent.name).order_by("name", "pk")[:MOST_HOOKS]}


def register_sections() -> None:
    """Add these sections to the pages of all agents."""
    for anchor, title, read, place in (
        ("model", "Model", _model, 10),
        ("documents", "Documents", _documents, 20),
        ("memory", "Memory", _memory, 60),
        ("hooks", "Hooks", _hooks, 70),
    ):
        template = f"web/agent/{anchor}.html"
        has_revision = anchor == "model"
        register_section(
            Section(
                anchor=anchor,
                title=title,
                template=template,
                read=read,
                place=place,
                has_revision=has_revision,
            )
        )
