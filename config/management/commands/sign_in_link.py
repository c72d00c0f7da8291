from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from config.supervisor.datadir import running_url
from interfaces.http.sign_in import issue


class Command(BaseCommand):
    help = (
        "Print a link that signs a user in, once, within ten minutes, in a browser on the server's machine."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--user", metavar="NAME", help="whom it signs in; default: the only active superuser"
        )
        parser.add_argument(
            "--url", default=running_url() or "http://127.0.0.1:8000", help="address of the web process"
        )

    def handle(self, *args: Any, user: str | None, url: str, **options: Any) -> None:
        """Print only the link."""
        self.stdout.write(url.rstrip("/") + issue(_user(user)))


def _user(name: str | None) -> User:
    people = User.objects.filter(is_active=True)
    found = list((people.filter(username=name) if name else people.filter(is_superuser=True))[:2])
    if len(found) == 1:
        return found[0]
    if name:
        raise CommandError(f"there is no active user {name!r}")
    reason = "there are several active superusers" if found else "there is no active superuser"
    raise CommandError(f"{reason}; name a user with --user")
