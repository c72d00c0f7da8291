"""Marks of sources in texts that models write."""

from __future__ import annotations

import time
from datetime import date

import pytest

from agent_core.memory.task_state import mark_new_lines, restore_marks, without_source

ON = date(2026, 11, 23)


@pytest.mark.rule("1.12")
def test_a_long_line_of_spaces_is_read_at_once() -> None:
    long = f"a{' ' * 100_000}b"
    begun = time.process_time()
    assert without_source(long) == long
    assert mark_new_lines("", long, ON) == f"{long} [outside 2026-11-23]"
    assert restore_marks(long, f"{long} [outside 2026-11-23]") == f"{long} [outside 2026-11-23]"
    assert time.process_time() - begun < 1.0


def test_marks_go_with_the_spaces_before_them() -> None:
    assert without_source("tea at four   [person 2026-11-23]") == "tea at four"
    assert without_source("[person 2026-11-23] tea") == "[person 2026-11-23] tea"
    assert (
        mark_new_lines("", "tea [Agent 2026-01-01]  [outside 2026-01-02] x", ON)
        == "tea x [outside 2026-11-23]"
    )
