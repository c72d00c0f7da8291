from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from automations.nanobot_import.import_store import import_store
from automations.nanobot_import.store_file import LARGEST
from interfaces.terminal.command import ImportCommand, agent_called


class Command(ImportCommand):
    help = "Import the jobs of a nanobot store (jobs.json), and print the result for each job."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE", help="nanobot's cron/jobs.json")
        super().add_arguments(parser)

    def handle(self, *args: Any, file: Path, agent: str, dry_run: bool, **options: Any) -> None:
        def imported() -> Any:
            return import_store(agent_called(agent).pk, _read(file), dry_run=dry_run)

        self.print_report(file, imported, as_json=options["json"])


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(LARGEST + 1)
