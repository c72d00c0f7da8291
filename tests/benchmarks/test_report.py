"""The table of figures, and what a failed benchmark leaves."""

from __future__ import annotations

from benchmarks.__main__ import run_each
from benchmarks.report import Figure, one_line, table

FLOOR = {"no-op": 500.0, "commit": 1000.0}


def test_a_missed_target_says_by_how_much() -> None:
    assert Figure(name="cost", value=3.0, at_most=2.0).verdict == "MISSED by 50%"
    assert Figure(name="rate", value=0.1, at_least=0.2).verdict == "MISSED by 50%"
    assert Figure(name="rate", value=0.2, at_least=0.2).verdict == "met"
    lines = table([Figure(name="cost", value=3.0, unit="ms", at_most=2.0)], {}).splitlines()
    assert lines[-1].split() == ["cost", "3", "ms", "≤", "2", "MISSED", "by", "50%"]


def test_a_figure_is_shown_in_operations_of_the_floor() -> None:
    assert Figure(name="turn", value=10.0, unit="ms").on(FLOOR) == 5.0
    assert Figure(name="turns", value=100.0, unit="/s").on(FLOOR) == 5.0
    assert Figure(name="fire", value=0.2, unit="s", floor="commit").on(FLOOR) == 200.0
    assert Figure(name="memory", value=10.0, unit="MiB").on(FLOOR) is None
    assert Figure(name="turn", value=10.0, unit="ms").on({}) is None
    assert "5 no-op" in table([Figure(name="turn", value=10.0, unit="ms")], FLOOR)


def test_one_failing_benchmark_leaves_the_others_figures() -> None:
    cleaned = []

    def run(name: str) -> list[Figure]:
        if name == "second":
            raise RuntimeError("a process died:\n\nTraceback\nValueError: no")
        return [Figure(name=name, value=1.0)]

    figures, failures = run_each(["first", "second", "third"], run, lambda: cleaned.append(1))
    assert [figure.name for figure in figures] == ["first", "third"]
    assert len(cleaned) == 3
    [failure] = failures
    assert failure.startswith("second: RuntimeError: a process died: … ValueError: no (test_report.py:")


def test_an_error_without_text_is_one_line() -> None:
    assert one_line(AssertionError()) == "AssertionError"
