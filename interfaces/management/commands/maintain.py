import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.retention.maintenance_round import MaintenanceRound, count_prunable, run_maintenance

EVERY = 2.0  # seconds between two lines of progress


class Command(BaseCommand):
    help = (
        "Run all maintenance now: remove rows that are past their retention. Workers do it in small rounds."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="count the rows, and remove nothing")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        """Print progress to stderr and a summary of one line. Exit code 1 if some of it could not be done."""
        self._printed_at = time.monotonic()
        done = (
            count_prunable(self._report) if dry_run else run_maintenance(lambda: False, report=self._report)
        )
        if not done.mine or done.failed or done.waited:
            raise CommandError(str(done))
        self.stdout.write(str(done))

    def _report(self, done: MaintenanceRound) -> None:
        if time.monotonic() > self._printed_at + EVERY:
            self._printed_at = time.monotonic()
            self.stderr.write(f"… {done}")
