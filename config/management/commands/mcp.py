from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.installation import COMMAND
from config.mcp_bridge import mcp_parser


class Command(BaseCommand):
    """Lists `mcp` in `manage.py help`. manage.py runs it without Django."""

    help = "Speak MCP on standard input and output, for clients that start a program."

    def print_help(self, prog_name: str, subcommand: str) -> None:
        mcp_parser().print_help()

    def handle(self, *args: Any, **options: Any) -> None:
        raise CommandError(f"run it from the command line: {COMMAND} mcp")
