"""Removes the secrets of this process's environment, and of the work at hand, from texts: errors may repeat them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from urllib.parse import quote, unquote

HIDDEN = "***"
SHORTEST = 6  # characters; shorter values may be ordinary words
SHORTEST_PASSWORD = 10  # characters; a shorter password in an address may be a word such as `postgres`
_hidden: ContextVar[tuple[str, ...]] = ContextVar("hidden", default=())
_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)$")
_FORMER_KEYS = "SECRET_KEY_FALLBACKS"  # separated by commas
_SERVICES = "RONDO_NOTIFY"  # a JSON object of addresses that contain keys
_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@]*?:([^\s/?#]+)@", re.IGNORECASE)
_BOT = r"\d{6,16}(?::|%3A)[\w-]{30,}"  # a bot's token, also in an address of the Bot API
_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|ghp|glpat)[-_][\w*-]{6,}|\bkey[-_](?=[\w*-]{0,100}\d)[\w*-]{6,}|\bAIza[\w-]{6,}"
    rf"|(?<!\d){_BOT}"
    r"|\bBearer \S{6,}|\bBasic [\w+/=-]{12,}|(?<=://)[^\s/@]+(?=@)",
    re.IGNORECASE,
)
# each shape contains one of these, or looks like a bot's token: most log lines have neither, and the search is slow
_SIGNS = (
    *(f"{name}{dash}" for name in ("sk", "pk", "rk", "xai", "ghp", "glpat", "key") for dash in "-_"),
    *("aiza", "bearer ", "basic ", "://"),
)
_BOT_SHAPE = re.compile(_BOT, re.IGNORECASE)


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of an environment, longest first: variables named like keys, and passwords in addresses."""
    found: set[str] = set()
    for name, value in environ.items():
        if _NAME.search(name.upper()):
            found |= {value} if len(value) >= SHORTEST else set()
        elif name == _FORMER_KEYS:
            found.update(each for each in value.split(",") if len(each) >= SHORTEST)
        elif name == _SERVICES:
            found.update(_service_secrets(value))
        else:
            found.update(each for each in _passwords(value) if len(each) >= SHORTEST_PASSWORD)
    return tuple(sorted(found, key=len, reverse=True))


@contextmanager
def hiding(secrets: Iterable[str]) -> Iterator[None]:
    """Have `redact` remove these secrets, too, in this thread or task: those of the connections that it uses."""
    token = _hidden.set(tuple(secrets))
    try:
        yield
    finally:
        _hidden.reset(token)


def redact(text: str, secrets: Iterable[str] | None = None, *, more: Iterable[str] = ()) -> str:
    """Return the text without the secrets, by default those of this process, and without anything shaped like a key.

    ``more`` are further secrets, which are also removed in their percent-encoded form.
    """
    known = secrets_of(os.environ) if secrets is None else secrets
    for secret in (
        *known,
        *(form for each in (*_hidden.get(), *more) for form in (each, quote(each, safe=""))),
    ):
        text = text.replace(secret, HIDDEN)
    return _SHAPE.sub(HIDDEN, text) if _may_have_shape(text) else text


def _may_have_shape(text: str) -> bool:
    folded = text.casefold()
    return any(sign in folded for sign in _SIGNS) or _BOT_SHAPE.search(text) is not None


def _passwords(value: str) -> Iterator[str]:
    for password in _PASSWORD.findall(value):
        yield from {password, unquote(password)}


def _service_secrets(value: str) -> Iterator[str]:
    """The addresses and their parts, because a library's error may contain only a part."""
    with suppress(ValueError, AttributeError):
        for address in map(str, json.loads(value or "{}").values()):
            yield address
            for part in re.split(r"[/:@?&=]+", address):
                yield from {each for each in (part, unquote(part)) if len(each) >= SHORTEST_PASSWORD}
