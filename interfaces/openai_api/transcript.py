"""The text of a running answer, and what of it is still to be sent: what a client has cannot be taken back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLOSING_TAGS = ("</think>", "</thinking>")


class Transcript:
    """The text of a turn as its deltas and snapshots tell it; see "Live text" in docs/api.md."""

    def __init__(self) -> None:
        self._of = (0, 0, 0)  # attempt, step, try
        self._steps: list[str] = []

    @property
    def text(self) -> str:
        """All of it, with an empty line between the texts of two model calls, as the finished answer has it."""
        return "\n\n".join(text.strip() for text in self._steps if text.strip())

    def replace(self, snapshot: Mapping[str, Any]) -> None:
        """Take a snapshot: all of the text so far."""
        earlier = snapshot.get("earlier", "")
        self._of = _of(snapshot)
        self._steps = [earlier, snapshot["text"][len(earlier) :]]

    def add(self, delta: Mapping[str, Any]) -> None:
        """Take a piece; one of a new try replaces the text of its step, one of a new attempt everything."""
        now, before = _of(delta), self._of
        if now < before:
            return
        if now[0] != before[0] or not self._steps:
            self._steps = [delta["text"]]
        elif now[1] != before[1]:
            self._steps.append(delta["text"])
        elif now[2] != before[2]:
            self._steps[-1] = delta["text"]
        else:
            self._steps[-1] += delta["text"]
        self._of = now


def _of(content: Mapping[str, Any]) -> tuple[int, int, int]:
    return content["attempt"], content["step"], content["try"]


def unsent(text: str, sent: str, *, whole: bool = False) -> str | None:
    """What of `text` follows `sent`, whatever the white space; None when it does not begin with it.

    A text that is still shorter than `sent` has nothing unsent, unless it is the `whole` one. Nothing of a whole one is
    unsent either if `sent` has it after reasoning that was not known as such before its closing tag came.
    """
    if text.startswith(sent):
        return text[len(sent) :]
    before, said, after = sent.rpartition(text.strip() or sent)
    if whole and said and not after.strip() and before.rstrip().lower().endswith(CLOSING_TAGS):
        return ""
    at = 0
    for sign in sent:
        if sign.isspace():
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return None if whole else ""
        if text[at] != sign:
            return None
        at += 1
    return text[at:]
