"""The rules of docs/rules.md and their tests: `python -m tests.rules` lists the tests of each rule there.

The page has the texts of the rules, and only those are written by hand. A test names the rule that it tries to break:
`@pytest.mark.rule("4.8")`, or for a whole module in `pytestmark`.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.up import ROOT

PAGE = ROOT / "docs" / "rules.md"
_TESTS, _RULE = "- `tests/", re.compile(r"\*\*([\d.]+)\*\* ")
TEXTS = [each for each in PAGE.read_text().strip().split("\n\n") if not each.startswith(_TESTS)]
RULES = {match[1] for each in TEXTS if (match := _RULE.match(each))}


def _is_full(nodes: list[ast.expr]) -> bool:
    """Whether a mark among these expressions leaves the tests to `make test-all`: not that of a single parameter."""
    marks = [mark for each in nodes for mark in (each.elts if isinstance(each, ast.List) else [each])]
    return any(ast.unparse(mark) == "pytest.mark.full" for mark in marks)


def _marked(nodes: list[ast.expr]) -> set[str]:
    """The rules named by marks in these expressions."""
    calls = (node for each in nodes for node in ast.walk(each) if isinstance(node, ast.Call))
    return {
        argument.value
        for call in calls
        if ast.unparse(call.func) == "pytest.mark.rule"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def quick_rules() -> set[str]:
    """The rules that a test of `make test` marks: one without `full`, also at its class and its module."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py"))
    return {rule for tree in trees for rule in _quick_below(tree, set())}


def _quick_below(parent: ast.Module | ast.ClassDef, around: set[str]) -> Iterator[str]:
    """The rules of the quick tests in a module or class. `around`: those that are marked around it."""
    own = [
        node.value
        for node in parent.body
        if isinstance(node, ast.Assign) and any(ast.unparse(each) == "pytestmark" for each in node.targets)
    ]
    marks = own + (parent.decorator_list if isinstance(parent, ast.ClassDef) else [])
    if _is_full(marks):
        return
    rules = around | _marked(marks)
    for node in parent.body:
        if isinstance(node, ast.ClassDef):
            yield from _quick_below(node, rules)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_full(node.decorator_list):
            yield from rules | _marked(node.decorator_list) if node.name.startswith("test_") else ()


def _marks_below(parent: ast.AST, owner: str) -> Iterator[tuple[str, str]]:
    """The marks inside a node. `owner` is the innermost class or function around them."""
    for node in ast.iter_child_nodes(parent):
        name = owner
        if isinstance(node, ast.Assign) and any(ast.unparse(each) == "pytestmark" for each in node.targets):
            yield from ((rule, owner) for rule in _marked([node.value]))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
            yield from ((rule, name) for rule in _marked(node.decorator_list))
        yield from _marks_below(node, name)


def proofs() -> dict[str, dict[str, list[str]]]:
    """The tests of each rule: by rule and file, the names; none for a whole file."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for rule, name in _marks_below(ast.parse(path.read_text()), ""):
            names = found[rule][str(path.relative_to(ROOT))]
            names += [name] if name else []
    return found


def page() -> str:
    """docs/rules.md with the tests that there are now."""
    tests, parts = proofs(), []
    for text in TEXTS:
        parts.append(text)
        match = _RULE.match(text)
        files = tests[match[1]] if match else {}
        rows = (f"`{path}`, " + ", ".join(f"`{name}`" for name in names) for path, names in files.items())
        parts += ["\n".join(f"- {row.removesuffix(', ')}" for row in rows)] if files else []
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
