from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.installation import COMMAND
from config.tour.main import tour_parser


class Command(BaseCommand):
    """Lists `tour` in `manage.py help`. manage.py runs it without Django."""

    help = "Demonstrate the main features on a running server through its public API."

    def print_help(self, prog_name: str, subcommand: str) -> None:
        tour_parser().print_help()

    def handle(self, *args: Any, **options: Any) -> None:
        raise CommandError(f"run it from the command line: {COMMAND} tour")
