"""Change the core at random, one place at a time, and see whether the tests notice: `make mutants`.

The changes are the operators of cosmic-ray and some that it lacks: conditions and values of statements, calls, results.
Each is made in a copy of the tree, where the tests of its package run until the first one fails. Which changes are made
depends on the code, the seed and the release of cosmic-ray alone, so two sets of tests can be compared. The packages
take turns, and a larger count begins with the changes of a smaller one.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice, pairwise
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.broken_rules.__main__ import copy_tree
from tests.up import ROOT

# by package: the tests that run its code
TESTS = {
    "sessions_app/turns": ["tests/sessions_app/turns", "tests/sessions_app/test_owners.py"],
    "automations/firing": [
        "tests/automations/firing",
        "tests/automations/jobs",
        "tests/automations/runs/test_record.py",
        "tests/automations/test_flags.py",
        "tests/automations/test_scheduled_messages.py",
        "tests/stories/test_unwatched.py",
    ],
    "automations/schedules": [
        "tests/automations/schedules",
        "tests/automations/jobs",
        "tests/automations/tools/test_cron.py",
        "tests/automations/firing/test_decide.py",
        "tests/automations/retention/test_zones.py",
    ],
    "sessions_app/mailbox": [
        "tests/sessions_app/mailbox",
        "tests/automations/test_message_deliveries.py",
        "tests/automations/turn_kinds/test_heartbeat.py",
        "tests/sessions_app/sessions/test_delete_races.py",
        "tests/properties",
    ],
    "agent_core/planner": [
        "tests/agent_core/planner",
        "tests/agent_core/offline/test_planner.py",
        "tests/api/test_planner.py",
        "tests/sessions_app/turns/test_engine.py",
        "tests/sessions_app/turns/test_consent.py",
    ],
}
PLUGINS = ("-p", "no:cacheprovider", "-p", "tests.mutants")
PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", *PLUGINS)
TEST_SECONDS = "60"  # a test that takes longer fails
OPERATORS = [
    *("AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop", "ExceptionReplacer"),
    *(
        "NumberReplacer",
        "RemoveDecorator",
        "ReplaceUnaryOperator_Delete_Not",
        "ReplaceUnaryOperator_USub_UAdd",
    ),
]
SWAPPED = {
    "Comparison": "Eq NotEq, Lt LtE, Lt GtE, Gt GtE, Gt LtE, Is IsNot",
    "Binary": "Add Sub, Mul FloorDiv, Mul Div, Mod Mul, BitAnd BitOr",
}
for kind, pairs in SWAPPED.items():
    for one, other in map(str.split, pairs.split(",")):
        OPERATORS += [f"Replace{kind}Operator_{one}_{other}", f"Replace{kind}Operator_{other}_{one}"]
NARROWING = {"where", "filter"}  # methods whose only condition may go
OF_PARTS = NARROWING | {"exclude", "and_", "or_", "values", "update"}

Place = tuple[int, int]  # line and column
Span = tuple[Place, Place]
Ways = dict[str, Callable[[], str | None]]  # what makes the changed text, by a name
Row = dict[str, Any]


def mutants(count: int, seed: int) -> list[Row]:
    """The changes of this seed; `text` is that of the whole file."""
    rounds = zip(*(_of_package(package, seed) for package in TESTS), strict=False)
    return list(islice(chain.from_iterable(rounds), count))


def _of_package(package: str, seed: int) -> Iterator[Row]:
    chance = random.Random(f"{seed} {package}")
    texts = {path: path.read_text() for path in sorted((ROOT / package).rglob("*.py"))}
    spots = [(path, *spot) for path, text in texts.items() for spot in sorted(_spots(text).items())]
    chance.shuffle(spots)
    for path, (start, _), ways in spots:
        old, new = texts[path], ways[sorted(ways)[chance.randrange(len(ways))]]()
        if new is None or not _differs(old, new):
            continue
        file = str(path.relative_to(ROOT))
        lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0))[3:]
        gone, put = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
        yield {"package": package, "at": f"{file}:{start[0]}", "change": f"{gone} → {put}", "text": new}


def _differs(old: str, new: str) -> bool:
    with suppress(SyntaxError):
        return ast.dump(ast.parse(old)) != ast.dump(ast.parse(new))
    return False


def _spots(text: str) -> dict[Span, Ways]:
    """The changes that can be made, by place."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    found: dict[Span, Ways] = defaultdict(dict)
    nodes, known = list(ast_nodes(get_ast(text))), OperatorProvider()
    for name in OPERATORS:
        operator = known[name]()
        for n, span in enumerate(chain.from_iterable(map(operator.mutation_positions, nodes))):
            found[span][f"{name} {n}"] = partial(mutate_code, text, operator, n)
    lines = text.split("\n")
    tree = list(ast.walk(ast.parse(text)))
    for start, end, put in chain.from_iterable(_own_changes(node, lines) for node in tree):
        found[start, end][put] = partial(_spliced, lines, start, end, put)
    dull = [_span(part, lines) for node in tree for part in _dull_parts(node)]
    return {span: ways for span, ways in found.items() if not any(a <= span[0] < b for a, b in dull)}


def _own_changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[Place, Place, str]]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield *_span(node, lines), "pass"
        case ast.Return(value=ast.expr()):
            yield *_span(node, lines), "return None"
        case ast.Compare(ops=[ast.In() | ast.NotIn() as within]):
            opposite = ast.NotIn() if isinstance(within, ast.In) else ast.In()
            yield *_span(node, lines), ast.unparse(ast.Compare(node.left, [opposite], node.comparators))
        case ast.Call(func=ast.Attribute(attr=name)) if name in OF_PARTS:
            parts = sorted(_span(part, lines) for part in (*node.args, *node.keywords))
            yield from ((part[0], following[0], "") for part, following in pairwise(parts))
            if len(parts) > 1:
                yield parts[-2][1], parts[-1][1], ""
            elif parts and name in NARROWING:
                yield *parts[0], ""


def _dull_parts(node: ast.AST) -> list[ast.AST]:
    """What no test needs to notice: types, texts for people, the fields of data classes."""
    match node:
        case ast.arg(annotation=ast.expr() as types) | ast.AnnAssign(annotation=types):
            return [types]
        case (
            ast.FunctionDef(name="__repr__" | "__str__")
            | ast.Raise()
            | ast.If(test=ast.Name(id="TYPE_CHECKING"))
        ):
            return [node]
        case ast.FunctionDef(returns=ast.expr() as types):
            return [types]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log")))):
            return [node]
        case ast.ClassDef():
            return [each for each in node.decorator_list if "dataclass" in ast.unparse(each)]
    return []


def _span(node: Any, lines: list[str]) -> Span:
    def place(line: int, column: int) -> Place:
        return line, len(lines[line - 1].encode()[:column].decode())  # from bytes, as `ast` counts

    return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)


def _spliced(lines: list[str], start: Place, end: Place, put: str) -> str:
    before = [*lines[: start[0] - 1], lines[start[0] - 1][: start[1]]]
    after = [lines[end[0] - 1][end[1] :], *lines[end[0] :]]
    return "\n".join(before) + put + "\n".join(after)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the copies this file is a plugin of pytest: tests that start no processes come first."""
    items.sort(key=lambda item: "fleet" in getattr(item, "fixturenames", ()))


def pytest_configure() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop the servers of the tests, too


class Runs:
    """Runs tests in copies of the tree, one in each at a time."""

    def __init__(self, copies: list[Path]) -> None:
        self.seconds: dict[str, float] = {}  # that the tests of a package take without a change
        self.copies: Queue[Path] = Queue()
        for each in copies:
            copy_tree(each)
            self.copies.put(each)

    def unchanged(self, package: str) -> Row:
        """Run the tests of a package on the code as it is."""
        row = self._run({"package": package, "at": package, "change": "none"}, 3600)
        self.seconds[package] = row["seconds"]
        return row

    def changed(self, mutant: Row) -> Row:
        """Run the tests on the code with this change. They may be several times as slow as before."""
        return self._run(mutant, 120 + 4 * self.seconds[mutant["package"]])

    def _run(self, mutant: Row, longest: float) -> Row:
        copy, started = self.copies.get(), time.monotonic()
        outcome, by = _tested(copy, mutant, longest)
        self.copies.put(copy)
        seconds = time.monotonic() - started
        print(f"{outcome:9} {seconds:4.0f} s  {mutant['at']}: {mutant['change']}  [{by}]", flush=True)
        return {"package": mutant["package"], "outcome": outcome, "seconds": seconds}


def _tested(copy: Path, mutant: Row, longest: float) -> tuple[str, str]:
    """What became of the change, and the test that noticed it."""
    file, names = mutant["at"].partition(":")[0], TESTS[mutant["package"]]
    if "text" in mutant:
        (copy / file).write_text(mutant["text"])
    with tempfile.TemporaryFile("w+") as printed:
        command = ["nice", *PYTEST, "--timeout", TEST_SECONDS, *names]
        process = subprocess.Popen(command, cwd=copy, stdout=printed, stderr=printed, start_new_session=True)
        try:
            code = process.wait(longest)
        except subprocess.TimeoutExpired:
            return "timed out", ""
        finally:
            _end(process)
            if "text" in mutant:
                shutil.copy2(ROOT / file, copy / file)
        printed.seek(0)
        return _outcome(code, printed.read(), file)


def _outcome(code: int, printed: str, file: str) -> tuple[str, str]:
    """Whether a run of pytest noticed the change of this file, and by what. Broken: something else failed."""
    lines = printed.splitlines() or [""]
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR ")) and "::" in line.split()[1]]
    if code == 1 and failed:
        return "caught", failed[0]
    if code in (1, 2, 4) and file in printed:  # a traceback of the collection, or of a conftest, leads there
        return "caught", lines[-1]
    return ("broken", lines[-1]) if code else ("survived", "")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(60)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    """Change, test, report. 1: the tests fail without a change."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--count", type=int, default=50, help="changes to make (50)")
    parser.add_argument("--seed", type=int, default=30, help="another one chooses other changes (30)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once (2)")
    options = parser.parse_args()
    if find_spec("cosmic_ray") is None:
        print("cosmic-ray is missing; `make mutants` installs it")
        return 1
    if gone := [name for name in chain.from_iterable(TESTS.values()) if not (ROOT / name).exists()]:
        print(f"There are no such tests: {', '.join(gone)}")
        return 1
    changes = mutants(options.count, options.seed)
    with ExitStack() as stack, ThreadPoolExecutor(options.jobs) as pool:
        folders = [tempfile.TemporaryDirectory(prefix="rondo-mutants-") for _ in range(options.jobs)]
        runs = Runs([Path(stack.enter_context(each)) for each in folders])
        packages = [package for package in TESTS if any(each["package"] == package for each in changes)]
        if any(row["outcome"] != "survived" for row in pool.map(runs.unchanged, packages)):
            print("The tests fail without a change, so nothing was changed")
            return 1
        rows = list(pool.map(runs.changed, changes))
    for package in packages:
        counts = Counter(row["outcome"] for row in rows if row["package"] == package)
        print(f"{package}: {', '.join(f'{n} {outcome}' for outcome, n in sorted(counts.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
