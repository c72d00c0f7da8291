from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.supervisor.options import parser


class Command(BaseCommand):
    """Lists `up` in `manage.py help`. manage.py itself runs it, before any settings are read."""

    help = "Start everything: database, broker, web, workers, beat. Ctrl-C stops all of it."

    def print_help(self, prog_name: str, subcommand: str) -> None:
        parser().print_help()

    def handle(self, *args: Any, **options: Any) -> None:
        raise CommandError("start it as a program: manage.py up")
