import json
import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from config.installation import COMMAND
from interfaces.http.sign_in import issue
from sessions_app.agents.edit import create_agent
from sessions_app.exceptions import TooManyTokens
from sessions_app.models import Agent, ApiToken, Session, SessionType, TokenScope
from sessions_app.postgres.rows import fetch
from sessions_app.sessions.open import open_session
from sessions_app.tokens.issue import NewToken, make_token, revoke_tokens
from sessions_app.tokens.secret import hashed

CONNECTION = "connection.json"  # the name of the token that is made for it


class Command(BaseCommand):
    help = "Migrate, and create an administrator, an API token, a demo agent and a session, for `up`."
    requires_system_checks = []  # `migrate` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--output", type=Path, required=True, help="JSON file to write the result to")

    def handle(self, *args: Any, output: Path, **options: Any) -> None:
        """Create only what is missing; an existing password or token is never changed."""
        try:
            name, password = os.environ["RONDO_ADMIN_USER"], os.environ["RONDO_ADMIN_PASSWORD"]
            token = os.environ["RONDO_API_TOKEN"]
        except KeyError as missing:
            raise CommandError(f"{missing} is not set; run `{COMMAND} up`, which sets it") from None
        call_command("migrate", interactive=False, skip_checks=False)
        user = User.objects.filter(username=name).first()
        first = user is None
        with transaction.atomic():  # a user without the token would count as one who revoked it
            if user is None:
                user = User.objects.create_superuser(name, password=password)
            key = _token_of(user, token, is_new=first)
        _create_demo(user)
        if first:  # without statistics PostgreSQL plans for empty tables
            fetch("ANALYZE")
        made = {
            "token": key,
            "admin_password_valid": first or user.check_password(password),
            "admin_is_new": first,
            "sign_in_path": issue(user) if user.is_active else None,
        }
        output.write_text(json.dumps(made))


def _token_of(user: User, known: str, *, is_new: bool) -> str:
    """The token for connection.json. `known`: the data folder's; once it was revoked, each start makes another one."""
    if ApiToken.objects.filter(user=user, token_sha256=hashed(known)).exists():
        return known
    new = NewToken(name=CONNECTION, scopes=[TokenScope.MANAGE])
    try:
        with transaction.atomic():
            revoke_tokens(ApiToken.objects.filter(user=user, name=CONNECTION))
            return make_token(user, new, secret=known if is_new else "")[1]
    except TooManyTokens as refusal:
        raise CommandError(f"no token for connection.json can be made: {refusal}") from None


def _create_demo(user: User) -> None:
    agent = Agent.objects.filter(owner=user).order_by("pk").first() or create_agent(owner=user, name="demo")
    if not Session.objects.filter(agent__owner=user, type=SessionType.SUB).exists():
        open_session(agent, channel="web", title="First session")
