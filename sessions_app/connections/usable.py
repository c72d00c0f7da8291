"""The connections that users may see or models name, in the form of `agent_core`, and why they cannot be used."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import F, Q, QuerySet

from agent_core.addresses import Reach
from agent_core.connections import (
    PREFIXES,
    REJECTED,
    USED_UP,
    CallSettings,
    concerns,
    connection_of,
    named_model,
    prefix_of,
)
from agent_core.connections import Connection as Usable
from agent_core.models import is_registered
from agent_core.prices import ALL, price_of_call
from agent_core.spending import NOTHING, Amount, Budget, read_prices
from agent_core.turn.charge import longest_reply
from sessions_app import encryption
from sessions_app.exceptions import NotFound, UnreadableSecret
from sessions_app.models import Agent, Connection
from sessions_app.postgres.rows import equals, existing
from sessions_app.spending.caps import budget_of, cap_rows, cap_text, too_small
from sessions_app.tokens.reach import in_account

PURPOSE = "connection"  # of encrypted secrets
THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})
WITHHELD = (
    "the server does not offer {model!r} to its users; use a connection of your own, or have the operator name it in"
    " RONDO_MODELS"
)
CURES = {  # of refusals that stay until a person acts, by the error code
    "model_auth": "Give the agent's connection a valid API key that may use the model.",
    "model_quota": "Add credit at the model provider, or choose another model.",
    "model_not_found": "Choose a model that the provider has.",
    "model_not_configured": "Choose another model, or have the operator set this one up.",
}
LAST_CALL = "The last call of the connection "  # begins the warning of an outage
_CURE_OF = {USED_UP: "model_quota", named_model("")[:-1]: "model_not_found", "API key": "model_auth"}
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+~-]{0,159}")


def visible_connections(user_id: int | None) -> QuerySet[Connection]:
    """The connections that a user may use: the user's own before the server's."""
    mine = Q(owner_id=user_id) | Q(owner=None)
    return Connection.objects.filter(mine).order_by("name", F("owner").asc(nulls_last=True))


def connections(user: AbstractBaseUser) -> QuerySet[Connection]:
    """Return the connections that the user may use: own ones and the server's."""
    return visible_connections(user.pk).filter(in_account(user))


def connection(user: AbstractBaseUser, name: str) -> Connection:
    """Return the connection that a model string of the user's agents means by this name. NotFound."""
    found = connections(user).filter(equals("name", name)).first()
    if found is None:
        raise NotFound("there is no such connection")
    return found


def own_connection(user: AbstractBaseUser, name: str) -> Connection:
    """Return a connection that the user may change. NotFound."""
    rows = Connection.objects.filter(in_account(user), equals("name", name), owner_id=user.pk)
    return existing(rows, "you have no such connection")


def usable_connections(user_id: int, models: Iterable[str]) -> tuple[Usable, ...]:
    """The connections that model strings of this user name. One that does not exist has a fault.

    A user's own connection goes before the server's of the same name.
    """
    named = list(models)
    found = {prefix_of(model): _withheld(model) for model in named if not is_offered(model)}
    names = {prefix_of(model) for model in named if names_connection(model)}
    if not names:
        return tuple(found.values())
    for row in visible_connections(user_id).filter(name__in=names):
        found.setdefault(row.name, usable(row))
    missing = (Usable(name=name, fault=f"there is no connection {name!r}") for name in names - found.keys())
    return (*found.values(), *missing)


def is_offered(model: str) -> bool:
    """Whether the operator lets users name this model. A provider of the server's environment has the server's key."""
    prefix = prefix_of(model)
    if prefix not in PREFIXES or is_registered(model):
        return True
    return model == settings.RONDO_MODEL or not {model, f"{prefix}:*"}.isdisjoint(settings.RONDO_MODELS)


def _withheld(model: str) -> Usable:
    """In place of a provider of the server's environment: a connection that cannot be used."""
    return Usable(name=prefix_of(model), fault=WITHHELD.format(model=model[:100]))


def names_connection(model: str) -> bool:
    """Whether a model string names a connection, not a provider that is set up by the server's environment."""
    prefix = prefix_of(model)
    return bool(prefix) and prefix not in PREFIXES and not is_registered(model)


def usable(row: Connection) -> Usable:
    """Return the connection in the form of `agent_core`."""
    try:
        secret, fault = encryption.decrypt(row.secret_ciphertext, PURPOSE), ""
    except UnreadableSecret:
        text = "cannot be read, because SECRET_KEY has changed; enter it again"
        secret, fault = "", f"the secret of the connection {row.name!r} {text}"
    return Usable(
        name=row.name,
        id=row.pk,
        provider=row.provider,
        base_url=row.base_url,
        secret=secret,
        models=tuple(row.allowed_models),
        requests_per_minute=row.requests_per_minute,
        reach=None if row.owner_id is None else reach(row.owner_id, row.base_url),
        fault=fault,
        error=row.last_error,
        failed_since=row.state_since if row.last_error else None,
        well_since=None if row.last_error else row.state_since or row.updated_at,
        prices=read_prices(row.prices, "model"),
        budget=budget_of("connection", row.pk, row.limits, name=row.name, is_private=row.owner_id is None),
    )


def reach(user_id: int, base_url: str) -> Reach:
    """The addresses that a user's connection may have. The server's connections may have any address."""
    hosts = frozenset(host.lower() for host in settings.RONDO_CONNECTION_HOSTS)
    host = urlsplit(base_url).hostname
    if host in THIS_MACHINE and may_use_this_machine(user_id):
        hosts |= {host}
    return Reach(hosts=hosts, user=str(user_id))


def may_use_this_machine(user_id: int) -> bool:
    """Whether the user's connections may reach this machine: those of a superuser of a local `up`."""
    users = get_user_model().objects.filter(pk=user_id, is_superuser=True, is_active=True)
    return bool(settings.RONDO_THIS_MACHINE) and users.exists()


def model_choice(
    agent: Agent, model: str = "", fallback_model: str = "", max_output_tokens: int | None = None
) -> dict[str, Any]:
    """Return the fields of TurnRequest that choose the models: the given models, else the agent's.

    Rows are read only if a model names a connection.
    """
    model, fallback = models_of(agent, model, fallback_model)
    fallback = fallback if is_offered(fallback) else ""
    return {
        "model": model,
        "fallback_model": fallback,
        "settings": settings_of(agent, max_output_tokens),
        "connections": usable_connections(agent.owner_id, (model, fallback)),
    }


def settings_of(agent: Agent, max_output_tokens: int | None = None) -> CallSettings:
    """The settings of an agent's calls. Of two limits of a reply's tokens the lower one holds."""
    settings = CallSettings(**agent.model_settings)
    limits = [each for each in (settings.max_tokens, max_output_tokens) if each is not None]
    return replace(settings, max_tokens=min(limits, default=None))


def models_of(agent: Agent, model: str = "", fallback_model: str = "") -> tuple[str, str]:
    """The model and the fallback model of an agent, or what is given in their place."""
    return model or agent.effective_model, fallback_model or agent.fallback_model


def refusal(user_id: int, model: str, reached: Container[str] | None = None) -> str:
    """Why a model string cannot be used by this user's agents; empty if it can. Nothing is sent to its provider.

    `reached`: the names of the only connections that exist for the request; None: all of the user's.
    """
    if is_registered(model):
        return ""
    prefix = prefix_of(model)
    name = model[len(prefix) + 1 :]
    if not prefix or not is_model_name(name):
        return "use `offline`, `provider:name` or `connection:name`, such as `openai-chat:gpt-5`"
    if prefix in PREFIXES:
        if why := PREFIXES[prefix].missing:
            return f"{prefix}: {why}"
        return "" if is_offered(model) else WITHHELD.format(model=model[:100])
    [connection] = usable_connections(user_id, [model])
    if reached is not None and (not connection.id or prefix not in reached):
        return f"there is no connection {prefix!r} that this token reaches, and no such provider"
    if not connection.id:
        known = dict.fromkeys(visible_connections(user_id).values_list("name", flat=True))
        return (
            f"there is no connection or provider {prefix!r}; connections: {', '.join(known) or 'none'};"
            f" providers: {', '.join(sorted(PREFIXES))}"
        )
    return connection.refusal(name)


def is_model_name(name: str) -> bool:
    """Whether the text may be the name of a model. Some providers put it into the path of an address."""
    return bool(_MODEL.fullmatch(name)) and ".." not in name and "//" not in name


class ModelWarnings(NamedTuple):
    """Why models cannot be called, as far as it is known here, and which caps stop none or all of their calls.

    Of the first one, `model`: `is_priced`: whether its calls cost money. `longest`: its longest reply. `fits_none`: the
    row of `cap_rows` that does not even fit that. `connection`: the name of its connection. Of that one: `failed`: why
    its last call failed, `failed_since` when. `well_since`: since when nothing is known against it. `budget`: its own.
    """

    uncallable: list[str]
    caps: list[str]
    connection: str = ""
    failed: str = ""
    failed_since: datetime | None = None
    well_since: datetime | None = None
    budget: Budget | None = None
    is_priced: bool = False
    model: str = ""
    longest: Amount = NOTHING
    fits_none: Mapping[str, Any] | None = None


class Wanted(NamedTuple):
    """Models with their owner, and the budgets that they are called for. `settings`: of their calls."""

    owner_id: int
    models: Sequence[str]
    budgets: Sequence[Budget]
    settings: CallSettings


def model_warnings(agent: Agent) -> ModelWarnings:
    """The warnings about the agent's models."""
    budget = budget_of("agent", agent.pk, agent.limits, name=agent.name, zone=agent.timezone)
    return warnings_of([Wanted(agent.owner_id, models_of(agent), [budget], settings_of(agent))])[0]


def warnings_of(wanted: Sequence[Wanted]) -> list[ModelWarnings]:
    """Do what `model_warnings` does for many lists of models; one statement for each owner at most."""
    named: dict[int, set[str]] = {}
    for each in wanted:
        named.setdefault(each.owner_id, set()).update(filter(None, each.models))
    usables = {owner_id: usable_connections(owner_id, sorted(models)) for owner_id, models in named.items()}
    return [_warnings(each, usables[each.owner_id]) for each in wanted]


def _warnings(wanted: Wanted, usables: tuple[Usable, ...]) -> ModelWarnings:
    models = [*filter(None, wanted.models)]
    first, _ = connection_of(models[0], usables) if models else (None, "")
    found, rows = ModelWarnings([], []), cap_rows(wanted.budgets, datetime.now(UTC))
    limits = [each.limits for each in wanted.budgets]
    if models:
        longest, price = _longest(models[0], first, wanted.settings), price_of_call(models[0], first)
        found = found._replace(
            connection=first.name if first else "",
            failed=first.error if first else "",
            failed_since=first.failed_since if first else None,
            well_since=first.well_since if first else None,
            budget=first.budget if first else None,
            is_priced=bool(price and (price.input or price.output)),
            model=models[0],
            longest=longest,
            fits_none=too_small(rows, longest),
        )
    for model in models:
        if text := _warning(wanted.owner_id, model, usables):
            found.uncallable.append(text)
        connection, _ = connection_of(model, usables)
        if text := unpriced(model, connection, limits):
            found.caps.append(text)
        longest = _longest(model, connection, wanted.settings)
        if cap := too_small(rows, longest):
            found.caps.append(cap_text(cap, longest, reply_of=model))
    return found


def _longest(model: str, connection: Usable | None, settings: CallSettings) -> Amount:
    """The most that a reply can need, without the request."""
    tokens, price = longest_reply(settings), price_of_call(model, connection)
    return Amount(tokens=tokens, micro_usd=price.micro_of(0, tokens) if price else 0)


def unpriced(model: str, connection: Usable | None, limits: Iterable[Mapping[str, Any]]) -> str:
    """Say that a model has no price for the caps in US dollars; empty if it has one, or if there is no such cap."""
    of_connection = connection.budget.limits if connection and connection.budget else {}
    caps = (cap for each in (*limits, of_connection) for cap in each.values())
    if not any("usd" in cap for cap in caps) or price_of_call(model, connection):
        return ""
    cure = "set caps in tokens, or give the model a price"
    return f"The model {model} has no price, so caps in US dollars do not stop it: {cure}."


def unpriced_models(row: Connection) -> list[str]:
    """Say of a connection's models which ones its caps in US dollars do not stop."""
    known = usable(row)
    if not row.allowed_models and unpriced(f"{row.name}:{ALL}", known, ()):
        cure = "set caps in tokens, or give such a model a price"
        return [f"Models of {row.name} without a price are not stopped by its caps in US dollars: {cure}."]
    named = [f"{row.name}:{each}" for each in row.allowed_models]
    return [text for model in named if (text := unpriced(model, known, ()))]


def _warning(owner_id: int, model: str, usables: tuple[Usable, ...]) -> str:
    connection, name = connection_of(model, usables)
    if not names_connection(model):
        why = refusal(owner_id, model)
    elif connection is None:
        why = ""
    else:
        last = connection.error
        why = connection.refusal(name) or (last if REJECTED in last and concerns(last, name) else "")
        if last and not why and REJECTED not in last:  # an outage, which may have passed
            return f"{LAST_CALL}{connection.name!r} failed: {last.rstrip('.')}."
    return uncallable(model, why) if why else ""


def uncallable(model: str, why: str) -> str:
    """Say that a model cannot be called, and what a person can do about it."""
    cure = next((CURES[code] for words, code in _CURE_OF.items() if words in why), "")
    return f"{begin_of_uncallable(model)}{why.rstrip('.')}. {cure}".rstrip()


def begin_of_uncallable(model: str) -> str:
    """The words by which a problem of this model is known again."""
    return f"The model {model} cannot be called: "
