"""Configuration: every environment variable that Rondo reads, its type, default and meaning.

`docs/configuration.md` holds the same table; a test compares the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from config import env_values as read
from config.env_values import Variable
from config.env_values import variable as _variable
from interfaces import doors


@dataclass(frozen=True, kw_only=True)
class Env:
    """The configuration of a process. Each attribute holds the variable of its name in capital letters."""

    secret_key: str = _variable(str, None, "Signs browser sessions. A random text of 16 characters or more.")
    secret_key_fallbacks: tuple[str, ...] = _variable(
        read.former_keys, "", "Former values of `SECRET_KEY`, by commas: what was made with them stays valid."
    )
    database_url: str = _variable(
        read.postgres_url, None, "PostgreSQL 15 or newer: `postgresql://user:password@host:5432/name`."
    )
    celery_broker_url: str = _variable(
        read.broker_url, None, "Any Celery broker; tested on Redis, Valkey and RabbitMQ."
    )
    database_lock_url: str = _variable(
        str,
        "",
        "Direct address of the same database for locks and LISTEN, if `DATABASE_URL` goes through a "
        "pooler. Empty: `DATABASE_URL`. If they differ, no statement is prepared on the server.",
    )
    db_pool_size: int = _variable(
        read.positive_int, "10", "Maximum number of pooled database connections per process."
    )
    allowed_hosts: tuple[str, ...] = _variable(
        read.names, "localhost,127.0.0.1,[::1]", "Host names under which the web process accepts requests."
    )
    csrf_trusted_origins: tuple[str, ...] = _variable(
        read.names, "", "Trusted origins behind a proxy, such as `https://rondo.example`."
    )
    https: bool = _variable(
        read.boolean, "1", "Browsers use HTTPS: cookies are secure, and `X-Forwarded-Proto` is trusted."
    )
    debug: bool = _variable(read.boolean, "0", "Django's debug pages. Never in production.")
    static_root: str = _variable(
        str, "", "Folder that `collectstatic` fills. Empty: static files are served from their packages."
    )
    rondo_model: str = _variable(
        read.model_name,
        "offline",
        "Model of agents that name none: `offline`, or a model such as `openai-chat:gpt-5`.",
    )
    rondo_models: tuple[str, ...] = _variable(
        read.offered_models,
        "",
        "Models of providers with keys in this environment that users may give their agents, beside `RONDO_MODEL`: "
        "by commas, such as `anthropic:claude-sonnet-4-5,openai-chat:*`. Empty: `RONDO_MODEL` only.",
    )
    openai_base_url: str = _variable(
        str, "", "Base URL of a server with the OpenAI API. Empty: OpenAI's own."
    )
    openai_api_key: str = _variable(str, "", "API key for that server.")
    rondo_plugins: tuple[str, ...] = _variable(
        read.module_names, "", "Python modules to import at start, for example to register tools."
    )
    rondo_mcp_hosts: tuple[str, ...] = _variable(
        read.names, "", "Hosts (`name` or `name:port`) of MCP servers that may have non-public addresses."
    )
    rondo_connection_hosts: tuple[str, ...] = _variable(
        read.names, "", "Hosts of users' model connections that may have addresses that are not public."
    )
    rondo_webhook_hosts: tuple[str, ...] = _variable(
        read.names, "", "Hosts (`name` or `name:port`) of webhooks that may have non-public addresses."
    )
    rondo_doors: tuple[str, ...] = _variable(
        doors.doors,
        ",".join(doors.DOORS),
        "[Protocols](protocols.md) that are served, separated by commas: `mcp` at `/mcp`, `openai` under `/v1/`, "
        "`ag-ui` under `/ag-ui/`. `none`: none.",
    )
    rondo_cors_origins: tuple[str, ...] = _variable(
        read.origins,
        "",
        "Origins by commas, such as `https://app.example`, whose scripts may use the API and the doors "
        "([CORS](api.md#cors)); `*`: all. Empty: none.",
    )
    email_url: Mapping[str, Any] = _variable(
        read.mail_server,
        "",
        "Mail server of the channel `email`: `smtp://user:password@host:port`, `smtp+starttls://…` or "
        "`smtps://…`. Empty: no channel `email`.",
    )
    default_from_email: str = _variable(str, "rondo@localhost", "Sender address of the channel `email`.")
    rondo_notify: Mapping[str, str] = _variable(
        read.notify_services,
        "",
        "Chat services of the channel `notify` (extra `notify`): a JSON object of Apprise URLs by the "
        'names that sessions use, such as `{"team": "slack://…"}`.',
    )
    rondo_telegram_url: str = _variable(
        read.web_address,
        "https://api.telegram.org",
        "Bot API server of [Telegram bots](channels.md#agents-on-telegram).",
    )
    turn_shards: int = _variable(
        read.positive_int, "8", "Number of shard queues. Must be the same in all processes."
    )
    turn_queues: tuple[str, ...] = _variable(
        read.names,
        "",
        "Queues that this worker consumes: `turns` (people), `auto` (other work), or single ones. Empty: all.",
    )
    rondo_context_tokens: int = _variable(
        read.positive_int,
        "32000",
        "Maximum tokens of a request to a model. When the history takes over half of its share, older "
        "messages are compressed into task state.",
    )
    rondo_keep_days: int = _variable(
        read.count_or_forever,
        "90",
        "Days to keep ended turns, runs, deliveries and scheduled messages. 0: for ever. Histories always stay.",
    )
    rondo_flags: Mapping[str, Any] = _variable(
        read.flags,
        "",
        "[Feature flags](#feature-flags) that differ from their defaults, by commas, such as "
        "`heartbeat.broadcast_scope=session,scheduler.cron_jobs=0`.",
    )
    log_level: str = _variable(
        read.one_of("DEBUG", "INFO", "WARNING", "ERROR"), "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`."
    )
    log_format: str = _variable(
        read.one_of("text", "json"), "text", "`text`, or `json` (one object per line)."
    )
    rondo_beat_ping_url: str = _variable(
        read.web_url, "", "URL that a working beat calls by GET once a minute, for a dead man's switch."
    )
    rondo_sentry_dsn: str = _variable(
        read.web_url, "", "Address (DSN) to which errors are reported by Sentry's SDK (extra `sentry`)."
    )
    rondo_traces: bool = _variable(
        read.boolean,
        "0",
        "Sends traces by OpenTelemetry (extra `otel`); the variables `OTEL_…` say where to.",
    )
    rondo_throttle: tuple[int, int] | None = _variable(
        read.rate,
        "1200/min",
        "Limit of requests to the API and the pages together, per user, per hook, and per address without a "
        "sign-in or token: a number per `s`, `min`, `h` or `d`. 0: no limit.",
    )
    rondo_turns_per_user: int = _variable(
        read.count_or_unlimited,
        "40",
        "Maximum running turns of one user in the whole fleet; at most 90 % of all worker threads; the last 10 % are "
        "for users with no running turn. Automations use at most 80 % of the limit. 0: no limit.",
    )
    rondo_watchers: tuple[IPv4Network | IPv6Network, ...] = _variable(
        read.networks,
        "127.0.0.0/8,::1",
        "Addresses and networks that may read `/metrics`, the details of `/readyz` and the API schema "
        "without signing in.",
    )
    rondo_watcher_token: str = _variable(
        str, "", "Bearer token that gives the same access from any address. Empty: no token."
    )


def variables() -> tuple[Variable, ...]:
    """All environment variables, in the order of the docs."""
    return tuple(Variable(name=each.name.upper(), **each.metadata) for each in fields(Env))


def load(environ: Mapping[str, str]) -> Env:
    """Read the configuration; an empty value counts as not set.

    Raises EnvError that names the first invalid variable, or all missing ones.
    """
    env = Env(**read.values_of(variables(), environ))
    read.check_queues(env.turn_queues, env.turn_shards)
    read.check_key(env.secret_key, environ, debug=env.debug)
    return env
