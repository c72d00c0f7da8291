"""Shared parts of the commands: errors in one line, and imports into an agent."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from automations.nanobot_import.store_file import StoreRefused
from sessions_app.exceptions import SessionsError


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the command with one line if something is refused, or the database is away."""
    try:
        yield
    except SessionsError as refusal:
        raise CommandError(str(refusal)) from None
    except (Error, psycopg.Error) as error:
        name, doctor = type(error).__name__, f"{settings.RONDO_COMMAND} doctor"
        raise CommandError(f"the database does not answer ({name}); run `{doctor}`") from None


class ImportCommand(BaseCommand):
    """Imports a file or folder into an agent, and prints a report."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agent", required=True, metavar="NAME", help="NAME, or USER/NAME")
        parser.add_argument("--dry-run", action="store_true", help="print the report, and import nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def print_report(self, source: Path, imported: Callable[[], Any], *, as_json: bool) -> None:
        """Exit code 1 if the source or the agent is refused; what was refused of the source is in the report."""
        try:
            report = imported()
        except (OSError, StoreRefused, SessionsError) as error:
            reason = str(error.strerror if isinstance(error, OSError) else error)
            if not isinstance(error, SessionsError):
                reason = f"{source}: {reason}"
            if not as_json:
                raise CommandError(f"{reason}; nothing was imported") from None
            problem = {"code": getattr(error, "code", "cannot_read"), "message": reason}
            self.stdout.write(json.dumps({"ok": False, "error": problem}))
            sys.exit(1)
        if as_json:
            self.stdout.write(json.dumps(report.to_json()))
        else:
            self.stdout.writelines(f"{line}\n" for line in report.in_words())
