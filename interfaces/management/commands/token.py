from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from interfaces.terminal.command import LinesCommand, choose_session, user_called
from sessions_app.models import ApiToken, TokenScope
from sessions_app.reads import selectors
from sessions_app.tokens.issue import LONGEST_LIFE, NewToken, make_token, revoke_tokens


class Command(LinesCommand):
    help = "List, make and revoke the API tokens of a user."

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True)
        listing = commands.add_parser("list", help="list the tokens of a user")
        making = commands.add_parser("make", help="make a token, and print only the token")
        revoking = commands.add_parser("revoke", help="revoke a token")
        for each in (listing, making, revoking):
            each.add_argument("--user", required=True, metavar="NAME", help="whose tokens")
        making.add_argument("name")
        making.add_argument("--scope", action="append", required=True, choices=TokenScope.values)
        making.add_argument("--agent", metavar="NAME", help="limit it to an agent")
        making.add_argument("--session", metavar="ID", help="limit it to a session")
        making.add_argument("--days", type=int, help="how long it lives; without it, until it is revoked")
        revoking.add_argument("id", help="as `list` shows it")

    def lines(self, options: dict[str, Any]) -> Iterator[str]:
        owner = user_called(options["user"])
        act = {"list": self._list, "make": self._make, "revoke": self._revoke}[options["what"]]
        return act(owner, options)

    def _list(self, owner: User, _options: dict[str, Any]) -> Iterator[str]:
        for each in ApiToken.objects.filter(user=owner).select_related("agent").order_by("created_at", "pk"):
            limit = f"agent {each.agent.name}" if each.agent else f"session {each.session_id}"
            words = [
                each.pk,
                f"{each.prefix}…",
                ",".join(each.scopes),
                limit if each.is_limited else "everything",
                f"expires {each.expires_at:%Y-%m-%d %H:%M} UTC" if each.expires_at else "does not expire",
                f"used {each.last_used_at:%Y-%m-%d %H:%M} UTC" if each.last_used_at else "never used",
                each.name,
            ]
            yield "  ".join(words)

    def _make(self, owner: User, options: dict[str, Any]) -> Iterator[str]:
        days = options["days"]
        if days is not None and not 1 <= days <= LONGEST_LIFE.days:
            raise CommandError(f"--days must be 1 to {LONGEST_LIFE.days}")
        new = NewToken(
            name=options["name"],
            scopes=options["scope"],
            agent=selectors.agent(owner, options["agent"]) if options["agent"] else None,
            session=choose_session(options["session"], None) if options["session"] else None,
            expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
        )
        yield make_token(owner, new)[1]

    def _revoke(self, owner: User, options: dict[str, Any]) -> Iterator[str]:
        if not revoke_tokens(ApiToken.objects.filter(user=owner, pk=options["id"])):
            raise CommandError(f"{owner.get_username()} has no token {options['id']!r}")
        return iter(())
