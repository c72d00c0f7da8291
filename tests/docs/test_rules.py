"""The page of rules is what the marks of the tests say."""

from tests.rules import PAGE, RULES, page, proofs, quick_rules


def test_each_rule_has_a_test_and_each_mark_a_rule() -> None:
    assert set(proofs()) == set(RULES)


def test_make_test_has_a_test_of_each_rule() -> None:
    assert quick_rules() == set(RULES)


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "write it anew: make rules"
