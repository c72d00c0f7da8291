from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from automations.nanobot_import.import_store import import_store
from automations.nanobot_import.store_file import LARGEST, StoreRefused
from interfaces.terminal.choose import agent_called
from sessions_app.exceptions import SessionsError


class Command(BaseCommand):
    help = "Import the jobs of a nanobot store (jobs.json), and print the result for each job."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="nanobot's cron/jobs.json")
        parser.add_argument("--agent", required=True, metavar="NAME", help="NAME, or USER/NAME")
        parser.add_argument("--dry-run", action="store_true", help="print the results without importing")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, file: Path, agent: str, dry_run: bool, **options: Any) -> None:
        """Exit code 1 when the file or the agent is refused; single refused jobs are in the report."""
        try:
            report = import_store(agent_called(agent).pk, _read(file), dry_run=dry_run)
        except (OSError, StoreRefused, SessionsError) as error:
            if not options["json"]:
                raise CommandError(f"{_reason(error, file)}; nothing was imported") from None
            problem = {"code": getattr(error, "code", "cannot_read"), "message": _reason(error, file)}
            self.stdout.write(json.dumps({"ok": False, "error": problem}))
            sys.exit(1)
        if options["json"]:
            self.stdout.write(json.dumps(report.to_json()))
        else:
            self.stdout.writelines(f"{line}\n" for line in report.in_words())


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(LARGEST + 1)


def _reason(error: Exception, file: Path) -> str:
    """The error in one line; an error of the file begins with its name."""
    if isinstance(error, OSError):
        return f"{file}: {error.strerror}"
    return f"{file}: {error}" if isinstance(error, StoreRefused) else str(error)
