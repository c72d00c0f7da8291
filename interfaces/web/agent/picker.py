"""Choosing an agent's model from a provider's list, with prices and a test; adding a provider or this machine."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from agent_core.connections import PROVIDERS, Connection
from agent_core.prices import price_of_call
from interfaces.web.agent.connections import try_model
from interfaces.web.agent.settings import OFFLINE
from interfaces.web.agent.settings import model as about_model
from interfaces.web.pages import FormResult, given_revision, person
from sessions_app.agents.edit import update_agent
from sessions_app.connections import edit, usable
from sessions_app.connections.listing import list_models
from sessions_app.exceptions import BadInput
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import Agent
from sessions_app.postgres.rows import release_connection

HERE = {  # servers of this machine: the provider and the address that they have by default
    "ollama": ("Ollama on this machine", "ollama", "http://127.0.0.1:11434/v1"),
    "lm-studio": ("LM Studio on this machine", "openai-chat", "http://127.0.0.1:1234/v1"),
}
LISTS = Rate(limit=20, seconds=60)  # for each person
MOST_LISTED = 500  # models of one list


def add_provider(request: HttpRequest, agent: Agent) -> HttpResponse:
    """Add a connection to a provider, or give the one that was added so a new key, and show its models. BadInput."""
    user, picked = person(request), request.POST.get("provider", "")
    _, provider, address = HERE.get(picked, ("", picked, ""))
    secret, name = request.POST.get("secret", "").strip(), f"my-{picked}"[:40]
    if not address and not secret:
        raise BadInput("secret is missing: enter the key that the provider gave you", code="bad_secret")
    row = usable.connections(user).filter(owner_id=user.pk, name=name).first()
    if row is None:
        edit.add_connection(user, name, {"provider": provider, "base_url": address, "secret": secret})
    elif secret:
        edit.update_connection(row.pk, {"secret": secret})
    there = reverse("agent", args=[agent.name], query={"source": name}, fragment="model")
    return HttpResponseRedirect(there, status=303)


def choose_model(request: HttpRequest, agent: Agent) -> dict[str, Any] | None:
    """Give the agent the chosen model, or call it once. BadInput, NotFound, TooSoon."""
    model = request.POST.get("choice", "").strip()
    if request.POST.get("do") != "test":
        update_agent(agent.pk, {"model": model}, revision=given_revision(request))
        return None
    connection, _, name = model.partition(":")
    if not usable.names_connection(model):
        raise BadInput("model cannot be tested here: it is not of a connection", code="bad_model")
    return {"tested": try_model(person(request), connection, name), "choice": model, "source": connection}


def model(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The section about the model: what can be chosen, and its settings."""
    return about_model(request, agent, outcome) | {"picker": _choices(request, agent, outcome)}


def _choices(request: HttpRequest, agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The connections, and the models of one of them. Only when one is chosen its provider is asked for its list."""
    user = person(request)
    rows = {row.name: row for row in reversed(usable.connections(user))}  # a person's own before the server's
    source = rows.get(str(outcome.found.get("source") or request.GET.get("source", "")))
    connection = usable.usable(source) if source else None
    names, problem = _listed(user, connection) if connection else ([], "")
    listed = [(f"{source.name}:{name}", name) for name in names] if source else []
    now = agent.effective_model
    choice = outcome.found.get("choice") or (now if now in dict(listed) or not listed else listed[0][0])
    others = [
        each for each in (OFFLINE, settings.RONDO_MODEL, *settings.RONDO_MODELS) if not each.endswith("*")
    ]
    others += [each for each in (now, choice) if each not in dict(listed)]
    return {
        "sources": sorted(rows),
        "source": source.name if source else "",
        "listed": [(model, name, _price(model, connection)) for model, name in listed],
        "problem": problem,
        "is_here": source is not None and source.base_url in [address for _, _, address in HERE.values()],
        "others": [(model, _price(model, None)) for model in dict.fromkeys(others)],
        "choice": choice,
        "tested": outcome.found.get("tested"),
        "here": [(key, each[0]) for key, each in HERE.items() if usable.may_use_this_machine(user.pk)],
        "providers": [name for name, each in PROVIDERS.items() if each.base_url and not each.missing],
        "longest_secret": edit.LONGEST_SECRET,
    }


def _listed(user: AbstractBaseUser, connection: Connection) -> tuple[list[str], str]:
    if not connection.models and (wait := take_allowance(f"list-models:{user.pk}", LISTS)):
        return [], f"you asked for many lists; try again in {wait:.0f} seconds"
    release_connection()  # during the call
    names, problem = list_models(connection)
    return [name for name in names if usable.is_model_name(name)][:MOST_LISTED], problem


def _price(model: str, connection: Connection | None) -> str:
    """The list price of a model, or its own, for a million tokens; empty: nobody has given one."""
    price = price_of_call(model, connection)
    if price is None:
        return ""
    if not price.input and not price.output:
        return "free"
    read, written = (f"${(each * 1_000_000).normalize():f}" for each in (price.input, price.output))
    return f"{read} read, {written} written"
