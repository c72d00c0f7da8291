"""Texts that are made to take long, and the form of their characters (rule 1.12)."""

import unicodedata
from collections.abc import Callable

import pytest

from agent_core.llm.errors import one_line
from agent_core.planner.decide import decide_message, is_clear, plain_answer
from agent_core.text import fence, phrases
from agent_core.text.formats import one_width
from agent_core.text.redact import redact
from tests.yardstick import within

MARKS = "\u0315\u0300\u05ae\u0300"  # in another order than the one that Unicode wants


@pytest.mark.parametrize(
    "read",
    [
        plain_answer,
        is_clear,
        phrases.sentences,
        phrases.orders,
        lambda text: phrases.shares_words(text, text),
        lambda text: decide_message(text, (), live_request=True),
        lambda text: fence.fenced("page", text),
    ],
)
def test_marks_in_disorder_hold_up_no_process(read: Callable[[str], object]) -> None:
    with within(20):
        read("yes" + MARKS * 12_000)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda text: list(fence.blocks(text)), '<data-0123456789 of="x">\n' * 4_000),
        (fence.without_fences, '<data-0123456789 of="x">\n' * 4_000),
        (redact, "key-" * 10_000),
        (lambda text: one_line(text, 1_000, ()), "a" * 20_000),
    ],
)
def test_what_seems_to_begin_often_takes_no_longer(read: Callable[[str], object], text: str) -> None:
    with within(20):
        read(text)


def test_the_form_does_not_depend_on_where_a_text_is_cut() -> None:
    for text in (
        "\uff39\uff45\uff53 \ufb01 e\u0301 " * 300,
        "\u786e\u8ba4\uff1f" * 300,
        "x" * 199 + " e\u0301",
        "plain " * 100,
        "",
    ):
        assert one_width(text) == unicodedata.normalize("NFKC", text)
