"""Only the models write a state: everything else calls a transition, which names the state that it leaves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import pytest

from tests.up import ROOT

pytestmark = pytest.mark.rule("7.2")

COLUMNS = {"state", "status"}
WRITERS = {"update", "values", "aupdate"}  # of a queryset, or of an SQLAlchemy UPDATE
LISTS = {"save", "asave", "bulk_update", "abulk_update"}  # they name the columns that they write
IN_SQL = re.compile(r"\bset\b[^;]*\b(?:state|status)\s*=", re.IGNORECASE)
EXCEPTIONS = {
    # a part of a larger statement: they choose a row and claim it, or end a turn with what its commit writes; a run
    # starts and ends with its turn
    "sessions_app/turns/claim.py:_claim_statement",
    "sessions_app/turns/commit_statement.py:_end_turn",
    "sessions_app/deliveries/send.py:CLAIM",
    "automations/runs/statements.py:RunParts.start",
    "automations/runs/statements.py:_end",
    # a new row, before it is stored
    "sessions_app/deliveries/outbox.py:enqueue_judged_delivery",
    # the HTTP status of a stored answer
    "sessions_app/idempotency.py:idempotent",
}


def _places() -> set[str]:
    """The places outside the models that write a state, each as `file:function`."""
    found = set()
    for app in ("sessions_app", "automations"):
        for path in (ROOT / app).rglob("*.py"):
            if not {"models", "migrations"} & set(path.parts):
                name = path.relative_to(ROOT)
                found |= {f"{name}:{where}" for where in _writers(ast.parse(path.read_text()).body)}
    return found


def _writers(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The functions, and the constants of the module, that write a state."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from (f"{statement.name}.{name}" for name in _writers(statement.body))
        elif any(_writes(node) for node in ast.walk(statement)):
            yield _name(statement)


def _name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return statement.name
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.Assign):
        return any(_is_column(target) for target in node.targets)
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return _is_column(node.target)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(IN_SQL.search(node.value))
    return isinstance(node, ast.Call) and _is_writing_call(node)


def _is_column(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple):
        return any(_is_column(each) for each in target.elts)
    return isinstance(target, ast.Attribute) and target.attr in COLUMNS


def _is_writing_call(call: ast.Call) -> bool:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    if called in WRITERS:
        given = {keyword.arg for keyword in call.keywords}
        unpacked = (keyword.value for keyword in call.keywords if keyword.arg is None)
        return bool(COLUMNS & (given | _strings(unpacked)))
    if called in LISTS or called == "setattr":
        return bool(COLUMNS & _strings([*call.args, *(keyword.value for keyword in call.keywords)]))
    return called == "update_or_create" and bool(
        COLUMNS & _strings(keyword.value for keyword in call.keywords if keyword.arg == "defaults")
    )


def _strings(parts: Iterable[ast.expr]) -> set[str]:
    return {
        node.value
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_no_module_outside_the_models_writes_a_state() -> None:
    assert _places() == EXCEPTIONS


@pytest.mark.parametrize(
    "line",
    [
        "rows.filter(pk=1).update(state=TurnState.FAILED)",
        "rows.update(**{'status': Status.FAILED}, turn=turn)",
        "turn.state = TurnState.FAILED",
        "question.state, question.answered_by = ConsentState.GRANTED, turn",
        "turn.save(update_fields=['content', 'state'])",
        "Turn.objects.bulk_update(turns, ['state'])",
        "setattr(turn, 'state', 'failed')",
        "Turn.objects.update_or_create(pk=1, defaults={'state': 'failed'})",
        "cursor.execute('UPDATE turn SET claim = NULL, state = %s', [state])",
        "CLAIM = sa.update(_turn).values(claim=new, state='running')",
    ],
)
def test_each_way_to_write_a_state_is_seen(line: str) -> None:
    assert list(_writers(ast.parse(f"def change():\n    {line}").body)) == ["change"]


@pytest.mark.parametrize(
    "line",
    [
        "rows.filter(state=TurnState.QUEUED).update(host=None)",
        "rows.exclude(status__in=WAITING).values('state')",
        "shown = JSONObject(state='state')",
        "row = Turn(state=TurnState.QUEUED)",
        "state = turn.state",
    ],
)
def test_reads_and_first_states_are_no_writes(line: str) -> None:
    assert list(_writers(ast.parse(line).body)) == []
