import json
from argparse import ArgumentParser
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from config.installation import COMMAND
from config.operations.checks import probe_database
from config.operations.status import read_status, status_lines


class Command(BaseCommand):
    help = "Show the current state: workers, beats, waiting turns, the next job, mailboxes."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit code 1 if the database does not answer."""
        try:
            probe_database()
            status = read_status()
        except (Error, psycopg.Error) as error:
            name = type(error).__name__
            raise CommandError(f"the database does not answer ({name}); run `{COMMAND} doctor`") from None
        self.stdout.write(
            json.dumps(status.to_json()) if options["json"] else "\n".join(status_lines(status))
        )
