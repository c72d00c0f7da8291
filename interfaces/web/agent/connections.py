"""The section of an agent's page about connections to model providers: those of its owner, and the server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

from agent_core.connections import PROVIDERS, Provider
from agent_core.prices import ALL
from interfaces.web.agent.settings import CAPS, cap_rows, stored_caps, typed_caps
from interfaces.web.pages import FormResult, given_revision, person, whole_number
from sessions_app.connections import edit, usable
from sessions_app.connections.check import TESTS, Tested, call_once
from sessions_app.exceptions import BadInput, TooSoon
from sessions_app.limits.request_rate import take_allowance
from sessions_app.models import Agent, Connection
from sessions_app.spending.caps import budget_of, caps_in_words

PRICES = {"input": "read", "output": "written"}  # the fields `price_input` and `price_output`, in words
SHOWN = (
    "name",
    "provider",
    "base_url",
    "models",
    "requests_per_minute",
    *CAPS,
    *(f"price_{name}" for name in PRICES),
)  # the secret is never shown again
LONGEST_FIELD = 40_000  # characters of the names of models
MOST_NAMED = 12  # models of a connection that its line names


def add_connection(request: HttpRequest, _agent: Agent) -> None:
    """Add a connection of one's own."""
    edit.add_connection(person(request), request.POST.get("name", "").strip(), _settings(request, {}))


def change_connection(request: HttpRequest, _agent: Agent, connection: str) -> None:
    """Change a connection of one's own. An empty key keeps the stored one."""
    row = usable.own_connection(person(request), connection)
    edit.update_connection(row.pk, _settings(request, row.prices), revision=given_revision(request))


def delete_connection(request: HttpRequest, _agent: Agent, connection: str) -> None:
    """Delete a connection of one's own that no agent uses."""
    edit.delete_connection(usable.own_connection(person(request), connection).pk)


def try_connection(request: HttpRequest, _agent: Agent, connection: str) -> dict[str, Any]:
    """Call a model of the connection once. BadInput, TooSoon."""
    return {"test": try_model(person(request), connection, request.POST.get("model", "").strip())}


def try_model(user: AbstractBaseUser, connection: str, model: str) -> Tested:
    """Call a model of a connection once, by default its first one. NotFound, BadInput, TooSoon."""
    row = usable.connection(user, connection)
    if wait := take_allowance(f"test-model:{user.pk}", TESTS):
        raise TooSoon(f"Too many tests; try again in {wait:.0f} seconds.")
    return call_once(row, model)


def _settings(request: HttpRequest, prices: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a form as `add_connection` and `update_connection` take them. `prices`: as stored. BadInput."""
    given = {field: request.POST.get(field, "").strip() for field in (*SHOWN, "secret")}
    limit = whole_number(given["requests_per_minute"] or "0")
    if limit is None:
        raise BadInput("requests per minute must be a whole number", code="bad_limits")
    secret = {"secret": given["secret"]} if given["secret"] else {}
    return secret | {
        "provider": given["provider"],
        "base_url": given["base_url"],
        "models": given["models"].replace(",", " ").split(),
        "limits": {"requests_per_minute": limit, **typed_caps(request)},
        "prices": _typed_prices(request, prices),
    }


def _typed_prices(request: HttpRequest, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The prices as stored, with those of the form for all models that have none of their own."""
    fields = {name: request.POST.get(f"price_{name}", stored.get(ALL, {}).get(name, "")) for name in PRICES}
    typed = {name: text.strip() for name, text in fields.items()}
    single = {model: price for model, price in stored.items() if model != ALL}
    return {**single, ALL: typed} if any(typed.values()) else single


def connections(request: HttpRequest, _agent: Agent, outcome: FormResult) -> dict[str, Any]:
    """The connections, of which one may have a form that was refused or the result of a test."""
    meant = outcome.found.get("connection", "")
    # after a conflict a form begins again with what is stored
    given = {} if outcome.is_conflict else outcome.typed or {}
    typed = {name: given[name][:LONGEST_FIELD] for name in SHOWN if name in given}
    rows = list(usable.connections(person(request)))
    own = {row.name for row in rows if row.owner_id is not None}
    return {
        "rows": [
            _line(row, typed, outcome.found.get("test")) if row.name == meant else _line(row, {}, None)
            for row in rows
            if row.owner_id is not None or row.name not in own
        ],
        "new": {} if meant else typed,
        "new_caps": cap_rows({} if meant else typed, {}),
        "new_price": _price_fields({} if meant else typed),
        "is_adding": bool(typed) and not meant,
        "providers": [name for name, provider in PROVIDERS.items() if not provider.missing],
        "longest_secret": edit.LONGEST_SECRET,
    }


def _line(row: Connection, typed: dict[str, str], test: Any) -> dict[str, Any]:
    models = row.allowed_models
    stored = {
        "provider": row.provider,
        "base_url": row.base_url,
        "models": " ".join(models),
        "requests_per_minute": str(row.requests_per_minute or ""),
        **stored_caps(row.limits),
        **{f"price_{name}": text for name, text in row.prices.get(ALL, {}).items()},
    }
    is_own = row.owner_id is not None
    budget = budget_of("connection", row.pk, row.limits if is_own else {})
    return {
        "row": row,
        "form": typed or stored,
        "caps": cap_rows(typed or stored, {}),
        "spent": [*caps_in_words(budget).values(), *(usable.unpriced_models(row) if is_own else ())],
        "price": _price_fields(typed or stored),
        "has_prices": is_own and row.prices,
        "single_prices": _in_words(row.prices),
        "is_own": is_own,
        "is_open": bool(typed),
        "address": row.base_url or PROVIDERS.get(row.provider, Provider()).base_url,
        "models": ", ".join(models[:MOST_NAMED]) + (" and more" if len(models) > MOST_NAMED else ""),
        "test": test,
    }


def _price_fields(shown: Mapping[str, str]) -> list[dict[str, str]]:
    return [
        {"name": f"price_{name}", "words": words, "usd": shown.get(f"price_{name}", "")}
        for name, words in PRICES.items()
    ]


def _in_words(prices: Mapping[str, Any]) -> str:
    """The prices of single models, such as `gpt-5: $1.25 read, $10 written`."""
    single = [
        f"{model}: {', '.join(f'${price[name]} {words}' for name, words in PRICES.items())}"
        for model, price in prices.items()
        if model != ALL
    ]
    return "; ".join(single[:MOST_NAMED]) + (" and more" if len(single) > MOST_NAMED else "")
