from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from automations.archives.export import export
from interfaces.terminal.command import errors_in_one_line, user_called


class Command(BaseCommand):
    help = "Write everything of a user into one zip archive."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, metavar="NAME", help="whose agents and conversations")
        parser.add_argument("file", type=Path, metavar="FILE", help="where to write; it must not exist")

    def handle(self, *args: Any, user: str, file: Path, **options: Any) -> None:
        with errors_in_one_line():
            owner = user_called(user)
            try:
                with file.open("xb") as opened:
                    opened.writelines(export(owner))
            except OSError as error:
                raise CommandError(f"{file}: {error.strerror}") from None
        self.stdout.write(f"{file}: {file.stat().st_size:,} bytes")
