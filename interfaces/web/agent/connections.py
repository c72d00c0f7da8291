"""The section of an agent's page about connections to model providers: those of its owner, and the server's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_post_parameters

from agent_core.connections import PROVIDERS, Provider
from interfaces.web.agent.sections import (
    Outcome,
    Section,
    agent_page,
    given_revision,
    saved,
)
from interfaces.web.pages import person, person_page
from sessions_app.connections import edit, reads
from sessions_app.connections.check import TESTS, call_once
from sessions_app.exceptions import BadInput, RevisionConflict, SessionsError, TooSoon
from sessions_app.limits.allowance import take_allowance
from sessions_app.models import Agent, Connection
from sessions_app.reads import selectors

ANCHOR = "connections"
SHOWN = ("name", "provider", "base_url", "models", "requests_per_minute")  # the secret is never shown again
LONGEST_FIELD = 40_000  # characters of the names of models
MOST_NAMED = 12  # models of a connection that its line names


@sensitive_post_parameters("secret")
@person_page("POST")
def add_connection(request: HttpRequest, name: str) -> HttpResponse:
    """Add a connection of one's own."""
    given = request.POST.get("name", "").strip()
    return _do(request, name, lambda: edit.add_connection(person(request), given, _settings(request)))


@sensitive_post_parameters("secret")
@person_page("POST")
def change_connection(request: HttpRequest, name: str, connection: str) -> HttpResponse:
    """Change a connection of one's own. An empty key keeps the stored one."""
    row = reads.own_connection(person(request), connection)
    revision = given_revision(request)
    return _do(
        request,
        name,
        lambda: edit.update_connection(row.pk, _settings(request), revision=revision),
        connection,
    )


@person_page("POST")
def delete_connection(request: HttpRequest, name: str, connection: str) -> HttpResponse:
    """Delete a connection of one's own that no agent uses."""
    row = reads.own_connection(person(request), connection)
    return _do(request, name, lambda: edit.delete_connection(row.pk), connection)


@person_page("POST")
def test_connection(request: HttpRequest, name: str, connection: str) -> HttpResponse:
    """Call a model of the connection once. BadInput, TooSoon."""
    user = person(request)
    agent, row = selectors.agent(user, name), reads.connection(user, connection)
    if wait := take_allowance(f"test-model:{user.pk}", TESTS):
        raise TooSoon(f"Too many tests; try again in {wait:.0f} seconds.")
    tested = call_once(row, request.POST.get("model", "").strip())
    found = {"connection": connection, "test": tested}
    return agent_page(request, agent, Outcome(anchor=ANCHOR, found=found))


def _do(request: HttpRequest, name: str, change: Callable[[], object], connection: str = "") -> HttpResponse:
    """Change a connection. What is refused is shown again with what was typed, without the key."""
    agent = selectors.agent(person(request), name)
    typed = {field: request.POST[field][:LONGEST_FIELD] for field in SHOWN if field in request.POST}
    found = {"connection": connection}
    try:
        change()
    except RevisionConflict:
        text = "somebody changed this connection meanwhile: what is stored now is shown below"
        return agent_page(request, agent, Outcome(anchor=ANCHOR, problem=text, found=found), status=412)
    except SessionsError as error:
        again = Outcome(anchor=ANCHOR, typed=typed, problem=str(error), found=found)
        return agent_page(request, agent, again, status=400)
    return saved(agent, ANCHOR)


def _settings(request: HttpRequest) -> dict[str, Any]:
    """The settings of a form as `add_connection` and `update_connection` take them. BadInput."""
    given = {field: request.POST.get(field, "").strip() for field in (*SHOWN, "secret")}
    limit = given["requests_per_minute"] or "0"
    if not (limit.isascii() and limit.isdigit() and len(limit) < 9):
        raise BadInput("requests per minute must be a whole number", code="bad_limits")
    secret = {"secret": given["secret"]} if given["secret"] else {}
    return secret | {
        "provider": given["provider"],
        "base_url": given["base_url"],
        "models": given["models"].replace(",", " ").split(),
        "limits": {"requests_per_minute": int(limit)},
    }


def _connections(request: HttpRequest, _agent: Agent, outcome: Outcome | None) -> dict[str, Any]:
    found = outcome.found if outcome else {}
    typed = outcome.typed if outcome else {}
    rows = list(reads.connections(person(request)))
    own = {row.name for row in rows if row.owner_id is not None}
    return {
        "rows": [_line(row, found, typed) for row in rows if row.owner_id is not None or row.name not in own],
        "new": typed if not found.get("connection") else {},
        "is_adding": bool(typed) and not found.get("connection"),
        "providers": [name for name, provider in PROVIDERS.items() if not provider.missing],
        "longest_secret": edit.LONGEST_SECRET,
    }


def _line(row: Connection, found: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    is_meant = found.get("connection") == row.name
    stored = {
        "provider": row.provider,
        "base_url": row.base_url,
        "models": " ".join(row.allowed_models),
        "requests_per_minute": row.requests_per_minute or "",
    }
    models = row.allowed_models
    return {
        "row": row,
        "form": typed if is_meant and typed else stored,
        "is_own": row.owner_id is not None,
        "is_open": is_meant and bool(typed),
        "address": row.base_url or PROVIDERS.get(row.provider, Provider()).base_url,
        "models": ", ".join(models[:MOST_NAMED]) + (" and more" if len(models) > MOST_NAMED else ""),
        "test": found.get("test") if is_meant else None,
    }


SECTION = Section(
    anchor=ANCHOR, title="Connections", template="web/agent/connections.html", read=_connections
)
