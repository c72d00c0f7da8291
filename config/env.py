"""Configuration: every environment variable that Rondo reads, its type, default and meaning.

`docs/configuration.md` holds the same table; a test compares the two.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields
from typing import Any

from config import env_values as read
from config.env_variable import Variable
from config.env_variable import variable as _variable

SHORTEST_KEY = 16  # characters of SECRET_KEY


class EnvError(Exception):
    """A variable is missing or unreadable. The text is one line and names the variable."""


@dataclass(frozen=True, kw_only=True)
class Env:
    """The whole configuration of a process."""

    secret_key: str = _variable(
        "SECRET_KEY", read.text, None, "Signs browser sessions: random, 16 characters or more."
    )
    database_url: str = _variable(
        "DATABASE_URL",
        read.postgres,
        None,
        "PostgreSQL 15 or newer: `postgresql://user:password@host:5432/name`.",
    )
    celery_broker_url: str = _variable(
        "CELERY_BROKER_URL", read.broker, None, "Any Celery broker; tested on Redis, Valkey and RabbitMQ."
    )
    database_lock_url: str = _variable(
        "DATABASE_LOCK_URL",
        read.text,
        "",
        "Direct address of the same database for locks and LISTEN, when `DATABASE_URL` goes through a pooler."
        " Empty: `DATABASE_URL`.",
    )
    db_pool_size: int = _variable(
        "DB_POOL_SIZE",
        read.count,
        "10",
        "Most pooled database connections of one process.",
    )
    allowed_hosts: tuple[str, ...] = _variable(
        "ALLOWED_HOSTS",
        read.names,
        "localhost,127.0.0.1,[::1]",
        "Host names that the web process answers to.",
    )
    csrf_trusted_origins: tuple[str, ...] = _variable(
        "CSRF_TRUSTED_ORIGINS", read.names, "", "Origins such as `https://rondo.example` behind a proxy."
    )
    https: bool = _variable(
        "HTTPS",
        read.flag,
        "1",
        "Browsers come over HTTPS: secure cookies, `X-Forwarded-Proto` counts.",
    )
    debug: bool = _variable("DEBUG", read.flag, "0", "Django's debug pages. Never in production.")
    rondo_throttle: tuple[int, int] | None = _variable(
        "RONDO_THROTTLE",
        read.rate,
        "1200/min",
        "API requests of one user, of one hook, and of one address without a token: a number for each `s`, `min`, `h`"
        " or `d`. 0: no limit.",
    )
    static_root: str = _variable(
        "STATIC_ROOT",
        read.text,
        "",
        "Folder of `collectstatic`. Empty: files come from the packages.",
    )
    rondo_model: str = _variable(
        "RONDO_MODEL",
        read.model,
        "offline",
        "Model of agents that name none: `offline` or one such as `openai-chat:gpt-5`.",
    )
    openai_base_url: str = _variable(
        "OPENAI_BASE_URL", read.text, "", "A server that speaks OpenAI's protocol."
    )
    openai_api_key: str = _variable("OPENAI_API_KEY", read.text, "", "Key for it.")
    rondo_plugins: tuple[str, ...] = _variable(
        "RONDO_PLUGINS", read.modules, "", "Python modules imported at start; they register tools."
    )
    rondo_fetch_url: bool = _variable(
        "RONDO_FETCH_URL", read.flag, "1", "Agents have the tool `fetch_url`, which reads public web pages."
    )
    rondo_mcp: bool = _variable("RONDO_MCP", read.flag, "1", "Agents use the MCP servers of their settings.")
    rondo_mcp_hosts: tuple[str, ...] = _variable(
        "RONDO_MCP_HOSTS",
        read.names,
        "",
        "Hosts, `name` or `name:port`, where MCP servers may be though their addresses are not public.",
    )
    rondo_webhook_hosts: tuple[str, ...] = _variable(
        "RONDO_WEBHOOK_HOSTS",
        read.names,
        "",
        "Hosts, `name` or `name:port`, to which webhooks are sent though their addresses are not public.",
    )
    rondo_delivery_seconds: int = _variable(
        "RONDO_DELIVERY_SECONDS", read.count, "10", "Longest that one attempt of a delivery may take."
    )
    rondo_delivery_retry_seconds: tuple[int, ...] = _variable(
        "RONDO_DELIVERY_RETRY_SECONDS",
        read.counts,
        "5,30,120,600,1800,3600,7200,21600,43200",
        "Seconds before each further attempt of a delivery, give or take a fifth; after the last it is a dead letter.",
    )
    email_url: Mapping[str, Any] = _variable(
        "EMAIL_URL",
        read.mail_server,
        "",
        "Mail server of the channel `email`: `smtp://user:password@host:port`, `smtp+starttls://…` or `smtps://…`."
        " Empty: there is no such channel.",
    )
    default_from_email: str = _variable(
        "DEFAULT_FROM_EMAIL", read.text, "rondo@localhost", "Sender of the channel `email`."
    )
    rondo_notify: Mapping[str, str] = _variable(
        "RONDO_NOTIFY",
        read.services,
        "",
        "Chat services of the channel `notify` (extra `notify`), by the names that sessions use:"
        ' `{"team": "slack://…"}`, addresses as the library apprise spells them.',
    )
    rondo_heartbeat_broadcast_scope: str = _variable(
        "RONDO_HEARTBEAT_BROADCAST_SCOPE",
        read.scope,
        "agent",
        "Flag `heartbeat.broadcast_scope`. `session`: only its own windows are told what a session does.",
    )
    rondo_heartbeat_realtime_status_hint: bool = _variable(
        "RONDO_HEARTBEAT_REALTIME_STATUS_HINT",
        read.flag,
        "1",
        "Flag `heartbeat.realtime_status_hint`. 0: windows are not told that an update waits.",
    )
    rondo_heartbeat_routine_reflection: bool = _variable(
        "RONDO_HEARTBEAT_ROUTINE_REFLECTION",
        read.flag,
        "1",
        "Flag `heartbeat.routine_reflection`. 0: heartbeats register no routines.",
    )
    rondo_scheduler_cron_jobs: bool = _variable(
        "RONDO_SCHEDULER_CRON_JOBS",
        read.flag,
        "1",
        "Flag `scheduler.cron_jobs`. 0: isolated routines run inline, with the heartbeat.",
    )
    turn_shards: int = _variable(
        "TURN_SHARDS", read.count, "8", "Number of shard queues. The same in every process of a fleet."
    )
    turn_queues: tuple[str, ...] = _variable(
        "TURN_QUEUES",
        read.names,
        "",
        "Queues that this worker reads, such as `turns.0,turns.any`. Empty: all.",
    )
    automation_max_wait: int = _variable(
        "AUTOMATION_MAX_WAIT",
        read.count,
        "600",
        "Seconds after which a waiting automation goes before people.",
    )
    rondo_sweep_seconds: int = _variable(
        "RONDO_SWEEP_SECONDS", read.count, "5", "Seconds between two sweeps."
    )
    rondo_heartbeat_seconds: int = _variable(
        "RONDO_HEARTBEAT_SECONDS", read.count, "5", "Seconds between two signs of life of a worker."
    )
    rondo_worker_lost_seconds: int = _variable(
        "RONDO_WORKER_LOST_SECONDS",
        read.count,
        "15",
        "A worker silent for longer is lost: its turns are rescued.",
    )
    rondo_tool_grace_seconds: int = _variable(
        "RONDO_TOOL_GRACE_SECONDS",
        read.count,
        "30",
        "Seconds past its deadline after which a tool counts as hung.",
    )
    rondo_maintenance_seconds: int = _variable(
        "RONDO_MAINTENANCE_SECONDS", read.count, "3600", "Seconds between two rounds of maintenance."
    )
    rondo_context_tokens: int = _variable(
        "RONDO_CONTEXT_TOKENS",
        read.count,
        "32000",
        "Tokens of history that a model is shown at most. Over half of it, older messages become task state.",
    )
    rondo_window_messages: int = _variable(
        "RONDO_WINDOW_MESSAGES", read.count, "40", "Messages that are never taken for older ones."
    )
    rondo_keep_events_days: int = _variable(
        "RONDO_KEEP_EVENTS_DAYS", read.kept, "1", "Days that events are kept. 0, here and below: for ever."
    )
    rondo_keep_journals_days: int = _variable(
        "RONDO_KEEP_JOURNALS_DAYS", read.kept, "7", "Days that the journal of an ended turn is kept."
    )
    rondo_keep_turns_days: int = _variable(
        "RONDO_KEEP_TURNS_DAYS", read.kept, "90", "Days that an ended turn is kept. Its messages stay."
    )
    rondo_keep_turns_per_session: int = _variable(
        "RONDO_KEEP_TURNS_PER_SESSION", read.kept, "10000", "Turns kept of one session."
    )
    rondo_keep_runs_days: int = _variable(
        "RONDO_KEEP_RUNS_DAYS", read.kept, "90", "Days that an ended run is kept."
    )
    rondo_keep_runs_per_job: int = _variable(
        "RONDO_KEEP_RUNS_PER_JOB", read.kept, "1000", "Runs kept of one automation."
    )
    rondo_keep_scheduled_days: int = _variable(
        "RONDO_KEEP_SCHEDULED_DAYS",
        read.kept,
        "90",
        "Days that a scheduled message is kept that was sent, cancelled or failed.",
    )
    rondo_keep_mailbox_days: int = _variable(
        "RONDO_KEEP_MAILBOX_DAYS", read.kept, "30", "Days that an acknowledged or dropped update is kept."
    )
    rondo_keep_job_sessions_days: int = _variable(
        "RONDO_KEEP_JOB_SESSIONS_DAYS",
        read.kept,
        "14",
        "Days that the session of an ended background job is kept.",
    )
    rondo_keep_deliveries_days: int = _variable(
        "RONDO_KEEP_DELIVERIES_DAYS", read.kept, "90", "Days that an ended delivery is kept."
    )
    log_level: str = _variable("LOG_LEVEL", read.level, "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`.")
    log_format: str = _variable(
        "LOG_FORMAT", read.log_format, "text", "`text`, or `json`: an object per line."
    )


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
    """Names of every queue: people's sessions, automations, the one that everyone reads (rule 1.7), deliveries."""
    people = tuple(f"turns.{shard}" for shard in range(shards))
    automations = tuple(f"auto.{shard}" for shard in range(shards))
    return (*people, *automations, "turns.any", "deliveries")


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
