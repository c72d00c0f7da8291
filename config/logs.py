"""Logging: one line per event through structlog, with session, turn, run and worker where they are known."""

from typing import Any

import structlog
from structlog.types import EventDict, Processor

CONTEXT = ("worker", "session", "turn", "run")  # names bound with structlog.contextvars.bind_contextvars


def _without_colours(_logger: Any, _name: str, event: EventDict) -> EventDict:
    event.pop("color_message", None)  # uvicorn says everything twice
    return event


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        _without_colours,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def configure() -> None:
    """Let `structlog.get_logger()` and the standard library write the same lines."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _render_text(_logger: Any, _name: str, event: EventDict) -> str:
    """`time LEVEL logger: text key=value …`, the keys of CONTEXT first; a traceback goes below."""
    head = f"{event.pop('timestamp', '')} {event.pop('level', '').upper()} {event.pop('logger', '')}:"
    text = event.pop("event", "")
    trace = event.pop("exception", None)
    keys = [*(k for k in CONTEXT if k in event), *sorted(k for k in event if k not in CONTEXT)]
    pairs = "".join(f" {key}={event[key]}" for key in keys)
    return f"{head} {text}{pairs}" + (f"\n{trace}" if trace else "")


def _final(log_format: str) -> list[Processor]:
    clean: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
    ]
    if log_format == "json":
        return [*clean, structlog.processors.JSONRenderer()]
    return [*clean, _render_text]


def logging_config(level: str, log_format: str) -> dict[str, Any]:
    """Django's LOGGING: everything to standard error through one formatter."""
    through_root: dict[str, Any] = {"handlers": [], "propagate": True}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": _shared(),
                "processors": _final(log_format),
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": through_root,
            "django.server": through_root,
            # A refusal (4xx) is no fault of ours; the access log has it.
            "django.request": {"level": "ERROR"},
            "uvicorn": through_root,
            "uvicorn.error": through_root,
            "uvicorn.access": through_root,
            "celery": through_root,
            # A line per hint and per model call would bury the rest; turns have lines of their own.
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.app.trace": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "httpx2": {"level": "WARNING"},
            # It logs what strangers send, with traceback; our own line says which server failed, and why.
            "mcp": {"level": "CRITICAL"},
            "client": {"level": "CRITICAL"},
        },
    }
