import json
import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from rest_framework.authtoken.models import Token

from config.accounts.sign_in_links import issue
from sessions_app.agents.edit import create_agent
from sessions_app.models import Agent, Session, SessionType
from sessions_app.sessions.open import open_session


class Command(BaseCommand):
    help = (
        "Migrate, and create an administrator, an API token, a demo agent and a session, for `manage.py up`."
    )
    requires_system_checks = []  # `migrate` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--output", type=Path, required=True, help="JSON file to write the result to")

    def handle(self, *args: Any, output: Path, **options: Any) -> None:
        """Create only what is missing; an existing password or token is never changed."""
        try:
            name, password = os.environ["RONDO_ADMIN_USER"], os.environ["RONDO_ADMIN_PASSWORD"]
            token = os.environ["RONDO_API_TOKEN"]
        except KeyError as missing:
            raise CommandError(f"{missing} is not set; run `manage.py up`, which sets it") from None
        call_command("migrate", interactive=False, skip_checks=False)
        user = User.objects.filter(username=name).first()
        first = user is None
        if user is None:
            user = User.objects.create_superuser(name, password=password)
        # a token that its user revoked is not made again
        new = token if first else Token.generate_key()
        key = Token.objects.get_or_create(user=user, defaults={"key": new})[0].key
        _create_demo(user)
        if first:  # without statistics PostgreSQL plans for empty tables
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")
        made = {
            "token": key,
            "admin_password_valid": user.check_password(password),
            "admin_is_new": first,
            "sign_in_path": issue(user) if user.is_active else None,
        }
        output.write_text(json.dumps(made))


def _create_demo(user: User) -> None:
    agent = Agent.objects.filter(owner=user).order_by("pk").first() or create_agent(owner=user, name="demo")
    if not Session.objects.filter(agent__owner=user, type=SessionType.SUB).exists():
        open_session(agent, channel="web", title="First session")
