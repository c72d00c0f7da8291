from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.installation import COMMAND
from config.supervisor.main import up_parser


class Command(BaseCommand):
    """Lists `up` in `manage.py help`. manage.py runs it without Django."""

    help = "Start everything: database, broker, web, workers, beat. Ctrl-C stops it."

    def print_help(self, prog_name: str, subcommand: str) -> None:
        up_parser().print_help()

    def handle(self, *args: Any, **options: Any) -> None:
        raise CommandError(f"run it from the command line: {COMMAND} up")
