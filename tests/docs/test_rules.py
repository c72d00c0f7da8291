"""The page of rules is what the marks of the tests say."""

from __future__ import annotations

from pathlib import Path

from tests.rules import PAGE, RULES, marks_in, page, proofs, quick_rules

MODULE = """
import pytest
pytestmark = pytest.mark.rule("1.1")

@pytest.mark.rule("1.2")
def test_function(): ...

@pytest.mark.rule("1.3", "1.4")
async def test_coroutine(): ...

if True:
    @pytest.mark.rule("1.5")
    class TestClass:
        @pytest.mark.rule("1.6")
        def test_method(self): ...

class TestOther:
    pytestmark = [pytest.mark.slow, pytest.mark.rule("1.7")]
"""


def test_each_rule_has_a_test_and_each_mark_a_rule() -> None:
    assert set(proofs()) == set(RULES)


def test_make_test_has_a_test_of_each_rule() -> None:
    assert quick_rules() == set(RULES)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "write it anew: make rules"


def test_marks_of_functions_classes_and_what_they_contain_are_found(tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    module.write_text(MODULE)
    assert sorted(marks_in(module)) == [
        ("1.1", ""),
        ("1.2", "test_function"),
        ("1.3", "test_coroutine"),
        ("1.4", "test_coroutine"),
        ("1.5", "TestClass"),
        ("1.6", "test_method"),
        ("1.7", "TestOther"),
    ]
