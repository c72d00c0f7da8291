from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from interfaces.terminal.command import ImportCommand, agent_called
from sessions_app.agents.workspace_import import import_workspace


class Command(ImportCommand):
    help = "Import the documents of an EverBot workspace, and print the outcome for each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="the folder with AGENTS.md, MEMORY.md …")
        parser.add_argument("--replace", action="store_true", help="also replace edited documents")
        super().add_arguments(parser)

    def handle(self, *args: Any, folder: Path, agent: str, replace: bool, **options: Any) -> None:
        def imported() -> Any:
            pk, dry_run = agent_called(agent).pk, options["dry_run"]
            return import_workspace(pk, folder, replace=replace, dry_run=dry_run)

        self.print_report(folder, imported, as_json=options["json"])
