"""How the values of environment variables are read. Each raises ValueError with what it must be."""

import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit

MOST_KEPT = 1_000_000  # days or rows
_RATE = re.compile(r"([0-9]{1,9})/(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_MAIL_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
_SERVICE = re.compile(r"[a-z0-9_-]{1,40}")
_MODEL = re.compile(r"offline|[^\s:]+:\S+")


def text(raw: str) -> str:
    """Whatever it says."""
    return raw


def flag(raw: str) -> bool:
    """True or false."""
    value = raw.lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ValueError("must be 1 or 0")


def count(raw: str) -> int:
    """A whole number of at least 1."""
    value = int(raw) if raw.isascii() and raw.isdigit() else 0
    if value < 1:
        raise ValueError("must be a whole number of at least 1")
    return value


def kept(raw: str) -> int:
    """How long or how many to keep; 0: for ever."""
    value = int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 10 else -1
    if not 0 <= value <= MOST_KEPT:
        raise ValueError(f"must be a whole number from 0 (for ever) to {MOST_KEPT}")
    return value


def counts(raw: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 between commas."""
    return tuple(count(part) for part in names(raw))


def mail_server(raw: str) -> dict[str, Any]:
    """Django's mail settings. What is wrong is told without what it says: it holds a password."""
    try:
        parts = urlsplit(raw or "smtp:")
        port = parts.port
    except ValueError:
        raise ValueError("must be smtp://user:password@host:port, and cannot be read") from None
    if parts.scheme not in _MAIL_PORTS or (raw and not parts.hostname) or parts.path.strip("/"):
        raise ValueError("must be smtp://user:password@host:port, smtp+starttls://… or smtps://…")
    return {
        "EMAIL_HOST": parts.hostname or "",
        "EMAIL_PORT": port or _MAIL_PORTS[parts.scheme],
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_TLS": parts.scheme == "smtp+starttls",
        "EMAIL_USE_SSL": parts.scheme == "smtps",
    }


def services(raw: str) -> dict[str, str]:
    """A JSON object of texts by name. What is wrong is told without what it says: it holds keys."""
    try:
        found = json.loads(raw or "{}")
    except ValueError:
        raise ValueError("must be a JSON object, and cannot be read") from None
    texts = isinstance(found, dict) and all(isinstance(each, str) and each for each in found.values())
    if not texts or not all(_SERVICE.fullmatch(name) for name in found):
        raise ValueError('must be a JSON object such as {"team": "…"}: names of a-z, 0-9, - and _, and texts')
    return dict(found)


def names(raw: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name for name in (part.strip() for part in raw.split(",")) if name)


def modules(raw: str) -> tuple[str, ...]:
    """Names of Python modules between commas."""
    found = names(raw)
    for name in found:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"must be names of Python modules, which {name!r} is not")
    return found


def model(raw: str) -> str:
    """A model string."""
    if not _MODEL.fullmatch(raw):
        raise ValueError(f"must be offline or provider:name, such as openai-chat:gpt-5, not {raw!r}")
    return raw


def postgres(raw: str) -> str:
    """The address of a PostgreSQL."""
    if not raw.startswith(("postgresql://", "postgres://")):
        raise ValueError("must start with postgresql://")
    return raw


def broker(raw: str) -> str:
    """The address of a broker."""
    if "://" not in raw:
        raise ValueError("must be an address such as redis://host:6379/0 or amqp://host//")
    return raw


def rate(raw: str) -> tuple[int, int] | None:
    """So many in so many seconds; None: no limit."""
    if raw == "0":
        return None
    found = _RATE.fullmatch(raw)
    if not found or int(found[1]) < 1:
        raise ValueError("must be such as 1200/min (s, min, h or d), or 0 for no limit")
    return int(found[1]), _SECONDS[found[2]]


def scope(raw: str) -> str:
    """Whose windows are told."""
    if raw not in {"agent", "session"}:
        raise ValueError("must be agent or session")
    return raw


def level(raw: str) -> str:
    """A log level."""
    if raw not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise ValueError("must be DEBUG, INFO, WARNING or ERROR")
    return raw


def log_format(raw: str) -> str:
    """A log format."""
    if raw not in {"text", "json"}:
        raise ValueError("must be text or json")
    return raw
