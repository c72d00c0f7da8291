"""Decides whether a heartbeat's reply is delivered or suppressed (rule 5.4)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

TOKEN: Final = "HEARTBEAT_OK"  # noqa: S105 - a word of the protocol, no secret
_AROUND: Final = "*_~`'\"“”‘’«» \t\r\n"  # emphasis, quotes, backticks  # noqa: RUF001
_FINAL: Final = _AROUND + ".,;:!?…。，！？；："  # noqa: RUF001
_JOINING: Final = frozenset("=$/\\@#%&+")


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatReply:
    """A reply without the token, and whether it is delivered."""

    deliver: bool
    text: str


def read_heartbeat_reply(reply: str, ack_max_chars: int) -> HeartbeatReply:
    """Suppress a reply that starts or ends with the token and has at most `ack_max_chars` beside it."""
    text = reply.strip()
    rest = _without_token(text)
    if rest is None:
        return HeartbeatReply(deliver=bool(text), text=text)
    return HeartbeatReply(deliver=len(rest) > ack_max_chars, text=rest)


def _without_token(text: str) -> str | None:
    """The text without the token at its start and end; None if it is at neither."""
    after = _after_token(text)
    before = _before_token(text if after is None else after)
    return after if before is None else before


def _after_token(text: str) -> str | None:
    stripped = text.lstrip(_AROUND)
    rest = stripped.removeprefix(TOKEN)
    if rest == stripped or _continues_word(rest):
        return None
    return rest.lstrip(_FINAL).rstrip()


def _before_token(text: str) -> str | None:
    stripped = text.rstrip(_FINAL)
    rest = stripped.removesuffix(TOKEN)
    if rest == stripped or _continues_word(rest[::-1]):
        return None
    return rest.rstrip(_AROUND).lstrip()


def _continues_word(beside: str) -> bool:
    """Whether the characters beside the token, the nearest first, make it part of a word, name, path or value."""
    nearest = beside[:1]
    if nearest in _JOINING or unicodedata.category(nearest or " ")[0] in "LNM":
        return True
    return nearest in ("_", "-") and beside.lstrip("_-")[:1].isalnum()
