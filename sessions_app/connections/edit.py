"""Create, change and delete connections. A secret is stored here and never shown again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from agent_core.addresses import NoAddress, host_and_port, parse_web_address
from agent_core.connections import NOT_NAMES, PROVIDERS
from agent_core.models import is_registered
from agent_core.prices import ALL
from agent_core.spending import read_prices
from sessions_app import encryption
from sessions_app.connections.usable import PURPOSE, is_model_name, reach
from sessions_app.exceptions import (
    BadInput,
    ConnectionExists,
    ConnectionInUse,
    UnreadableSecret,
)
from sessions_app.models import Agent, Connection
from sessions_app.postgres.rows import existing
from sessions_app.spending.accounts import forget_stopped, tell_anew
from sessions_app.spending.caps import PERIODS, merge_caps

MOST_CONNECTIONS = 50  # of one owner
MOST_MODELS = 200
LONGEST_URL = 500
LONGEST_SECRET = 4_000
SHORTEST_SECRET = 6  # characters; a shorter one could not be removed from error texts without damage
MOST_REQUESTS = 100_000  # per minute
MOST_NAMED = 10  # agents
_MODELS_OF_AGENTS: list[Callable[[], QuerySet[Any]]] = []
_ON_CHANGED: list[Callable[[int], None]] = []
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_SECRET = re.compile(r"[!-~]+")
_AZURE = re.compile(r".*/openai/v1/?")
_PER_MINUTE = "requests_per_minute"


def add_connection(owner: AbstractBaseUser | None, name: str, given: Mapping[str, Any]) -> Connection:
    """Create a connection of a user, or of the server. `given` as for `update_connection`.

    BadInput, ConnectionExists.
    """
    if not _NAME.fullmatch(name):
        text = "use 1 to 40 lower-case letters, digits, dashes and underscores; begin with a letter or digit"
        raise BadInput(f"bad name {name[:40]!r}: {text}", code="bad_name")
    if name in NOT_NAMES or is_registered(name):
        text = "it is the name of a provider or of a model; use another one"
        raise BadInput(f"a connection cannot be named {name!r}: {text}", code="bad_name")
    owner_id = None if owner is None else int(owner.pk)
    if "provider" not in given:
        raise BadInput(f"provider is missing; known: {_known()}", code="bad_provider")
    row = Connection(owner_id=owner_id, name=name)
    if Connection.objects.filter(owner_id=owner_id).count() >= MOST_CONNECTIONS:
        raise BadInput(
            f"there are {MOST_CONNECTIONS} connections already; delete one first", code="too_many_connections"
        )
    _set(row, given)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        raise ConnectionExists(f"there is already a connection named {name!r}") from error
    tell_changed(row.pk)
    return row


def update_connection(pk: int, changes: Mapping[str, Any], *, revision: int | None = None) -> Connection:
    """Change `provider`, `base_url`, `secret`, `models`, `limits` or `prices`. An empty secret removes it.

    A stored secret goes to the address for which it was entered, so a change of the address or of the provider needs
    it again. BadInput, NotFound; RevisionConflict if `revision` is not the connection's.
    """
    with transaction.atomic():
        row = existing(Connection.objects.select_for_update(no_key=True).filter(pk=pk), revision=revision)
        before = (row.provider, row.base_url)
        _set(row, changes)
        if (row.provider, row.base_url) != before and row.secret_ciphertext and "secret" not in changes:
            text = "enter the secret again: the stored one belongs to the former address"
            raise BadInput(text, code="bad_secret")
        if "secret" not in changes:
            row.secret_ciphertext = _renewed(row.secret_ciphertext)
        row.last_error, row.state_since = "", None
        row.revision += 1
        row.save()
        forget_stopped(agents_using(row))
        tell_changed(pk)
        if "limits" in changes:
            tell_anew("connection", pk)
    return row


def delete_connection(pk: int, *, revision: int | None = None) -> None:
    """Delete a connection. ConnectionInUse names agents that use it; NotFound, RevisionConflict."""
    with transaction.atomic():
        row = existing(Connection.objects.select_for_update().filter(pk=pk), revision=revision)
        names = names_using(row)
        if names:
            text = f"agents or automations of theirs use the connection {row.name!r}: {', '.join(names)}"
            raise ConnectionInUse(text, agents=names)
        row.delete()


def register_models_of(rows: Callable[[], QuerySet[Any]]) -> None:
    """Have a connection in use while these rows name it, too. They have `agent`, `model` and `fallback_model`."""
    _MODELS_OF_AGENTS.append(rows)


def on_changed(look_again: Callable[[int], None]) -> None:
    """Call `look_again` with the id of a connection that was added or changed, or whose calls end in another way."""
    _ON_CHANGED.append(look_again)


def tell_changed(pk: int) -> None:
    """What was known against this connection may not be true any more."""
    for look_again in _ON_CHANGED:
        look_again(pk)


def names_using(row: Connection) -> list[str]:
    """The names of the first agents that use this connection."""
    return list(agents_using(row).order_by("name").values_list("name", flat=True)[:MOST_NAMED])


def agents_using(row: Connection) -> QuerySet[Agent]:
    """The agents whose model or fallback model is of this connection, or those of their automations."""
    prefix = f"{row.name}:"
    named = used = Q(model__startswith=prefix) | Q(fallback_model__startswith=prefix)
    if str(settings.RONDO_MODEL).startswith(prefix):
        used |= Q(model="")
    for rows in _MODELS_OF_AGENTS:
        used |= Q(pk__in=rows().filter(named).values("agent"))
    agents = Agent.objects.filter(used)
    if row.owner_id is not None:
        agents = agents.filter(owner_id=row.owner_id)
    else:  # a user's own connection goes before the server's
        own = Connection.objects.filter(name=row.name, owner__isnull=False).values("owner")
        agents = agents.exclude(owner__in=own)
    return agents


def renew_secrets() -> tuple[int, list[str]]:
    """Encrypt all secrets with the current key. Returns their number, and connections that cannot be read."""
    with_secret = Connection.objects.exclude(secret_ciphertext="")
    return encryption.renew_all(with_secret, "secret_ciphertext", PURPOSE)


def _renewed(ciphertext: str) -> str:
    """Return the secret encrypted with the current key, or the same ciphertext if it cannot be read."""
    try:
        return encryption.renew(ciphertext, PURPOSE)
    except UnreadableSecret:
        return ciphertext


def _set(row: Connection, given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in _SETTERS:
            raise BadInput(f"{name[:60]!r} of a connection cannot be changed", code="not_editable")
        _SETTERS[name](row, value)
    _check_url(row)


def _known() -> str:
    return ", ".join(PROVIDERS)


def _set_provider(row: Connection, value: Any) -> None:
    known = PROVIDERS.get(value) if isinstance(value, str) else None
    if known is None:
        raise BadInput(f"unknown provider {str(value)[:40]!r}; known: {_known()}", code="bad_provider")
    if known.missing:
        raise BadInput(f"{value}: {known.missing}", code="bad_provider")
    row.provider = value


def _set_url(row: Connection, value: Any) -> None:
    if not isinstance(value, str) or len(value) > LONGEST_URL:
        raise BadInput(f"base_url must be a URL of at most {LONGEST_URL} characters", code="bad_base_url")
    row.base_url = value


def _check_url(row: Connection) -> None:
    """Check the address for the provider and the owner. BadInput."""
    if not row.base_url:
        if PROVIDERS[row.provider].base_url:
            return
        raise BadInput(f"base_url is missing: {row.provider} has no address of its own", code="bad_base_url")
    try:
        parts = parse_web_address(row.base_url)
        host, port = host_and_port(parts)
    except NoAddress as error:
        raise BadInput(str(error).replace("url ", "base_url ", 1), code="bad_base_url") from None
    if parts.query or parts.fragment:
        raise BadInput("base_url must not have a query or a fragment", code="bad_base_url")
    if row.provider == "azure" and not _AZURE.fullmatch(parts.path):
        text = "base_url of azure must end with /openai/v1, such as https://NAME.openai.azure.com/openai/v1"
        raise BadInput(text, code="bad_base_url")
    if row.owner_id is not None and not reach(row.owner_id, row.base_url).may_be_public(host, port):
        text = "is not a public address; use one, or have the operator name it in RONDO_CONNECTION_HOSTS"
        raise BadInput(f"base_url: {host!r} {text}", code="bad_base_url")


def _set_secret(row: Connection, value: Any) -> None:
    is_good = isinstance(value, str) and len(value) <= LONGEST_SECRET
    if not is_good or (value and (len(value) < SHORTEST_SECRET or not _SECRET.fullmatch(value))):
        text = (
            f"secret must be {SHORTEST_SECRET} to {LONGEST_SECRET} ASCII characters without spaces, or empty"
        )
        raise BadInput(text, code="bad_secret")
    row.secret_ciphertext = encryption.encrypt(value, PURPOSE)


def _set_models(row: Connection, value: Any) -> None:
    is_list = isinstance(value, list) and len(value) <= MOST_MODELS
    if not is_list or not all(isinstance(each, str) and is_model_name(each) for each in value):
        text = "letters, digits and . _ : / @ + ~ -, of at most 160 characters each"
        raise BadInput(f"models must be at most {MOST_MODELS} names of {text}", code="bad_models")
    row.allowed_models = list(dict.fromkeys(value))


def _set_limits(row: Connection, value: Any) -> None:
    known = (_PER_MINUTE, *PERIODS)
    if not isinstance(value, Mapping) or value.keys() - set(known):
        raise BadInput(f"limits must be an object; known: {', '.join(known)}", code="bad_limits")
    row.limits = merge_caps(row.limits, {name: cap for name, cap in value.items() if name != _PER_MINUTE})
    most = value.get(_PER_MINUTE, row.requests_per_minute)
    if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST_REQUESTS:
        text = f"limits.requests_per_minute must be a whole number from 0 (no limit) to {MOST_REQUESTS}"
        raise BadInput(text, code="bad_limits")
    row.requests_per_minute = most


def _set_prices(row: Connection, value: Any) -> None:
    try:
        prices = read_prices(value, "model")
    except ValueError as error:
        raise BadInput(f"prices: {error}", code="bad_prices") from None
    if len(prices) > MOST_MODELS or not all(name == ALL or is_model_name(name) for name in prices):
        raise BadInput(
            f"prices must be of at most {MOST_MODELS} models; * is for all others", code="bad_prices"
        )
    row.prices = {name: {key: str(each) for key, each in value[name].items()} for name in prices}


_SETTERS: dict[str, Callable[[Connection, Any], None]] = {
    "provider": _set_provider,
    "base_url": _set_url,
    "secret": _set_secret,
    "models": _set_models,
    "limits": _set_limits,
    "prices": _set_prices,
}
