"""Spans without OpenTelemetry: while no sink is set, a span costs next to nothing and nothing is imported.

The ids of a trace and of its first span are derived from what the trace is about, such as a run. So every process finds
the trace without storing or sending its ids, also a worker that takes over the turn of a dead one.

Attributes never hold a text of a message, a prompt or a tool's arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A place in a trace: the parent of spans."""

    trace_id: int
    span_id: int


def derived(*about: str) -> Trace:
    """The first span of the trace about this."""
    digest = hashlib.sha256("\x00".join(about).encode()).digest()
    return Trace(trace_id=int.from_bytes(digest[:16], "big"), span_id=int.from_bytes(digest[16:24], "big"))


class Span(Protocol):
    """A span that runs."""

    @property
    def trace(self) -> Trace | None:
        """Its place, for spans below it."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def fail(self, code: str) -> None:
        """Mark it as failed; `code` is an error code or the name of an exception's class."""

    def end(self) -> None:
        """End it."""


class Sink(Protocol):
    """What takes the spans."""

    def start(self, name: str, kind: str, parent: Trace | None, attributes: Attributes) -> Span:
        """Start a span below a parent."""

    def first(self, name: str, trace: Trace, began: datetime, attributes: Attributes) -> None:
        """Give the first span of a trace, which began then and ends now."""


class _Nothing:
    trace = None

    def set(self, attributes: Attributes) -> None:
        pass

    def fail(self, code: str) -> None:
        pass

    def end(self) -> None:
        pass


_NOTHING = _Nothing()
_sink: Sink | None = None
_current: ContextVar[Trace | None] = ContextVar("rondo_trace", default=None)


def use_sink(sink: Sink | None) -> None:
    """Send the spans of this process there; None: nowhere."""
    global _sink  # noqa: PLW0603
    _sink = sink


def is_on() -> bool:
    """Whether spans are sent anywhere."""
    return _sink is not None


def first_span(name: str, trace: Trace, began: datetime, attributes: Attributes) -> None:
    """Give the first span of a trace. A fault of the sink is logged only: no work fails because of a trace."""
    if _sink is not None:
        try:
            _sink.first(name, trace, began, attributes)
        except Exception:
            log.exception("trace_failed")


@contextmanager
def span(
    name: str,
    attributes: Attributes,
    *,
    kind: str = "internal",
    below: Trace | None = None,
    leads: bool = False,
) -> Iterator[Span]:
    """A span around the block, below the thread's current one or `below`. `leads`: it is the current one meanwhile.

    An exception marks it as failed, by its code or class alone, since its text may quote a message.
    """
    if _sink is None:
        yield _NOTHING
        return
    started = _start(_sink, name, kind, below or _current.get(), attributes)
    token = _current.set(started.trace) if leads else None
    try:
        yield started
    except Exception as error:
        started.fail(str(getattr(error, "code", "") or type(error).__name__))
        raise
    finally:
        if token is not None:
            _current.reset(token)
        started.end()


def _start(sink: Sink, name: str, kind: str, parent: Trace | None, attributes: Attributes) -> Span:
    try:
        return sink.start(name, kind, parent, attributes)
    except Exception:
        log.exception("trace_failed")
        return _NOTHING
