from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.db.models import QuerySet

from agent_core.spending import Budget
from interfaces.terminal.command import LinesCommand, choose_agent, json_option, user_called
from sessions_app.agents.edit import update_agent
from sessions_app.connections.edit import update_connection
from sessions_app.exceptions import BadInput
from sessions_app.models import Connection, Turn, UserLimits
from sessions_app.reads.usage import BY, total_of, usage_of
from sessions_app.spending.accounts import set_user_caps
from sessions_app.spending.caps import budget_of, caps_in_words


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Whose caps they are. `change` takes `limits` and `prices` as the API does. `user`: if they are a user's."""

    name: str
    budget: Budget
    turns: QuerySet[Turn]
    change: Callable[[dict[str, Any]], object]
    prices: dict[str, Any] | None = None
    user: User | None = None


class Command(LinesCommand):
    help = "Show the caps of an agent, a connection or a user, what is spent of them, and what turns cost. Set them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agent", metavar="NAME", help="NAME, or USER/NAME; default: the only one")
        parser.add_argument("--user", metavar="NAME", help="the user, or whose connection is meant")
        parser.add_argument("--connection", metavar="NAME", help="of the user; without --user the server's")
        parser.add_argument("--by", choices=BY, help="sum the user's turns by this; default: agent")
        parser.add_argument(
            "--limits", metavar="JSON", help='caps to merge: {"day": {"usd": "1.00"}}; null removes'
        )
        parser.add_argument(
            "--prices", metavar="JSON", help='of the connection: {"gpt-5": {"input": "1", "output": "8"}}'
        )

    def lines(self, options: dict[str, Any]) -> Iterator[str]:
        given = {name: options[name] for name in ("limits", "prices") if options[name] is not None}
        changes = {name: json_option(name, text) for name, text in given.items()}
        if options["agent"] and (options["user"] or options["connection"]):
            raise BadInput("--agent is given alone; name another user's as USER/NAME")
        if "prices" in changes and not options["connection"]:
            raise BadInput("--prices belongs to --connection", code="bad_prices")
        if changes:
            _subject(options).change(changes)
        yield from _lines(_subject(options), options["by"] or "agent")


def _subject(options: dict[str, Any]) -> Subject:
    user = user_called(options["user"]) if options["user"] else None
    if options["connection"]:
        return _connection(user, options["connection"])
    if user is not None:
        stored = UserLimits.objects.filter(pk=user.pk).first()
        return Subject(
            name=user.get_username(),
            budget=budget_of("user", user.pk, stored.limits if stored else {}),
            turns=Turn.objects.filter(owner_id=user.pk),
            change=lambda changes: set_user_caps(user.pk, changes["limits"]),
            user=user,
        )
    agent = choose_agent(options["agent"])
    return Subject(
        name=agent.name,
        budget=budget_of("agent", agent.pk, agent.limits, zone=agent.timezone),
        turns=Turn.objects.filter(owner_id=agent.owner_id, session__agent=agent),
        change=lambda changes: update_agent(agent.pk, changes),
    )


def _connection(user: User | None, name: str) -> Subject:
    owner = user.pk if user else None
    row = Connection.objects.filter(owner_id=owner, name=name).first()
    if row is None:
        raise CommandError(f"{user or 'the server'} has no connection {name!r}")
    of_it = Turn.objects.filter(model__startswith=f"{name}:")
    return Subject(
        name=row.name,
        budget=budget_of("connection", row.pk, row.limits),
        turns=of_it.filter(owner_id=owner) if owner else of_it,
        change=lambda changes: update_connection(row.pk, changes),
        prices=row.prices,
    )


def _lines(subject: Subject, by: str) -> Iterator[str]:
    total = total_of(subject.turns)
    caps = caps_in_words(subject.budget, is_partial=total.cost.is_partial)
    yield f"{subject.name}: {' '.join(caps.values()) or 'no caps'}"
    if subject.prices is not None:
        yield f"Own prices: {json.dumps(subject.prices) if subject.prices else 'none'}"
    yield f"Last 30 days: {total.words}"
    if subject.user is not None:
        for row in usage_of(subject.user, by).results:
            yield f"  {row.name}: {row.words}"
