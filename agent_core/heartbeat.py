"""Suppress or deliver: whether a heartbeat's reply is worth telling (rule 5.4)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

TOKEN: Final = "HEARTBEAT_OK"  # noqa: S105 - a word of the protocol, no secret
_AROUND: Final = "*_~`'\"“”‘’«» \t\r\n"  # emphasis, quotes, backticks  # noqa: RUF001
_FINAL: Final = _AROUND + ".,;:!?…。，！？；："  # noqa: RUF001
_TYING: Final = frozenset("=$/\\@#%&+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What a reply comes to: `text` without the token, and whether people are told of it."""

    deliver: bool
    text: str


def judge(reply: str, ack_max_chars: int) -> Reply:
    """Read a heartbeat's reply. With the token at an end and little beside it nobody is told."""
    text = reply.strip()
    rest = _without_token(text)
    if rest is None:
        return Reply(deliver=bool(text), text=text)
    return Reply(deliver=len(rest) > ack_max_chars, text=rest)


def _without_token(text: str) -> str | None:
    """The text without the token at its start and its end; None when it stands at neither."""
    begun = _begins(text)
    ended = _ends(text if begun is None else begun)
    return begun if ended is None else ended


def _begins(text: str) -> str | None:
    """What follows a token at the start."""
    opened = text.lstrip(_AROUND)
    rest = opened.removeprefix(TOKEN)
    if rest == opened or _joined(rest):
        return None
    return rest.lstrip(_FINAL).rstrip()


def _ends(text: str) -> str | None:
    """What comes before a token at the end."""
    closed = text.rstrip(_FINAL)
    rest = closed.removesuffix(TOKEN)
    if rest == closed or _joined(rest[::-1]):
        return None
    return rest.rstrip(_AROUND).lstrip()


def _joined(beside: str) -> bool:
    """Whether what stands beside the token, the nearer first, makes another word, a name, a path or a value of it."""
    nearer = beside[:1]
    if nearer in _TYING or unicodedata.category(nearer or " ")[0] in "LNM":
        return True
    return nearer in ("_", "-") and beside.lstrip("_-")[:1].isalnum()
