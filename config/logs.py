"""Logging with structlog: one line per event, with request, session, turn, run and worker where they are known."""

import logging
import os
import re
from contextlib import suppress
from typing import Any

import structlog
from django.apps import apps
from structlog.types import EventDict, Processor

from agent_core.text.redact import redact, secrets_of

# addresses such as /enter/<token>/, /join/<token>/, /password/<user>/<token>/, /calendar/<token>.ics and
# …/events/?ticket=<ticket>, wherever a path is logged
_SECRET_ADDRESS = re.compile(
    r"(/enter/+|/join/+|/password/+[^/\s\"']+/+|/calendar/+|[?&]ticket=)[^/&\s\"'?#\\]+"
)
# and what they send with
CLIENTS = ("openai", "anthropic", "google_genai", "httpcore", "httpcore2", "telegram")
_TO_STDERR = {"class": "logging.StreamHandler", "formatter": "line"}
CONTEXT = ("request", "worker", "session", "turn", "run")  # bound with structlog.contextvars.bind_contextvars


def _drop_color_message(_logger: Any, _name: str, event: EventDict) -> EventDict:
    event.pop("color_message", None)  # uvicorn adds the text a second time, with colours
    return event


def _shared_processors() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        _drop_color_message,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def configure() -> None:
    """Send `structlog.get_logger()` through the standard library, so that both write the same lines."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared_processors(),
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _render_text(_logger: Any, _name: str, event: EventDict) -> str:
    """`time LEVEL logger: text key=value …`, the keys of CONTEXT first; a traceback follows."""
    head = f"{event.pop('timestamp', '')} {event.pop('level', '').upper()} {event.pop('logger', '')}:"
    text = event.pop("event", "")
    trace = event.pop("exception", None)
    keys = [*(k for k in CONTEXT if k in event), *sorted(k for k in event if k not in CONTEXT)]
    pairs = "".join(f" {key}={event[key]}" for key in keys)
    return f"{head} {text}{pairs}" + (f"\n{trace}" if trace else "")


def _without_addresses(line: str) -> str:
    return _SECRET_ADDRESS.sub(r"\1***", line)


def _redactor() -> Any:
    """A processor that removes secrets of this process's environment and of addresses from a line."""
    secrets = secrets_of(os.environ)

    def redacted(_logger: Any, _name: str, line: Any) -> str:
        return _without_addresses(redact(line, secrets))

    return redacted


class HideSecretAddresses(logging.Filter):
    """Removes secrets of addresses from the arguments of a record, for the access log: uvicorn may format it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; it is always logged."""
        if isinstance(record.args, tuple):
            hidden = (_without_addresses(each) if isinstance(each, str) else each for each in record.args)
            record.args = tuple(hidden)
        return True


class ErrorCounter(logging.Handler):
    """Counts errors by the name of their line: exactly the lines that are reported to Sentry."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record. At the exit of the process there may be no thread any more that would store it."""
        if not apps.ready:
            return
        from sessions_app import metrics

        said: Any = record.msg
        with suppress(RuntimeError):
            metrics.count_error(str(said.get("event") if isinstance(said, dict) else said))


def _final_processors(log_format: str) -> list[Any]:
    clean: list[Any] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
    ]
    renderer = structlog.processors.JSONRenderer() if log_format == "json" else _render_text
    return [*clean, renderer, _redactor()]


def logging_config(level: str, log_format: str) -> dict[str, Any]:
    """Django's LOGGING: everything to standard error through one formatter."""
    through_root: dict[str, Any] = {"handlers": [], "propagate": True}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _shared_processors(),
                "processors": _final_processors(log_format),
            }
        },
        "filters": {"secret_addresses": {"()": HideSecretAddresses}},
        "handlers": {"stderr": _TO_STDERR, "errors": {"()": ErrorCounter}},
        "root": {"handlers": ["stderr", "errors"], "level": level},
        "loggers": {
            "django": through_root,
            "django.server": through_root,
            # 4xx answers are not our errors; the access log has them.
            "django.request": {"level": "ERROR"},
            "uvicorn": through_root,
            "uvicorn.error": through_root,
            "uvicorn.access": through_root | {"filters": ["secret_addresses"]},
            "celery": through_root,
            # A line per hint and per model call would be too many; turns log their own lines.
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
            "axes": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "httpx2": {"level": "WARNING"},
            # On DEBUG these log requests and answers with their headers, so keys and prompts, too.
            **{name: {"level": "WARNING"} for name in CLIENTS},
            # These log what MCP servers send, with tracebacks; our own line names the server and the error.
            "mcp": {"level": "CRITICAL"},
            "client": {"level": "CRITICAL"},
        },
    }
