"""Break rules on purpose and see that a test fails: `make broken-rules`, or with words that breaks contain.

Each break of the table is made in a copy of the tree, where its tests run until one fails. Exit 1 when none does, or
when the function that the break names does not exist any more. Before that, they all run once without a break: if one
fails then, no break is made.
"""

import ast
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.broken_rules.changes import NothingToChange, find
from tests.broken_rules.table import BREAKS, Break
from tests.up import ROOT

AT_ONCE = 2
LONGEST = 600  # seconds for the tests of one break


def main(words: list[str]) -> int:
    """Make the breaks whose rule, text or function contains one of the words, or all of them."""
    every = [(each, module, tests) for module, (tests, *breaks) in BREAKS.items() for each in breaks]
    chosen = [row for row in every if not words or any(word in title(*row[:2]).lower() for word in words)]
    if not chosen:
        print("There is no such break")
        return 1
    started = time.monotonic()
    control = run_tests(" ".join(dict.fromkeys(" ".join(tests for _, _, tests in chosen).split())))
    if control.returncode:
        print(f"{control.stdout[-3000:]}{control.stderr}\nThe tests fail without a break, so none was made")
        return 1
    with ThreadPoolExecutor(AT_ONCE) as pool:
        missed = list(pool.map(lambda row: report(*row), chosen)).count(False)
    print(f"{len(chosen) - missed} of {len(chosen)} breaks seen, {time.monotonic() - started:.0f} s")
    return 1 if missed else 0


def title(each: Break, module: str) -> str:
    """The rule, the function and the text of a break."""
    return f"{each.rule} {module}:{each.path} {each.how}"


def report(each: Break, module: str, tests: str) -> bool:
    """Make a break and print whether it was seen, and by which test."""
    started = time.monotonic()
    try:
        test, said = first_failure(each, module, tests)
    except (NothingToChange, subprocess.TimeoutExpired) as error:
        test, said = "", str(error)
    seen, seconds = ("seen  " if test else "MISSED"), time.monotonic() - started
    print(f"{seen} {seconds:4.0f} s  {title(each, module)} [{test or said}]", flush=True)
    return bool(test)


def first_failure(each: Break, module: str, tests: str) -> tuple[str, str]:
    """Return the test that fails with the break, or an empty text, and pytest's last line. NothingToChange."""

    def change(folder: Path) -> None:
        file = folder / f"{module.replace('.', '/')}.py"
        if not file.is_file():
            raise NothingToChange("there is no such module")
        code = ast.parse(file.read_text())
        each.change(find(code, each.path))
        file.write_text(ast.unparse(ast.fix_missing_locations(code)))

    done = run_tests(tests, change, timeout=LONGEST)
    lines = done.stdout.splitlines() or [done.stderr]
    failed = [line.split(" - ")[0][7:] for line in lines if line.startswith("FAILED ")]
    return failed[0] if failed and done.returncode == 1 else "", lines[-1].strip()


def run_tests(
    tests: str, change: Callable[[Path], None] = lambda _folder: None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run these arguments of pytest in a copy of the tree, changed so, until a test fails."""
    with tempfile.TemporaryDirectory(prefix="rondo-broken-") as folder:
        copy_tree(Path(folder))
        change(Path(folder))
        command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests.split()]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **options)


def copy_tree(to: Path) -> None:
    """Copy what git tracks or could, as it is in this tree."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]
    subprocess.run(["cp", "--parents", "-t", to, *paths], cwd=ROOT, check=True)
    to.chmod(0o755)
    for name in (".venv", ".node"):
        (to / name).symlink_to(ROOT / name)


if __name__ == "__main__":
    sys.exit(main([word.lower() for word in sys.argv[1:]]))
