import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.db import Error

from automations.doctor import Mended, mend_last_slots
from config.checks import CHECKS, looked_at
from sessions_app.doctor import Finding

SIGNS = {"ok": "ok", "unknown": "?", "wrong": "WRONG"}


class Command(BaseCommand):
    help = "Look for what is wrong with this server, and say the cure. Exit code 1 when something is."
    requires_system_checks = ()  # they are one of its checks

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--mend", action="store_true", help="first set last_slot right where it is far ahead"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, mend: bool, json: bool, **options: Any) -> None:
        """Findings go to stdout, also when nothing is wrong."""
        mended = _mended() if mend else []
        found = looked_at(CHECKS)
        healthy = all(finding.ok for finding in found.values())
        self.stdout.write(_as_json(found, mended, healthy) if json else _in_words(found, mended, healthy))
        if not healthy:
            sys.exit(1)


def _mended() -> list[Mended]:
    mended: list[Mended] = []
    try:
        mend_last_slots(mended.append)
    except Error:
        return mended  # what keeps it from mending is among the findings
    return mended


def _as_json(found: dict[str, Finding], mended: list[Mended], healthy: bool) -> str:
    checks = [
        {"name": name, "state": finding.state, "detail": finding.detail, "cure": finding.cure}
        for name, finding in found.items()
    ]
    return json.dumps({"healthy": healthy, "checks": checks, "mended": [str(each) for each in mended]})


def _in_words(found: dict[str, Finding], mended: list[Mended], healthy: bool) -> str:
    lines = [f"mended  {each}" for each in mended]
    for name, finding in found.items():
        lines.append(f"{SIGNS[finding.state]:7} {name.replace('_', ' '):20} {finding.detail}")
        lines += [f"{'':28} → {finding.cure}"] * bool(finding.cure)
    wrong = sum(not finding.ok for finding in found.values())
    lines.append("healthy" if healthy else f"{wrong} of {len(found)} checks found something wrong")
    return "\n".join(lines)
