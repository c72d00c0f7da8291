from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from automations.archives.restore import import_archive
from interfaces.terminal.command import errors_in_one_line, user_called


class Command(BaseCommand):
    help = (
        "Import an archive of `export` into new agents of a user, all or nothing. Automations come in paused."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--user", required=True, metavar="NAME", help="who gets the agents")

    def handle(self, *args: Any, user: str, file: Path, **options: Any) -> None:
        with errors_in_one_line():
            owner = user_called(user)
            try:
                with file.open("rb") as opened:
                    done = import_archive(owner, opened)
            except OSError as error:
                raise CommandError(f"{file}: {error.strerror}; nothing was imported") from None
        self.stdout.write(
            ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in done.items()) + "."
        )
