"""Front ends' own requests: a text that was made to be slow is read as fast as any."""

from __future__ import annotations

import time

import pytest

from interfaces.openai_api.requests import answer_task
from tests.openai_api.test_answers import LIBRECHAT, TITLE

MANY = 100_000
SLOW = {
    "marks of the output and of the history": "### Task:\n"
    + "### Output: " * MANY
    + "<chat_history>\n" * MANY,
    "histories that do not end": TITLE.replace("</chat_history>", "<chat_history>\n" * MANY),
    "a completion that does not end": "### Task:\nYou are an autocompletion system."
    + "<chat_history></chat_history>" * MANY,
    "empty lines": TITLE.replace("USER: Where", "\n" * 10 * MANY + "Where"),
    "empty lines of a title": LIBRECHAT.replace("User: Where", "\n" * 10 * MANY),
}


@pytest.mark.rule("10.0")
@pytest.mark.parametrize("name", SLOW)
def test_no_text_takes_long(name: str) -> None:
    began = time.monotonic()
    answer_task((("user", SLOW[name]),), "")
    assert time.monotonic() - began < 5
