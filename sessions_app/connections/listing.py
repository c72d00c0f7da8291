"""Asks a provider for its list of models: to choose from, and whether it would refuse one (rule 11.5).

Only what the provider says for sure counts. An outage, a provider without a list, or one that can only be reached
through a proxy says nothing.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from agent_core.addresses import NoAddress, host_and_port, parse_web_address
from agent_core.connections import (
    PROVIDERS,
    REJECTED,
    USED_UP,
    Connection,
    concerns,
    connection_of,
    named_model,
    prefix_of,
)
from agent_core.tools.http_request import HttpAnswer, HttpRequest, send_request
from sessions_app.connections.usable import names_connection, refusal

SECONDS = 5.0  # for each request
MOST_BYTES = 2_000_000
NOT_LISTED = frozenset({"azure", "litellm"})  # their list has other names than those that may be called
_OWN_KEYS = {"openai-chat": "OPENAI_API_KEY", "groq": "GROQ_API_KEY"}  # of the server's environment
_NO_SCOPE = re.compile(rb"scope|permission", re.IGNORECASE)  # a key may call models and not list them


@dataclass(frozen=True, kw_only=True)
class ModelLists:
    """The lists of models of one round of checks: each connection is asked once for each of its models."""

    known: dict[tuple[Connection, str], str | None] = field(default_factory=dict)

    def trouble(self, owner_id: int, model: str, usables: Iterable[Connection]) -> str | None:
        """Why this model of a user cannot be called; empty: it can be. None: unknown. No transaction is open."""
        connection, name = connection_of(model, usables)
        if not names_connection(model):
            if why := refusal(owner_id, model):
                return why
            return self._said(_own_connection(prefix_of(model)), model.partition(":")[2])
        if connection is None or (why := connection.refusal(name)):
            return why if connection else ""
        said, last = self._said(connection, name), connection.error
        if said or not last or not concerns(last, name):
            return said
        if REJECTED not in last:  # an outage
            return None
        # a key or a name that the list accepts is mended; a bill may be unpaid all the same
        return last if said is None or USED_UP in last else ""

    def _said(self, connection: Connection | None, model: str) -> str | None:
        """Why the provider refuses the model; empty: it lists it. None: unknown."""
        if connection is None:
            return None
        key = (connection, model)
        if key not in self.known:
            self.known[key] = _ask(connection, model)
        return self.known[key]


def _own_connection(prefix: str) -> Connection | None:
    """The server's own access to a provider, where it is a key and an address."""
    key = os.environ.get(_OWN_KEYS.get(prefix, ""), "")
    if not key:
        return None
    address = os.environ.get("OPENAI_BASE_URL", "") if prefix == "openai-chat" else ""
    return Connection(name="", provider=prefix, base_url=address, secret=key)


def list_models(connection: Connection) -> tuple[list[str], str]:
    """The models that may be chosen, by name: the allowed ones, else those of the provider's list. And why there are
    none; empty: there are. No transaction is open.
    """
    if connection.fault or connection.models:
        return sorted(connection.models), connection.fault
    address, most = _address(connection)
    if not address:
        return [], f"{connection.provider} has no list of models"
    try:
        found = _get(connection, f"{address}{most}")
        if found.status == 200:
            return sorted(_names(found.body)), ""
    except NoAddress as error:
        return [], str(error)
    except OSError as error:
        return [], f"{address} cannot be reached ({error.strerror or 'no answer'})"
    except (http.client.HTTPException, ValueError, RecursionError):
        return [], f"there is no model at {address}"
    return [], _refused(found) or f"{address} answered with the status {found.status}"


def _address(connection: Connection) -> tuple[str, str]:
    """The address of the provider's list, and how to ask for all of it. Empty: there is no list."""
    provider = PROVIDERS.get(connection.provider)
    base = (connection.base_url or (provider.base_url if provider else "")).rstrip("/")
    if not base or connection.provider in NOT_LISTED:
        return "", ""
    path, most = _PATHS.get(connection.provider, ("/models", ""))
    return f"{base}{path}", most


def _ask(connection: Connection, model: str) -> str | None:
    address, most = _address(connection)
    if not address:
        return None
    try:
        found = _get(connection, f"{address}{most}")
        if found.status != 200:
            return _refused(found)
        if model in _names(found.body):
            return ""
        # a name may be an alias, which the list leaves out
        one = _get(connection, f"{address}/{quote(model, safe='')}")
    except (NoAddress, OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    if one.status == 404:
        return f"{REJECTED} (404: {named_model(model)} does not exist)"
    return "" if one.status == 200 else _refused(one)


_PATHS = {  # of the list of models, and how to ask for all of them
    "anthropic": ("/v1/models", "?limit=1000"),
    "google": ("/v1beta/models", "?pageSize=1000"),
    "mistral": ("/v1/models", ""),
}


def _bearer(key: str) -> tuple[tuple[str, str], ...]:
    return (("Authorization", f"Bearer {key}"),)


_HEADERS: dict[str, Callable[[str], tuple[tuple[str, str], ...]]] = {
    "anthropic": lambda key: (("x-api-key", key), ("anthropic-version", "2023-06-01")),
    "google": lambda key: (("x-goog-api-key", key),),
}


def _get(connection: Connection, url: str) -> HttpAnswer:
    parts = parse_web_address(url)
    secret = connection.secret
    given = _HEADERS.get(connection.provider, _bearer)
    headers = (("Accept", "application/json"), *(given(secret) if secret else ()))
    host, port = host_and_port(parts)
    reach = connection.reach
    allowed = reach.address_check(host, port) if reach else lambda _address: True
    user = reach.user if reach else ""
    request = HttpRequest(parts=parts, headers=headers, most_bytes=MOST_BYTES, user=user)
    return send_request(request, allowed, time.monotonic() + SECONDS)


def _refused(answer: HttpAnswer) -> str | None:
    """Why the provider refuses, as far as the status says so for sure; None: it says nothing."""
    if answer.status == 401 and not _NO_SCOPE.search(answer.body):
        return f"{REJECTED} (401: invalid API key)"
    return f"{REJECTED} (402: {USED_UP})" if answer.status == 402 else None


def _names(body: bytes) -> set[str]:
    """The names of a list of models. ValueError if it is none."""
    data: Any = json.loads(body)
    rows = data.get("data", data.get("models")) if isinstance(data, dict) else data
    if not isinstance(rows, list) or not rows:
        raise ValueError("no list of models")
    names = (str(row.get("id") or row.get("name") or "") for row in rows if isinstance(row, dict))
    return {name.removeprefix("models/") for name in names}
