"""The chat that a session answers in: its metadata for the channel, and whether it is private or a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.exceptions import BadInput
from sessions_app.models import ChatType
from sessions_app.models.session import WEB

MOST_META = 20  # keys of a session's metadata
LONGEST_META_NAME, LONGEST_META_TEXT = 64, 500  # characters
LARGEST_META_NUMBER = 2**63 - 1

# how the addresses of groups begin or end on chat services
_GROUPS: Mapping[str, tuple[str, ...]] = {"telegram": ("-",), "slack": ("C", "G"), "feishu": ("oc_",)}
_GROUP_ENDS: Mapping[str, tuple[str, ...]] = {"whatsapp": ("@g.us",)}


def chat_type_of(channel: str, address: str) -> ChatType:
    """Return `group` if the address has the form that its service uses for groups, else `private`."""
    starts, ends = _GROUPS.get(channel, ()), _GROUP_ENDS.get(channel, ())
    is_group = address.startswith(starts) or address.endswith(ends)
    return ChatType.GROUP if is_group else ChatType.PRIVATE


def check_chat_type(given: Any) -> str:
    """Return the value if it is `private` or `group`. BadInput `bad_chat_type`."""
    if given not in ChatType.values:
        names = " or ".join(ChatType.values)
        raise BadInput(f"unknown chat_type {str(given)[:40]!r}; use {names}", code="bad_chat_type")
    return str(given)


def check_channel_meta(channel: str, given: Any) -> dict[str, Any]:
    """Check the metadata of a chat, such as its topic or thread. BadInput `bad_channel_meta`."""
    if not isinstance(given, Mapping):
        raise _bad("must be an object, such as {'thread': 7}")
    if given and channel == WEB:
        raise _bad("must be empty on the channel 'web': its messages stay on the server")
    if len(given) > MOST_META:
        raise _bad(f"has {len(given)} keys; at most {MOST_META} are allowed")
    for name, value in given.items():
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_META_NAME or not _is_plain(name):
            raise _bad(f"has the key {str(name)[:40]!r}; use 1 to {LONGEST_META_NAME} printable characters")
        if not _is_value(value):
            raise _bad(
                f"has a bad value for {name!r}; use a text of at most {LONGEST_META_TEXT} printable characters, a whole"
                " number, true or false"
            )
    return dict(given)


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_META_TEXT and _is_plain(value)
    return isinstance(value, int) and abs(value) <= LARGEST_META_NUMBER


def _is_plain(text: str) -> bool:
    return text == "" or text.isprintable()


def _bad(what: str) -> BadInput:
    return BadInput(f"channel_meta {what}", code="bad_channel_meta")
