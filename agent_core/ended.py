"""How a model's answer ended, and what people are told of an answer that is not whole."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Ended(StrEnum):
    """How an answer ended. Only one that ended by ``STOP`` is whole.

    ``CUT``: the connection or the provider broke it off. Such an answer is asked for again; it is never stored.
    """

    STOP = "stop"
    LENGTH = "length"
    FILTER = "filter"
    REFUSAL = "refusal"
    CUT = "cut"


# the line below the text of an answer that is not whole
NOTES: Final[dict[str, str]] = {
    Ended.LENGTH: "The answer was cut at its length limit.",
    Ended.FILTER: "The model provider's content filter stopped the answer.",
    Ended.REFUSAL: "The model refused to answer.",
}
# what stands in place of an answer without text
EMPTY: Final[dict[str, str]] = {
    Ended.LENGTH: "The model reached its length limit before it gave an answer.",
    Ended.FILTER: "The model provider's content filter blocked the answer.",
    Ended.REFUSAL: "The model refused to answer.",
}


def with_note(text: str, ended_by: str) -> str:
    """Return the text with a closing line if the answer is not whole, for readers who see nothing but text."""
    note = NOTES.get(ended_by, "")
    is_said = not text.strip() or text in EMPTY.values()
    return f"{text.rstrip()}\n\n({note})" if note and not is_said else text
