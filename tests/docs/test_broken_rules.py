"""The breaks of rules against the rules and the code: each applies, and is seen by tests that name its rule."""

from __future__ import annotations

import pytest

from tests.broken_rules.accounts import ACCOUNTS
from tests.broken_rules.background import BACKGROUND
from tests.broken_rules.bounds import BOUNDS
from tests.broken_rules.deliveries import DELIVERIES
from tests.broken_rules.engine import ENGINE
from tests.broken_rules.fleet import FLEET
from tests.broken_rules.mcp import MCP
from tests.broken_rules.messages import MESSAGES
from tests.broken_rules.pages import PAGES
from tests.broken_rules.planner import PLANNER
from tests.broken_rules.promises import PROMISES
from tests.broken_rules.table import BREAKS, Break
from tests.broken_rules.telegram import TELEGRAM
from tests.broken_rules.tokens import TOKENS
from tests.rules import RULES, proofs
from tests.up import ROOT

ALL = (
    BREAKS
    + BACKGROUND
    + PLANNER
    + MESSAGES
    + DELIVERIES
    + PROMISES
    + BOUNDS
    + ENGINE
    + ACCOUNTS
    + MCP
    + PAGES
    + TELEGRAM
    + TOKENS
    + FLEET
)
# no break of these is here yet
NOT_BROKEN = {
    *("1.1", "1.5", "1.10", "1.11", "1.12", "3.2", "5.2"),
    *("5.5", "6.4", "6.7", "8.1", "8.3", "9.2", "10.3"),
}


@pytest.fixture(scope="module")
def named() -> dict[str, dict[str, list[str]]]:
    """The tests that name each rule: read here, because every process of a run imports this module."""
    return proofs()


@pytest.mark.parametrize("broken", ALL, ids=lambda each: each.how)
def test_a_break_applies_and_its_tests_name_the_rule(
    broken: Break, named: dict[str, dict[str, list[str]]]
) -> None:
    text = (ROOT / broken.file).read_text()
    assert text.count(broken.old) == 1
    assert broken.new != broken.old
    for test in broken.tests:
        path, _, name = test.partition("::")
        names = named[broken.rule].get(path)
        assert names is not None, test
        assert not names or not name or name in names, test


def test_each_rule_but_a_few_is_broken_on_purpose() -> None:
    assert set(RULES) - {broken.rule for broken in ALL} == NOT_BROKEN
