"""The table of broken rules against the page of rules and the code: each break applies, each rule may be broken."""

from __future__ import annotations

import re

import pytest

from tests.broken_rules.background import BACKGROUND
from tests.broken_rules.deliveries import DELIVERIES
from tests.broken_rules.messages import MESSAGES
from tests.broken_rules.planner import PLANNER
from tests.broken_rules.table import BREAKS, Break
from tests.up import ROOT

PAGE = (ROOT / "docs" / "session-rules.md").read_text()
ROWS = re.findall(r"^\| ([a-z ]+) \| .* \| (.*) \|$", PAGE, re.MULTILINE)
ALL = BREAKS + BACKGROUND + PLANNER + MESSAGES + DELIVERIES
NOT_CODE = {"rule"}  # the heading


def _tests(cell: str) -> set[str]:
    """The cell's tests as pytest spells them; a file without a name stands for all of its tests."""
    found, current = set(), ""
    for span in re.findall(r"`([^`]+)`", cell):
        if span.startswith("tests/"):
            current = span
            found.add(span)
        else:
            found.add(f"{current}::{span}")
    return found


@pytest.mark.parametrize("broken", ALL, ids=lambda each: each.how)
def test_a_break_applies_and_is_seen_by_a_test_of_its_rule(broken: Break) -> None:
    text = (ROOT / broken.file).read_text()
    assert text.count(broken.old) == 1
    assert broken.new != broken.old
    proofs = {test for rule, cell in ROWS if rule == broken.rule for test in _tests(cell)}
    assert set(broken.tests) <= proofs


def test_each_rule_of_the_page_is_broken_in_some_way() -> None:
    rules = {rule for rule, _ in ROWS} - NOT_CODE
    assert len(rules) > 10
    assert rules == {broken.rule for broken in ALL}
