"""What `make bench-check` names."""

from __future__ import annotations

from pathlib import Path

from benchmarks.check import compare, missing
from benchmarks.report import Figure, Run, read_run

TURN = Figure(name="turn", value=10.0, unit="ms", at_most=5.0, note="as it was")


def run_of(*figures: Figure, noops: float = 500.0) -> Run:
    """A run on a machine with this rate of no-op tasks."""
    return Run(machine="a machine", sizes="quick", floor={"no-op": noops}, figures=list(figures))


def test_a_time_over_a_tenth_worse_is_named() -> None:
    now = run_of(Figure(name="turn", value=11.5, unit="ms"))
    assert compare(now, run_of(TURN)) == ["turn: 15% worse (10 to 11.5 ms, 5 to 5.75 no-op)"]
    assert compare(run_of(Figure(name="turn", value=10.9, unit="ms")), run_of(TURN)) == []


def test_a_slower_machine_makes_no_figure_worse() -> None:
    half = run_of(
        Figure(name="turn", value=20.0, unit="ms"), Figure(name="turns", value=50.0, unit="/s"), noops=250.0
    )
    assert compare(half, run_of(TURN, Figure(name="turns", value=100.0, unit="/s"))) == []


def test_a_rate_that_fell_with_the_same_floor_is_named() -> None:
    then = run_of(Figure(name="turns", value=100.0, unit="/s"))
    [line] = compare(run_of(Figure(name="turns", value=80.0, unit="/s")), then)
    assert line.startswith("turns: 25% worse (100 to 80 /s")


def test_a_count_that_grew_at_all_is_named() -> None:
    then = run_of(Figure(name="SQL", value=20.0, count=True))
    assert compare(run_of(Figure(name="SQL", value=21.0, count=True)), then) == ["SQL: 5% worse (20 to 21)"]
    assert compare(run_of(Figure(name="SQL", value=20.0, count=True)), then) == []
    assert compare(run_of(Figure(name="SQL", value=1.0, count=True)), run_of(Figure(name="SQL", value=0.0)))


def test_a_ratio_is_worse_in_its_own_direction() -> None:
    then = run_of(
        Figure(name="turns to no-ops", value=0.4, at_least=0.33), Figure(name="ratio", value=1.0, at_most=1.2)
    )
    better = run_of(
        Figure(name="turns to no-ops", value=0.6, at_least=0.33), Figure(name="ratio", value=0.5, at_most=1.2)
    )
    assert compare(better, then) == []
    assert [line.partition(":")[0] for line in compare(then, better)] == ["turns to no-ops", "ratio"]


def test_figures_of_one_run_alone_are_not_compared() -> None:
    then, now = run_of(TURN), run_of(Figure(name="new", value=1.0))
    assert compare(now, then) == []
    assert missing(now, then) == ["turn"]


def test_a_kept_run_is_read_as_it_was(tmp_path: Path) -> None:
    run = run_of(TURN, Figure(name="SQL", value=7.0, count=True))
    run.write(tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == run
