"""Configuration: every environment variable that Rondo reads, its type, default and meaning.

`docs/configuration.md` holds the same table; a test compares the two.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from typing import Any

SHORTEST_KEY = 16  # characters of SECRET_KEY
_MODEL = re.compile(r"offline|[^\s:]+:\S+")


class EnvError(Exception):
    """A variable is missing or unreadable. The text is one line and names the variable."""


def _text(raw: str) -> str:
    return raw


def _flag(raw: str) -> bool:
    value = raw.lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ValueError("must be 1 or 0")


def _count(raw: str) -> int:
    value = int(raw) if raw.isascii() and raw.isdigit() else 0
    if value < 1:
        raise ValueError("must be a whole number of at least 1")
    return value


def _names(raw: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in raw.split(",")) if name)


def _modules(raw: str) -> tuple[str, ...]:
    names = _names(raw)
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"must be names of Python modules, which {name!r} is not")
    return names


def _model(raw: str) -> str:
    if not _MODEL.fullmatch(raw):
        raise ValueError(f"must be offline or provider:name, such as openai-chat:gpt-5, not {raw!r}")
    return raw


def _postgres(raw: str) -> str:
    if not raw.startswith(("postgresql://", "postgres://")):
        raise ValueError("must start with postgresql://")
    return raw


def _broker(raw: str) -> str:
    if "://" not in raw:
        raise ValueError("must be an address such as redis://host:6379/0 or amqp://host//")
    return raw


def _level(raw: str) -> str:
    if raw not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise ValueError("must be DEBUG, INFO, WARNING or ERROR")
    return raw


def _log_format(raw: str) -> str:
    if raw not in {"text", "json"}:
        raise ValueError("must be text or json")
    return raw


@dataclass(frozen=True, kw_only=True)
class Variable:
    """How one variable is read: `default` None means that it must be set."""

    name: str
    read: Callable[[str], Any]
    default: str | None
    meaning: str


def _variable(name: str, read: Callable[[str], Any], default: str | None, meaning: str) -> Any:
    return field(metadata={"variable": Variable(name=name, read=read, default=default, meaning=meaning)})


@dataclass(frozen=True, kw_only=True)
class Env:
    """The whole configuration of a process."""

    secret_key: str = _variable(
        "SECRET_KEY", _text, None, "Signs browser sessions: random, 16 characters or more."
    )
    database_url: str = _variable(
        "DATABASE_URL",
        _postgres,
        None,
        "PostgreSQL 15 or newer: `postgresql://user:password@host:5432/name`.",
    )
    celery_broker_url: str = _variable(
        "CELERY_BROKER_URL", _broker, None, "Any Celery broker; tested on Redis, Valkey and RabbitMQ."
    )
    database_lock_url: str = _variable(
        "DATABASE_LOCK_URL",
        _text,
        "",
        "Direct address of the same database for locks and LISTEN, when `DATABASE_URL` goes through a pooler."
        " Empty: `DATABASE_URL`.",
    )
    db_pool_size: int = _variable(
        "DB_POOL_SIZE",
        _count,
        "10",
        "Most pooled database connections of one process.",
    )
    allowed_hosts: tuple[str, ...] = _variable(
        "ALLOWED_HOSTS", _names, "localhost,127.0.0.1,[::1]", "Host names that the web process answers to."
    )
    csrf_trusted_origins: tuple[str, ...] = _variable(
        "CSRF_TRUSTED_ORIGINS", _names, "", "Origins such as `https://rondo.example` behind a proxy."
    )
    https: bool = _variable(
        "HTTPS",
        _flag,
        "1",
        "Browsers come over HTTPS: secure cookies, `X-Forwarded-Proto` counts.",
    )
    debug: bool = _variable("DEBUG", _flag, "0", "Django's debug pages. Never in production.")
    static_root: str = _variable(
        "STATIC_ROOT",
        _text,
        "",
        "Folder of `collectstatic`. Empty: files come from the packages.",
    )
    rondo_model: str = _variable(
        "RONDO_MODEL",
        _model,
        "offline",
        "Model of agents that name none: `offline` or one such as `openai-chat:gpt-5`.",
    )
    openai_base_url: str = _variable("OPENAI_BASE_URL", _text, "", "A server that speaks OpenAI's protocol.")
    openai_api_key: str = _variable("OPENAI_API_KEY", _text, "", "Key for it.")
    rondo_plugins: tuple[str, ...] = _variable(
        "RONDO_PLUGINS", _modules, "", "Python modules imported at start; they register tools."
    )
    turn_shards: int = _variable(
        "TURN_SHARDS", _count, "8", "Number of shard queues. The same in every process of a fleet."
    )
    turn_queues: tuple[str, ...] = _variable(
        "TURN_QUEUES",
        _names,
        "",
        "Queues that this worker reads, such as `turns.0,turns.any`. Empty: all.",
    )
    automation_max_wait: int = _variable(
        "AUTOMATION_MAX_WAIT",
        _count,
        "600",
        "Seconds after which a waiting automation goes before people.",
    )
    rondo_sweep_seconds: int = _variable("RONDO_SWEEP_SECONDS", _count, "5", "Seconds between two sweeps.")
    rondo_heartbeat_seconds: int = _variable(
        "RONDO_HEARTBEAT_SECONDS", _count, "5", "Seconds between two signs of life of a worker."
    )
    rondo_worker_lost_seconds: int = _variable(
        "RONDO_WORKER_LOST_SECONDS",
        _count,
        "15",
        "A worker silent for longer is lost: its turns are rescued.",
    )
    rondo_tool_grace_seconds: int = _variable(
        "RONDO_TOOL_GRACE_SECONDS",
        _count,
        "30",
        "Seconds past its deadline after which a tool counts as hung.",
    )
    log_level: str = _variable("LOG_LEVEL", _level, "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`.")
    log_format: str = _variable("LOG_FORMAT", _log_format, "text", "`text`, or `json`: an object per line.")


def variables() -> tuple[tuple[str, Variable], ...]:
    """Each variable with the attribute of `Env` that holds it, in the order of the docs."""
    return tuple((each.name, each.metadata["variable"]) for each in fields(Env))


def load(environ: Mapping[str, str]) -> Env:
    """Read the configuration; an empty value counts as not set.

    Raises EnvError that names the first bad variable, or all missing ones.
    """
    missing = [v.name for _, v in variables() if v.default is None and not environ.get(v.name, "").strip()]
    if missing:
        raise EnvError(f"not set: {', '.join(missing)} (see docs/configuration.md, or use `manage.py up`)")
    values = {attribute: _value(variable, environ) for attribute, variable in variables()}
    env = Env(**values)
    _check_queues(env)
    _check_key(env, environ)
    return env


def _value(variable: Variable, environ: Mapping[str, str]) -> Any:
    raw = environ.get(variable.name, "").strip() or variable.default or ""
    try:
        return variable.read(raw)
    except ValueError as error:
        raise EnvError(f"{variable.name} {error}") from None


def all_queues(shards: int) -> tuple[str, ...]:
    """Names of every queue: people's sessions, automations, and the one that everyone reads (rule 1.7)."""
    people = tuple(f"turns.{shard}" for shard in range(shards))
    automations = tuple(f"auto.{shard}" for shard in range(shards))
    return (*people, *automations, "turns.any")


def _check_queues(env: Env) -> None:
    unknown = sorted(set(env.turn_queues) - set(all_queues(env.turn_shards)))
    if unknown:
        raise EnvError(
            f"TURN_QUEUES names unknown queues: {', '.join(unknown)} (TURN_SHARDS is {env.turn_shards})"
        )


def _check_key(env: Env, environ: Mapping[str, str]) -> None:
    """A key that can be guessed lets anybody sign in. Debugging and test runs (pytest) may have one."""
    if len(env.secret_key) < SHORTEST_KEY and not env.debug and "PYTEST_VERSION" not in environ:
        raise EnvError(f"SECRET_KEY is too short: it must be random, {SHORTEST_KEY} characters or more")


def set_placeholders(environ: MutableMapping[str, str]) -> None:
    """Fill what is required with values that reach nothing: for `help` and type checks."""
    environ.setdefault("SECRET_KEY", "placeholder-that-signs-nothing")
    environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    environ.setdefault("CELERY_BROKER_URL", "memory://")
