"""The checker of `make chaos` finds each anomaly that is planted in a history, and nothing in a good one."""

import ast
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from chaos import checker

Change = Any


def done(process: str, began: float, op: str, end: str = "ok", **fields: Any) -> list[dict[str, Any]]:
    asked = {"process": process, "op": op, **fields}
    return [asked | {"type": "invoke", "at": began}, asked | {"type": end, "at": began + 0.5}]


def good() -> dict[str, list[dict[str, Any]]]:
    """A history without anomalies, by names of its operations."""
    return {
        "a1": done("a", 1, "append", session="s", value="m1"),
        "a2": done("a", 2, "append", session="s", value="m2"),
        "b1": done("b", 2.2, "append", "unknown", session="s", value="m3"),
        "a3": done("a", 2.7, "append", "fail", session="s", value="m4"),
        **{f"c{n}": done("c", n, "append", session="other", value=f"o{n}") for n in range(3, 8)},
        "early": done("a", 4, "read", session="s", values=["m1", "m2"]),
        "late": done("b", 6, "read", session="s", values=["m1", "m2", "m3"]),
        "stream": done("s", 1, "stream", session="s", ids=[4, 5, 9], expected=[4, 5, 9]),
        "turns": done("d", 8, "turns", session="s", spans=[[1, 2], [2, 3], [5, 6]]),
        "runs": done(
            "d", 9, "runs", runs=[{"slot": "j:1", "state": "succeeded"}, {"slot": "j:2", "state": "failed"}]
        ),
        "effect": done("e", 3, "effect", slot="j:1", key="k1")[1:],
        "again": done("f", 3, "deliver", of="m9", key="d1")[1:]
        + done("f", 5, "deliver", of="m9", key="d1")[1:],
    }


def read(name: str, *values: str) -> Change:
    return lambda h: [event.update(values=list(values)) for event in h[name]]


def set_to(name: str, **fields: Any) -> Change:
    return lambda h: [event.update(fields) for event in h[name]]


def add(*events: list[dict[str, Any]]) -> Change:
    return lambda h: h.update({f"more{n}": each for n, each in enumerate(events)})


PLANTED: dict[str, Change] = {
    "lost": read("late", "m1", "m3"),
    "doubled": read("late", "m1", "m2", "m3", "m2"),
    "phantom": read("late", "m1", "m2", "x"),
    "refused but stored": read("late", "m1", "m2", "m4"),
    "out of order": read("late", "m2", "m1", "m3"),
    "went back": read("early", "m1", "m2", "m3", "m9"),
    "changed order": read("early", "m2", "m1"),
    "own write unseen": read("early", "m1"),
    "stream out of order": set_to("stream", ids=[4, 9, 5]),
    "stream incomplete": set_to("stream", ids=[4, 9]),
    "stuck": set_to("turns", spans=[[1, 2], [3, None]]),
    "two at a time": set_to("turns", spans=[[1, 4], [3, 5]]),
    "slot twice": set_to("runs", runs=[{"slot": "j:1", "state": "succeeded"}] * 2),
    "effect lost": set_to("effect", slot="j:2"),
    "effect doubled": add(done("e", 4, "effect", slot="j:1", key="k2")[1:]),
    "effect of nothing": add(done("e", 4, "effect", slot="j:7", key="k7")[1:]),
    "delivered under two keys": add(done("f", 6, "deliver", of="m9", key="d2")[1:]),
    "dead": add(*(done("g", n, "append", "unknown", session="s", value=f"u{n}") for n in range(20, 28))),
    "history": add([{"process": "h", "type": "invoke", "at": 1, "op": "read", "session": "s"}] * 2),
}


def found_in(history: dict[str, list[dict[str, Any]]]) -> set[str]:
    events = sorted((event for each in history.values() for event in each), key=lambda event: event["at"])
    return {each.name for each in checker.check(events)}


def test_a_good_history_has_no_anomaly() -> None:
    assert found_in(good()) == set()


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_named(name: str) -> None:
    history = deepcopy(good())
    PLANTED[name](history)
    assert name in found_in(history)


def test_each_kind_of_anomaly_is_planted() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {node.args[0].value for node in calls if getattr(node.func, "id", "") == "Anomaly"}  # type: ignore[attr-defined]
    assert names == set(PLANTED)


def test_the_checker_imports_nothing_of_the_project() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names
