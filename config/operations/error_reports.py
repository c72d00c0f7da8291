"""Reports errors to Sentry, or a server with its protocol: what was logged as an error, by an allow-list.

An event holds the name of the log line, the ids of its session, turn, run and worker, and the exception's classes and
stack. It never holds an exception's text, variables, other values of the line, or anything of a request: they may quote
messages and secrets.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.atexit import AtexitIntegration
from sentry_sdk.integrations.excepthook import ExcepthookIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.integrations.threading import ThreadingIntegration
from sentry_sdk.utils import BadDsn, event_from_exception

IDS = ("session", "turn", "run", "worker")
_OF_EVENT = ("event_id", "timestamp", "level", "platform", "logger", "release", "environment", "server_name")
_OF_FRAME = ("function", "module", "filename", "lineno", "in_app")


def start(dsn: str, release: str) -> None:
    """Report the errors of this process, in the background. SystemExit for an address that is no DSN."""
    integrations = [
        LoggingIntegration(level=None, event_level=logging.ERROR),
        AtexitIntegration(callback=lambda _pending, _timeout: None),  # by default it prints
        ExcepthookIntegration(),
        ThreadingIntegration(propagate_hub=False),
    ]
    try:
        sentry_sdk.init(
            dsn=dsn,
            release=f"rondo@{release}",
            default_integrations=False,
            auto_enabling_integrations=False,
            integrations=integrations,
            send_default_pii=False,
            include_local_variables=False,
            include_source_context=False,
            max_breadcrumbs=0,
            before_send=reduced,
        )
    except BadDsn:
        raise SystemExit("rondo: RONDO_SENTRY_DSN is not a DSN") from None


def reduced(event: Any, hint: dict[str, Any]) -> Any:
    """Reduce an event to the allowed fields."""
    line = getattr(hint.get("log_record"), "msg", None)
    said = line if isinstance(line, dict) else {}
    kept = {name: event[name] for name in _OF_EVENT if name in event}
    kept["logentry"] = {"message": str(said.get("event") or event.get("logger") or "error")[:200]}
    kept["tags"] = {name: str(said[name]) for name in IDS if said.get(name)}
    values = (event.get("exception") or {}).get("values") or _raised(said.get("exc_info"))
    if values:
        kept["exception"] = {"values": [_exception(each) for each in values]}
    return kept


def _raised(said: Any) -> Any:
    """The exception of a structlog line: the one given, or the one being handled."""
    raised = said if isinstance(said, BaseException) else sys.exc_info()[1] if said else None
    if raised is None:
        return ()
    found, _ = event_from_exception(raised, client_options=sentry_sdk.get_client().options)
    return found["exception"]["values"]


def _exception(given: Any) -> dict[str, Any]:
    frames = (given.get("stacktrace") or {}).get("frames") or ()
    shown = [{name: frame[name] for name in _OF_FRAME if name in frame} for frame in frames]
    return {"type": given.get("type"), "module": given.get("module"), "stacktrace": {"frames": shown}}
