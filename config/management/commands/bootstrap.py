import json
import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from rest_framework.authtoken.models import Token

from sessions_app.models import Agent, Session, SessionType
from sessions_app.open import create_agent, open_session


class Command(BaseCommand):
    help = "Make what a new server needs to be tried: an administrator, a token, an agent, a web session."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--output", type=Path, required=True, help="file for the answer (JSON)")

    def handle(self, *args: Any, output: Path, **options: Any) -> None:
        """Each thing is made only if there is none; an existing password or token is never changed."""
        try:
            name, password = os.environ["RONDO_ADMIN_USER"], os.environ["RONDO_ADMIN_PASSWORD"]
            token = os.environ["RONDO_API_TOKEN"]
        except KeyError as missing:
            raise CommandError(f"{missing} is not set; `manage.py up` sets it") from None
        user = User.objects.filter(username=name).first()
        first = user is None
        if user is None:
            user = User.objects.create_superuser(name, password=password)
        key = Token.objects.get_or_create(user=user, defaults={"key": token})[0].key
        _make_demo(user)
        if first:  # plans made on empty tables are slow ones
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")
        output.write_text(json.dumps({"token": key, "admin_password_valid": user.check_password(password)}))


def _make_demo(user: User) -> None:
    agent = Agent.objects.filter(owner=user).order_by("pk").first() or create_agent(owner=user, name="demo")
    if not Session.objects.filter(agent__owner=user, type=SessionType.SUB).exists():
        open_session(agent, channel="web", title="First session")
