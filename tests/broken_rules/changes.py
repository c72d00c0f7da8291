"""Changes of a function's syntax tree, each of which may break a rule.

A change names what it takes by names that the function uses, so it survives other words, lines and order. It raises
`NothingToChange` if there is no such thing.
"""

import ast
from collections.abc import Callable
from typing import Any

Change = Callable[[ast.AST], None]


class NothingToChange(Exception):
    """The function, or what is to be changed in it, does not exist any more."""


def find(module: ast.Module, path: str) -> ast.AST:
    """Return the function, class or constant with this dotted path; an empty path is the module."""
    found: ast.AST = module
    for name in path.split(".") if path else ():
        named = [node for node in getattr(found, "body", ()) if name in _defined(node)]
        if not named:
            raise NothingToChange(f"there is no {path}")
        found = named[-1]
    return found


def _defined(node: ast.AST) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else ()
    return [getattr(node, "name", ""), *(each.id for each in targets if isinstance(each, ast.Name))]


def returns(expression: str) -> Change:
    """The function returns this at once."""

    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.FunctionDef)
        node.body = ast.parse(f"return {expression}").body

    return change


def drop_statements(name: str) -> Change:
    """Drop the statements that use the name, and loops over it."""

    def replaced(node: ast.AST) -> ast.AST | None:
        head = node.iter if isinstance(node, ast.For) else node
        is_simple = isinstance(node, ast.stmt) and not hasattr(node, "body")
        return ast.Pass() if (is_simple or head is not node) and _uses(head, name) else None

    return _replacing(replaced)


def drop_arguments(of: str, name: str) -> Change:
    """Drop the arguments that use the name from the calls of a function or method."""

    def replaced(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Call) or _called(node) != of or not _uses(node, name):
            return None
        arguments = [each for each in node.args if not _uses(each, name)]
        keywords = [each for each in node.keywords if not _uses(each, name)]
        is_same = (len(arguments), len(keywords)) == (len(node.args), len(node.keywords))
        return None if is_same else ast.Call(node.func, arguments, keywords)

    return _replacing(replaced)


def drop_operand(name: str) -> Change:
    """Drop the operands that use the name from `and` and `or`."""

    def replaced(node: ast.AST) -> ast.AST | None:
        rest = [each for each in getattr(node, "values", ()) if not _uses(each, name)]
        if not isinstance(node, ast.BoolOp) or len(rest) in (0, len(node.values)):
            return None
        return rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)

    return _replacing(replaced)


def decide(outcome: bool, name: str) -> Change:
    """The conditions that use the name always have this outcome."""

    def replaced(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.comprehension) and any(_uses(each, name) for each in node.ifs):
            return ast.comprehension(node.target, node.iter, [ast.Constant(outcome)], node.is_async)
        if isinstance(node, ast.If | ast.IfExp) and _uses(node.test, name):
            node.test = ast.Constant(outcome)
            return node
        return None

    return _replacing(replaced)


def unchain(method: str) -> Change:
    """`rows.method(…)` becomes `rows`."""

    def replaced(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Call) or _called(node) != method:
            return None
        return node.func.value if isinstance(node.func, ast.Attribute) else None

    return _replacing(replaced)


def substitute(name: str, expression: str) -> Change:
    """Each use of the variable becomes the expression."""

    def replaced(node: ast.AST) -> ast.AST | None:
        is_used = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id == name
        return ast.parse(expression, mode="eval").body if is_used else None

    return _replacing(replaced)


def _replacing(replaced: Callable[[Any], ast.AST | None]) -> Change:
    """Put another node in the place of each one for which there is one."""

    def change(node: ast.AST) -> None:
        transformer = _Transformer(replaced)
        transformer.generic_visit(node)
        if not transformer.changes:
            raise NothingToChange("it holds nothing to change any more")

    return change


class _Transformer(ast.NodeTransformer):
    def __init__(self, replaced: Callable[[Any], ast.AST | None]) -> None:
        self._replaced = replaced
        self.changes = 0

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        other = self._replaced(node)
        self.changes += other is not None
        return node if other is None else other


def _uses(node: ast.AST, name: str) -> bool:
    """Whether the node uses a name as a variable, an attribute, a keyword or a text."""
    fields = ("id", "attr", "arg", "value")
    return any(getattr(each, field, None) == name for each in ast.walk(node) for field in fields)


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))
