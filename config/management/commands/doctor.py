import json
import sys
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand
from django.db import Error

from config.operations.checks import Finding, mend_last_slots
from config.operations.doctor import run_all_checks

SIGNS = {"ok": "ok", "unknown": "?", "wrong": "WRONG"}


class Command(BaseCommand):
    help = "Check this server and suggest a fix for each problem. Exit code 1 if there is one."
    requires_system_checks = ()  # check_configuration runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--mend", action="store_true", help="first correct each last_slot that is far in the future"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, mend: bool, json: bool, **options: Any) -> None:
        """Print all findings, also if nothing is wrong."""
        mended = _mend() if mend else []
        found = run_all_checks()
        healthy = all(finding.ok for finding in found.values())
        self.stdout.write(_as_json(found, mended, healthy) if json else _as_text(found, mended, healthy))
        if not healthy:
            sys.exit(1)


def _mend() -> list[str]:
    mended: list[str] = []
    with suppress(Error):  # a check reports the reason; those that were mended before it count
        mended.extend(mend_last_slots())
    return mended


def _as_json(found: dict[str, Finding], mended: list[str], healthy: bool) -> str:
    checks = [
        {"name": name, "state": finding.state, "detail": finding.detail, "cure": finding.cure}
        for name, finding in found.items()
    ]
    return json.dumps({"healthy": healthy, "checks": checks, "mended": mended})


def _as_text(found: dict[str, Finding], mended: list[str], healthy: bool) -> str:
    lines = [f"mended  {each}" for each in mended]
    for name, finding in found.items():
        lines.append(f"{SIGNS[finding.state]:7} {name.replace('_', ' '):20} {finding.detail}")
        lines += [f"{'':28} → {finding.cure}"] * bool(finding.cure)
    wrong = sum(not finding.ok for finding in found.values())
    lines.append("healthy" if healthy else f"{wrong} of {len(found)} checks found something wrong")
    return "\n".join(lines)
