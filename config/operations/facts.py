"""What a process tells the others of itself: its version, and its settings without secrets."""

from __future__ import annotations

import json
import platform
import zoneinfo
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.utils.crypto import salted_hmac

from config.env import Env, variables
from config.installation import VERSION
from sessions_app.channels import base as channels
from sessions_app.operations.processes import Facts

BROKER, KEY = "CELERY_BROKER_URL", "SECRET_KEY"
# Anybody who may read the status may read these. All other variables are told by a fingerprint alone.
SHOWN = frozenset(
    [
        *("ALLOWED_HOSTS", "AUTOMATION_MAX_WAIT", "CSRF_TRUSTED_ORIGINS", "DB_POOL_SIZE", "DEBUG"),
        *("DEFAULT_FROM_EMAIL", "HTTPS", "LOG_FORMAT", "LOG_LEVEL", "RONDO_CONNECTIONS"),
        *("RONDO_CONNECTIONS_PER_ADDRESS", "RONDO_CONNECTION_HOSTS", "RONDO_CONTEXT_TOKENS"),
        *("RONDO_DATABASE_SECONDS", "RONDO_DELIVERY_RETRY_SECONDS", "RONDO_DELIVERY_SECONDS", "RONDO_DOORS"),
        *("RONDO_FETCH_URL", "RONDO_HEARTBEAT_BROADCAST_SCOPE", "RONDO_HEARTBEAT_REALTIME_STATUS_HINT"),
        *("RONDO_HEARTBEAT_ROUTINE_REFLECTION", "RONDO_HEARTBEAT_SECONDS", "RONDO_MAINTENANCE_SECONDS"),
        *("RONDO_MCP", "RONDO_MCP_HOSTS", "RONDO_MODEL", "RONDO_MODELS", "RONDO_PLUGINS"),
        *("RONDO_MEGABYTES_PER_USER", "RONDO_REPLY_CHARS", "RONDO_SCHEDULER_CRON_JOBS"),
        *("RONDO_STREAMS_PER_USER", "RONDO_SWEEP_SECONDS", "RONDO_THROTTLE", "RONDO_TOOL_GRACE_SECONDS"),
        *("RONDO_AGENTS_PER_USER", "RONDO_AUTOMATIONS_PER_USER", "RONDO_SESSIONS_PER_USER"),
        *("RONDO_MODEL_SILENCE_SECONDS", "RONDO_TURN_SECONDS"),
        *("RONDO_TURNS_PER_USER", "RONDO_WATCHERS", "RONDO_WEBHOOK_HOSTS", "RONDO_WINDOW_MESSAGES"),
        *("RONDO_WORKER_LOST_SECONDS", "STATIC_ROOT", "TURN_QUEUES", "TURN_SHARDS"),
        *(each.name.upper() for each in fields(Env) if each.name.startswith("rondo_keep_")),
    ]
)
_RATE = "RONDO_THROTTLE"
# not told: machines may reach one database by different addresses
_UNTOLD = frozenset({"DATABASE_URL", "DATABASE_LOCK_URL", BROKER})


def facts() -> Facts:
    """The facts of this process."""
    env: Env = settings.ENV
    values = {
        each.name: _text(each.name, getattr(env, each.name.lower()))
        for each in variables()
        if each.name not in _UNTOLD
    }
    shown = {name: value for name, value in values.items() if name in SHOWN}
    hidden = {name: _fingerprint(name, value) for name, value in values.items() if name not in SHOWN}
    return Facts(version=VERSION, settings=shown | _installed(env), fingerprints=hidden)


def _installed(env: Env) -> dict[str, str]:
    return {
        BROKER: _address(env.celery_broker_url),
        "channels": ", ".join(sorted(channels.known())),
        "django": django.get_version(),
        "python": platform.python_version(),
        "time zones": _zone_data(),
    }


def defaults() -> dict[str, str]:
    """What the settings that are shown have unless they are set."""
    return {
        each.name: _text(each.name, each.read(each.default))
        for each in variables()
        if each.name in SHOWN and each.default is not None
    }


def _text(name: str, value: Any) -> str:
    """The value of a variable as text; the same text for all that people may write for one value."""
    if name == _RATE and value is not None:
        return f"{value[0]}/{value[1]}s"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return "0" if value is None else str(value)


def _fingerprint(name: str, value: str) -> str:
    """Equal for equal values of processes with the same SECRET_KEY, from which nobody finds the value."""
    return salted_hmac(f"rondo.facts.{name}", value, algorithm="sha256").hexdigest()[:16] if value else ""


def _address(url: str) -> str:
    """A broker's URL without user name, password and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _zone_data() -> str:
    """The version of the time-zone data that this process reads first."""
    for folder in map(Path, zoneinfo.TZPATH):
        for name in ("tzdata.zi", "+VERSION"):
            try:
                with (folder / name).open() as file:
                    return file.readline(80).removeprefix("# version").strip()[:20]
            except (OSError, UnicodeDecodeError):
                continue
        if (folder / "UTC").exists():
            return "unknown"
    return str(import_module("tzdata").IANA_VERSION)
