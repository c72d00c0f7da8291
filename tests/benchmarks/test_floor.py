"""The machine's floor."""

from __future__ import annotations

from benchmarks.floor import between, drift


def test_the_floor_lies_between_before_and_after() -> None:
    assert between({"no-op": 100.0}, {"no-op": 400.0}) == {"no-op": 200.0}
    assert between({"no-op": 100.0}, {}) == {"no-op": 100.0}


def test_a_floor_that_changed_says_by_how_much() -> None:
    assert drift({"no-op": 300.0, "commit": 90.0}, {"no-op": 200.0, "commit": 100.0}) == 0.5
    assert drift({}, {}) == 0.0
