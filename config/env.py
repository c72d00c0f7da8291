"""Configuration: every environment variable that Rondo reads, its type and default.

`docs/configuration.md` says what each means, in the same order; a test compares names and defaults. A reader takes the
text of a variable and raises ValueError if it is invalid.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from config import installation
from interfaces import protocols

LARGEST_COUNT = 1_000_000  # days, rows or turns
FLAGS = {  # the values that each feature flag may have, its default first
    "automations.preflight": ("1", "0"),
    "heartbeat.broadcast_scope": ("agent", "session"),
    "heartbeat.realtime_status_hint": ("1", "0"),
    "heartbeat.routine_reflection": ("1", "0"),
    "scheduler.cron_jobs": ("1", "0"),
    "tools.fetch_url": ("1", "0"),
    "tools.mcp": ("1", "0"),
}
_RATE = re.compile(r"([0-9]{1,9})/(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_MAIL_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
_SERVICE = re.compile(r"[a-z0-9_-]{1,40}")
_MODEL = re.compile(r"offline|[^\s:]+:\S+")

SHORTEST_KEY = 16  # characters of SECRET_KEY


class EnvError(Exception):
    """A variable is missing or invalid. The text is one line and names the variable."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """An environment variable: `read` raises ValueError for an invalid value; without `default` it is required."""

    name: str
    read: Callable[[str], Any]
    default: str | None


def variable(read: Callable[[str], Any], default: str | None) -> Any:
    """A field of `Env` that is read from the environment variable of the same name."""
    return field(metadata={"read": read, "default": default})


def price_file(raw: str) -> dict[str, Any]:
    """Read the JSON file of this name: the operator's prices by `<provider>:<model>`."""
    from agent_core.spending import read_prices

    try:
        prices = read_prices(json.loads(Path(raw).read_text()), "<provider>:<model>") if raw else {}
    except OSError as error:
        raise ValueError(f"cannot be read: {raw}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{raw}: {error}") from None
    if wrong := next((name for name in prices if ":" not in name), None):
        raise ValueError(f"{raw}: {wrong[:100]!r} is not <provider>:<model>")
    return prices


def boolean(raw: str) -> bool:
    """1, true, yes, on; 0, false, no, off."""
    value = raw.lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ValueError(f"must be 1 or 0, not {raw!r}")


def positive_int(raw: str) -> int:
    """A whole number of at least 1."""
    value = int(raw) if raw.isascii() and raw.isdigit() else 0
    if value < 1:
        raise ValueError(f"must be a whole number of at least 1, not {raw!r}")
    return value


def count_or(meaning_of_zero: str) -> Callable[[str], int]:
    """A reader of a limit, in which 0 has a meaning of its own."""

    def read(raw: str) -> int:
        value = int(raw) if raw.isascii() and raw.isdigit() and len(raw) < 10 else -1
        if not 0 <= value <= LARGEST_COUNT:
            raise ValueError(
                f"must be a whole number from 0 ({meaning_of_zero}) to {LARGEST_COUNT}, not {raw!r}"
            )
        return value

    return read


def flags(raw: str) -> dict[str, Any]:
    """`name=value` of feature flags, separated by commas. Returns the value of each flag: a text or a bool."""
    found = {name: allowed[0] for name, allowed in FLAGS.items()}
    for each in names(raw):
        name, _, value = each.partition("=")
        if value not in FLAGS.get(name, ()):
            known = ", ".join(f"{flag}={'|'.join(allowed)}" for flag, allowed in FLAGS.items())
            raise ValueError(f"has an unknown flag or value {each!r}; use {known}")
        found[name] = value
    return {name: value == "1" if value in {"0", "1"} else value for name, value in found.items()}


def one_of(*allowed: str) -> Callable[[str], str]:
    """A reader that accepts these texts only."""

    def read(raw: str) -> str:
        if raw not in allowed:
            raise ValueError(f"must be {' or '.join(allowed)}, not {raw!r}")
        return raw

    return read


def mail_server(raw: str) -> dict[str, Any]:
    """A mail server; without one, `host` is empty. Errors do not repeat the value, since it holds a password."""
    try:
        parts = urlsplit(raw or "smtp:")
        port = parts.port
    except ValueError:
        raise ValueError("is not a valid URL; it must be like smtp://user:password@host:port") from None
    if parts.scheme not in _MAIL_PORTS or (raw and not parts.hostname) or parts.path.strip("/"):
        raise ValueError("must be smtp://user:password@host:port, smtp+starttls://… or smtps://…")
    return {
        "host": parts.hostname or "",
        "port": port or _MAIL_PORTS[parts.scheme],
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "starttls": parts.scheme == "smtp+starttls",
        "tls": parts.scheme == "smtps",
    }


def notify_services(raw: str) -> dict[str, str]:
    """A JSON object of Apprise URLs by name. Errors do not repeat the value, since it holds keys."""
    try:
        found = json.loads(raw or "{}")
    except ValueError:
        raise ValueError("must be a JSON object, but is not valid JSON") from None
    texts = isinstance(found, dict) and all(isinstance(each, str) and each for each in found.values())
    if not texts or not all(_SERVICE.fullmatch(name) for name in found):
        raise ValueError('must be a JSON object such as {"team": "…"}: names of a-z, 0-9, - and _, and texts')
    if found and find_spec("apprise") is None:
        raise ValueError("needs the package apprise, which is not installed (`pip install apprise`)")
    return dict(found)


def web_address(raw: str) -> str:
    """The address of a server: http or https with a host, without user name, query and fragment."""
    parts = urlsplit(raw)
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not plain:
        raise ValueError("must be an address such as https://bots.example, without user name and query")
    return raw


def web_url(raw: str) -> str:
    """An http or https URL with a host, or nothing."""
    parts = urlsplit(raw)
    if raw and (parts.scheme not in {"http", "https"} or not parts.hostname):
        raise ValueError("must be a URL such as https://example.org/ping")
    return raw


def origins(raw: str) -> tuple[str, ...]:
    """Origins of browsers, separated by commas; or `*`."""
    given = tuple(dict.fromkeys(names(raw)))
    if given == ("*",):
        return given
    for each in given:
        parts = urlsplit(each)
        try:
            is_origin = (
                each == f"{parts.scheme}://{parts.netloc}" and bool(parts.hostname) and parts.port != 0
            )
        except ValueError:  # a port that is none
            is_origin = False
        if not is_origin or "@" in each or "*" in each:
            raise ValueError(f"must be origins such as https://app.example without a path, or *, not {each}")
    return tuple(each.lower() for each in given)


def names(raw: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name for name in (part.strip() for part in raw.split(",")) if name)


def former_keys(raw: str) -> tuple[str, ...]:
    """Keys separated by commas. Each must be as long as the present one, since people can also sign in with it."""
    found = names(raw)
    if any(len(key) < SHORTEST_KEY for key in found):
        raise ValueError(f"is too short: each must be a random text of {SHORTEST_KEY} characters or more")
    return found


def networks(raw: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses and networks separated by commas."""
    found = []
    for name in names(raw):
        try:
            found.append(ip_network(name))
        except ValueError:
            raise ValueError(f"must be addresses or networks such as 10.0.0.0/8, not {name!r}") from None
    return tuple(found)


def module_names(raw: str) -> tuple[str, ...]:
    """Names of Python modules separated by commas."""
    found = names(raw)
    for name in found:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"must be names of Python modules, not {name!r}")
    return found


def model_name(raw: str) -> str:
    """The name of a model: `offline` or `provider:name`."""
    if not _MODEL.fullmatch(raw):
        raise ValueError(f"must be offline or provider:name, such as openai-chat:gpt-5, not {raw!r}")
    return raw


def offered_models(raw: str) -> tuple[str, ...]:
    """Names of models separated by commas; `provider:*`: all of this provider."""
    found = names(raw)
    for each in found:
        model_name(f"{each.removesuffix('*')}any" if each.endswith(":*") else each)
    return found


def postgres_url(raw: str) -> str:
    """The URL of a PostgreSQL database."""
    if not raw.startswith(("postgresql://", "postgres://")):
        raise ValueError("must start with postgresql://")
    return raw


def broker_url(raw: str) -> str:
    """The URL of a broker."""
    if "://" not in raw:
        raise ValueError("must be a URL such as redis://host:6379/0 or amqp://host//")
    return raw


def rate(raw: str) -> tuple[int, int] | None:
    """The allowed number of requests and its period in seconds, or None for no limit."""
    if raw == "0":
        return None
    found = _RATE.fullmatch(raw)
    if not found or int(found[1]) < 1:
        raise ValueError(f"must be like 1200/min (s, min, h or d), or 0 for no limit, not {raw!r}")
    return int(found[1]), _SECONDS[found[2]]


@dataclass(frozen=True, kw_only=True)
class Env:
    """The configuration of a process. Each field holds the environment variable of its name in capital letters."""

    secret_key: str = variable(str, None)
    secret_key_fallbacks: tuple[str, ...] = variable(former_keys, "")
    database_url: str = variable(postgres_url, None)
    celery_broker_url: str = variable(broker_url, None)
    database_lock_url: str = variable(str, "")
    db_pool_size: int = variable(positive_int, "10")
    allowed_hosts: tuple[str, ...] = variable(names, "localhost,127.0.0.1,[::1]")
    csrf_trusted_origins: tuple[str, ...] = variable(names, "")
    https: bool = variable(boolean, "1")
    debug: bool = variable(boolean, "0")
    static_root: str = variable(str, "")
    rondo_model: str = variable(model_name, "offline")
    rondo_models: tuple[str, ...] = variable(offered_models, "")
    rondo_prices: Mapping[str, Any] = variable(price_file, "")
    openai_base_url: str = variable(str, "")
    openai_api_key: str = variable(str, "")
    rondo_plugins: tuple[str, ...] = variable(module_names, "")
    rondo_mcp_hosts: tuple[str, ...] = variable(names, "")
    rondo_connection_hosts: tuple[str, ...] = variable(names, "")
    rondo_this_machine: bool = variable(boolean, "0")
    rondo_webhook_hosts: tuple[str, ...] = variable(names, "")
    rondo_doors: tuple[str, ...] = variable(protocols.read_protocols, ",".join(protocols.PROTOCOLS))
    rondo_cors_origins: tuple[str, ...] = variable(origins, "")
    email_url: Mapping[str, Any] = variable(mail_server, "")
    default_from_email: str = variable(str, "rondo@localhost")
    rondo_notify: Mapping[str, str] = variable(notify_services, "")
    rondo_telegram_url: str = variable(web_address, "https://api.telegram.org")
    turn_shards: int = variable(positive_int, "8")
    turn_queues: tuple[str, ...] = variable(names, "")
    rondo_context_tokens: int = variable(positive_int, "32000")
    rondo_keep_days: int = variable(count_or("for ever"), "90")
    rondo_flags: Mapping[str, Any] = variable(flags, "")
    log_level: str = variable(one_of("DEBUG", "INFO", "WARNING", "ERROR"), "INFO")
    log_format: str = variable(one_of("text", "json"), "text")
    rondo_beat_ping_url: str = variable(web_url, "")
    rondo_sentry_dsn: str = variable(web_url, "")
    rondo_traces: bool = variable(boolean, "0")
    rondo_throttle: tuple[int, int] | None = variable(rate, "1200/min")
    rondo_turns_per_user: int = variable(count_or("no limit"), "40")
    rondo_watchers: tuple[IPv4Network | IPv6Network, ...] = variable(networks, "127.0.0.0/8,::1")
    rondo_watcher_token: str = variable(str, "")


def variables() -> tuple[Variable, ...]:
    """All environment variables, in the order of the docs."""
    return tuple(Variable(name=each.name.upper(), **each.metadata) for each in fields(Env))


def load(environ: Mapping[str, str]) -> Env:
    """Read the configuration; an empty value counts as not set.

    Raises EnvError that names the first invalid variable, or all missing ones.
    """
    known = variables()
    missing = [each.name for each in known if each.default is None and not environ.get(each.name, "").strip()]
    if missing:
        raise EnvError(f"not set: {', '.join(missing)} ({installation.SETTINGS_HINT})")
    env = Env(**{each.name.lower(): _value(each, environ) for each in known})
    _check_queues(env.turn_queues, env.turn_shards)
    _check_key(env.secret_key, environ, debug=env.debug)
    return env


def _check_queues(queues: Iterable[str], shards: int) -> None:
    """Refuse names of queues that do not exist. EnvError."""
    if unknown := sorted(set(queues_of(queues, shards)) - set(all_queues(shards))):
        raise EnvError(f"TURN_QUEUES names unknown queues: {', '.join(unknown)} (TURN_SHARDS is {shards})")


def _check_key(key: str, environ: Mapping[str, str], *, debug: bool) -> None:
    """Refuse a key that can be guessed, since it lets anybody sign in. DEBUG and pytest runs may have a short one."""
    if len(key) < SHORTEST_KEY and not debug and "PYTEST_VERSION" not in environ:
        raise EnvError(
            f"SECRET_KEY is too short: it must be a random text of {SHORTEST_KEY} characters or more"
        )


def _value(variable: Variable, environ: Mapping[str, str]) -> Any:
    raw = environ.get(variable.name, "").strip() or variable.default or ""
    try:
        return variable.read(raw)
    except ValueError as error:
        raise EnvError(f"{variable.name} {error}") from None


def set_placeholders(environ: MutableMapping[str, str]) -> None:
    """Set missing required variables to values that connect to nothing, for `help` and type checks."""
    environ.setdefault("SECRET_KEY", "placeholder-that-signs-nothing")
    environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    environ.setdefault("CELERY_BROKER_URL", "memory://")


def all_queues(shards: int) -> tuple[str, ...]:
    """Names of all queues (rule 1.7)."""
    return queues_of(("turns", "auto"), shards)


def queues_of(names: Iterable[str], shards: int) -> tuple[str, ...]:
    """Names of queues. `turns` (people's turns) and `auto` (all other work) stand for all queues of the group."""
    numbers = (*map(str, range(shards)), "any")
    groups = {
        "turns": [f"turns.{number}" for number in numbers],
        "auto": [*(f"auto.{number}" for number in numbers), "deliveries"],
    }
    return tuple(queue for name in names for queue in groups.get(name, [name]))
