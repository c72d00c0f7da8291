import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from config.operations.doctor import probe_database
from config.operations.status import read_status, status_lines
from interfaces.terminal.command import errors_in_one_line


class Command(BaseCommand):
    help = "Show the current state: workers, beats, waiting turns, the next job, mailboxes."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Exit code 1 if the database does not answer."""
        with errors_in_one_line():
            probe_database()
            status = read_status()
        self.stdout.write(
            json.dumps(status.to_json()) if options["json"] else "\n".join(status_lines(status))
        )
