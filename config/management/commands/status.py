import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from config.status import in_words, look


class Command(BaseCommand):
    help = "Show what runs where now: workers, beats, waiting turns, the next job, mailboxes."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit code 1 when the database cannot be asked."""
        try:
            status = look()
        except Error as error:
            name = type(error).__name__
            raise CommandError(f"the database does not answer ({name}): see `manage.py doctor`") from None
        self.stdout.write(json.dumps(status.to_json()) if options["json"] else "\n".join(in_words(status)))
