"""Decides how a provider's answer ended: the one place that asks whether a reply is whole.

A stream that ends without a word about its end is cut, because it cannot be told from a connection that closed in the
middle. A server of OpenAI's kind that never sends a ``finish_reason`` is taken at its word if it sends the mark
``[DONE]``: then the answer is whole. Anthropic's ``stop_reason`` and the ``finishReason`` of Google come after all
content, so nothing else is needed of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent_core.ended import Ended
from agent_core.exceptions import ModelUnavailable

# The provider's own words, where the client does not translate them. Words that are not known here mean: stop.
_WORDS: Final[tuple[tuple[re.Pattern[str], Ended], ...]] = (
    (re.compile(r"length|max_|maxtokens|context_window", re.IGNORECASE), Ended.LENGTH),
    (re.compile(r"refus", re.IGNORECASE), Ended.REFUSAL),
    (re.compile(r"filter|safety|sensitive|guardrail|prohibited|blocked", re.IGNORECASE), Ended.FILTER),
    (
        re.compile(
            r"error|abort|cancel|fail|interrupt|incomplete|insufficient|malformed|timeout|other",
            re.IGNORECASE,
        ),
        Ended.CUT,
    ),
)
_WORD: Final = re.compile(r"[A-Za-z][\w-]{0,39}")
_TRANSLATED: Final = {"length": Ended.LENGTH, "content_filter": Ended.FILTER, "error": Ended.CUT}
CLOSED: Final = "The connection closed in the middle of the answer"
BROKEN_OFF: Final = "The model provider broke off the answer"


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """What a provider said of the end of its answer.

    ``reason`` is its reason as the client translates it, ``details`` has its own word as ``finish_reason``.
    ``complete``: the client read the stream to its end. ``marked``: the stream's end mark came; None: not known.
    ``is_empty``: the answer has neither text nor calls.
    """

    reason: str | None
    details: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    marked: bool | None = None
    is_empty: bool = False

    @property
    def word(self) -> str:
        """The provider's own word, or an empty string."""
        return str(self.details.get("finish_reason") or "")

    def ended_by(self) -> Ended:
        """Return how the answer ended."""
        if self.details.get("refusal") or self.word == "refusal":
            return Ended.REFUSAL
        if not self.complete:
            return Ended.CUT
        if self.reason in _TRANSLATED:
            return _TRANSLATED[self.reason]
        if self.reason == "tool_call" and self.is_empty:
            return Ended.CUT  # the call that it announced did not come
        if not self.word:
            # the client reports "stop" for a stream of OpenAI's kind that gave no reason at all
            return Ended.STOP if self.reason and self.marked is not False else Ended.CUT
        if self.reason:
            return Ended.STOP
        return next((ended for words, ended in _WORDS if words.search(self.word)), Ended.STOP)

    def cut(self) -> ModelUnavailable:
        """Return the error for an answer that was cut. The provider's word is for the owner alone (rule 3.6)."""
        word = self.word if _WORD.fullmatch(self.word) else ""
        reason = BROKEN_OFF if word else CLOSED
        error = ModelUnavailable(f"{reason}; {self.reason=}, {self.complete=}, {self.marked=}", reason=reason)
        error.said = word
        return error
