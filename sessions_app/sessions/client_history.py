"""The history that a program sent with a message, and how it is compared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from agent_core.types import Image, Role


@dataclass(frozen=True, kw_only=True)
class ClientHistory:
    """What a program sent. `said`: all messages of the person, the new one last, as they are compared; `text` and
    `images`: of the new one. `before`: roles and texts of all messages before it.

    `heard`: the program's copy of the answer before the new message, which only tells apart chats that began alike.
    `key`: the program's id of the chat, with its source; empty without one. `end_user`: an id of a person in the
    program. `repeats`: the program says that it sends the request again. `request_key`: the Idempotency-Key.
    """

    door: str
    said: tuple[str, ...]
    text: str
    images: tuple[Image, ...] = ()
    before: tuple[tuple[str, str], ...] = ()
    heard: str = ""
    key: str = ""
    end_user: str = ""
    repeats: bool = False
    request_key: str = ""

    def paths(self) -> list[str]:
        """The hash of the beginning, then one for each message with all before it."""
        found = [hashed("chat", self.key) if self.key else hashed("none", self.end_user)]
        for text in self.said:
            found.append(hashed(found[-1], text))
        return found


def messages_after(before: tuple[tuple[str, str], ...], known: int) -> list[tuple[str, str]]:
    """The messages after the first `known` ones of the person and their answers."""
    found, said = [], 0
    for role, text in before:
        said += role == Role.USER
        if said > known or not known:
            found.append((role, text))
    return found


def hashed(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
