from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from interfaces.terminal.choose import agent_called
from sessions_app.agents.workspace_import import import_workspace
from sessions_app.exceptions import SessionsError


class Command(BaseCommand):
    help = "Import the documents of an EverBot workspace, and print the outcome for each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="the folder with AGENTS.md, MEMORY.md …")
        parser.add_argument("--agent", required=True, metavar="NAME", help="NAME, or USER/NAME")
        parser.add_argument("--replace", action="store_true", help="also replace edited documents")
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be done, and change nothing"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(
        self, *args: Any, folder: Path, agent: str, replace: bool, dry_run: bool, **options: Any
    ) -> None:
        """Exit code 1 if the folder or the agent is refused. A refused document is only reported."""
        try:
            report = import_workspace(agent_called(agent).pk, folder, replace=replace, dry_run=dry_run)
        except (OSError, SessionsError) as error:
            reason = f"{folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
            if not options["json"]:
                raise CommandError(f"{reason}; nothing was imported") from None
            problem = {"code": getattr(error, "code", "cannot_read"), "message": reason}
            self.stdout.write(json.dumps({"ok": False, "error": problem}))
            sys.exit(1)
        if options["json"]:
            self.stdout.write(json.dumps(report.to_json()))
        else:
            self.stdout.writelines(f"{line}\n" for line in report.in_words())
