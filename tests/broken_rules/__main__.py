"""Break each rule on purpose and see that its test fails: `make broken-rules`, or with words that rules contain.

Each rule is broken in a copy of the tree, and the tests that the table names are run there. Exit 1 when one of them
passes all the same, also where another one fails: that test proves nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.broken_rules.accounts import ACCOUNTS
from tests.broken_rules.background import BACKGROUND
from tests.broken_rules.bounds import BOUNDS
from tests.broken_rules.deliveries import DELIVERIES
from tests.broken_rules.doors import DOORS
from tests.broken_rules.engine import ENGINE
from tests.broken_rules.fleet import FLEET
from tests.broken_rules.mcp import MCP
from tests.broken_rules.messages import MESSAGES
from tests.broken_rules.pages import PAGES
from tests.broken_rules.planner import PLANNER
from tests.broken_rules.promises import PROMISES
from tests.broken_rules.table import BREAKS, Break
from tests.broken_rules.telegram import TELEGRAM
from tests.broken_rules.tokens import TOKENS
from tests.up import ROOT

AT_ONCE = max(1, (os.cpu_count() or 1) // 2)
LONGEST = 600  # seconds for the tests of one rule


def main(words: list[str]) -> int:
    """Break the rules whose text holds one of the words, or all of them."""
    chosen = [
        each
        for each in BREAKS
        + BACKGROUND
        + PLANNER
        + MCP
        + MESSAGES
        + DELIVERIES
        + PROMISES
        + BOUNDS
        + DOORS
        + ENGINE
        + ACCOUNTS
        + PAGES
        + TELEGRAM
        + TOKENS
        + FLEET
        if not words or any(word in str(each).lower() for word in words)
    ]
    print(f"{len(chosen)} rules to break, {AT_ONCE} at once")
    started = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = list(pool.map(_report, chosen))
    missed = verdicts.count(False)
    print(f"{len(chosen) - missed} of {len(chosen)} seen by their tests, {time.monotonic() - started:.0f} s")
    return 1 if missed else 0


def _report(broken: Break) -> bool:
    started = time.monotonic()
    seen, last = _seen(broken)
    took = f"{time.monotonic() - started:4.0f} s"
    print(f"{'seen  ' if seen else 'MISSED'} {took}  {broken.rule}: {broken.how}  [{last}]", flush=True)
    return seen


def _seen(broken: Break) -> tuple[bool, str]:
    """Whether each test fails with the rule broken, and the last line they print. A crash of pytest is no failure."""
    with tempfile.TemporaryDirectory(prefix="rondo-broken-") as folder:
        copy = Path(folder)
        _copy(copy)
        file = copy / broken.file
        text = file.read_text()
        assert text.count(broken.old) == 1, f"{broken.file} does not hold this once: {broken.old!r}"
        file.write_text(text.replace(broken.old, broken.new))
        first = ("-x",) if len(broken.tests) == 1 else ()
        command = [sys.executable, "-m", "pytest", "-q", *first, "-p", "no:cacheprovider", *broken.tests]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=LONGEST, check=False)
    printed = done.stdout.splitlines()
    lines = [line for line in printed if " passed" in line or " failed" in line or " error" in line]
    failed = {line.split()[1].partition("[")[0] for line in printed if line.startswith(("FAILED ", "ERROR "))}
    each = all(any(f"{name}::".startswith(f"{test}::") for name in failed) for test in broken.tests)
    return done.returncode == 1 and each, lines[-1].strip() if lines else "no result"


def _copy(to: Path) -> None:
    for path in _tracked():
        target = to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    to.chmod(0o755)
    (to / ".venv").symlink_to(ROOT / ".venv")


def _tracked() -> Iterable[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return (path for path in listed.stdout.splitlines() if (ROOT / path).is_file())


if __name__ == "__main__":
    sys.exit(main([word.lower() for word in sys.argv[1:]]))
