"""Watching statements: each is planned and executed once more in a savepoint, and what it read is looked at."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from django.db import connection

PAGE = 1_000  # rows that a statement may sort
MOST_READ = 6_000  # rows of a table that grows which a statement may read
TIMES = 2  # that one statement is looked at in one scene
ROOT = Path(__file__).parents[1]
_PLANNED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@dataclass(kw_only=True)
class Watch:
    """What the statements of this process's connection did wrong, by the place that they came from."""

    growing: frozenset[str]
    faults: dict[str, str] = field(default_factory=dict)
    seen: int = 0
    most_read: int = MOST_READ
    _looked: dict[tuple[str, str], int] = field(default_factory=dict)
    _scene: str = ""

    @contextmanager
    def scene(self, name: str, most_read: int = MOST_READ) -> Iterator[None]:
        """What happens inside is known by this name; how many rows a statement of it may read."""
        self._scene, self.most_read = name, most_read
        with connection.execute_wrapper(self._execute), patch.object(connection, "close"):
            yield

    def _execute(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        text = str(sql)
        key = (self._scene, text)
        if not many and text.lstrip("( ").startswith(_PLANNED) and self._looked.get(key, 0) < TIMES:
            self._looked[key] = self._looked.get(key, 0) + 1
            self._look(text, params, isinstance(context["cursor"].cursor, psycopg.RawCursor))
        return execute(sql, params, many, context)

    def _look(self, text: str, params: Any, is_numbered: bool) -> None:
        link = connection.connection
        with psycopg.RawCursor(link) if is_numbered else link.cursor() as cursor:
            cursor.execute("SAVEPOINT watched")
            try:
                cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {text}", params)
                [(plans,)] = cursor.fetchall()
                plan = plans[0]["Plan"]
            finally:
                cursor.execute("ROLLBACK TO SAVEPOINT watched")
                cursor.execute("RELEASE SAVEPOINT watched")
        self.seen += 1
        for what in self._wrong_with(plan):
            self.faults.setdefault(f"{_origin()}: {what}", f"[{self._scene}] {text[:1500]}")

    def _wrong_with(self, node: dict[str, Any]) -> Iterator[str]:
        table, kind = node.get("Relation Name", ""), node["Node Type"]
        removed = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
        read = (node.get("Actual Rows", 0) + removed) * node.get("Actual Loops", 0)
        if table in self.growing and node.get("Actual Loops", 0):
            if kind == "Seq Scan":
                yield f"sequential scan of {table}"
            elif kind != "ModifyTable" and read > self.most_read:
                yield f"reads {read:,.0f} rows of {table} by {node.get('Index Name', kind)}"
        if kind in {"Sort", "Incremental Sort"}:
            below = node["Plans"][0]
            given = below["Actual Rows"] * below["Actual Loops"]
            if given > PAGE:
                yield f"sorts {given:,.0f} rows by {', '.join(node['Sort Key'])}"
        for each in node.get("Plans", ()):
            yield from self._wrong_with(each)

    def report(self) -> str:
        """Every fault, with its statement."""
        return "\n\n".join(f"{what}\n    {text}" for what, text in sorted(self.faults.items()))


def _origin() -> str:
    """The line of ours that asked for it, and the first of ours that led there."""
    ours = [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno}"
        for frame in traceback.extract_stack()
        if frame.filename.startswith(str(ROOT))
        and "/.venv/" not in frame.filename
        and not frame.filename.startswith(str(ROOT / "tests"))
    ]
    inner = [each for each in ours if not each.startswith("sessions_app/postgres/statements.py")]
    return inner[-1] if inner else "a test"
