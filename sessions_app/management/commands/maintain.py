import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sessions_app.maintain import Round, counted, maintain

EVERY = 2.0  # seconds between two lines of progress


class Command(BaseCommand):
    help = "Remove what is older or more than is to be kept, all of it, as workers do it by and by."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="count it, and remove nothing")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        """Progress goes to stderr, the summary is one line. Exit code 1 when it could not be done."""
        self._said = time.monotonic()
        done = counted(self._tell) if dry_run else maintain(lambda: False, tell=self._tell)
        if not done.mine or done.failed or done.waited:
            raise CommandError(str(done))
        self.stdout.write(str(done))

    def _tell(self, done: Round) -> None:
        if time.monotonic() > self._said + EVERY:
            self._said = time.monotonic()
            self.stderr.write(f"… {done}")
