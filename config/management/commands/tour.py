from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.tour.main import parser


class Command(BaseCommand):
    """Lists `tour` in `manage.py help`. manage.py itself runs it, without any settings."""

    help = "Run the main job on a running system through its public API and print what is seen."

    def print_help(self, prog_name: str, subcommand: str) -> None:
        parser().print_help()

    def handle(self, *args: Any, **options: Any) -> None:
        raise CommandError("start it as a program: manage.py tour")
