"""Spans of OpenTelemetry. In a process that exports none (see `exporter.py`) they record nothing.

The ids of a trace and of its first span are derived from what the trace is about, such as a run. So every process finds
the trace without storing or sending its ids, also a worker that takes over the turn of a dead one.

Attributes never hold a text of a message, a prompt or a tool's arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from datetime import datetime

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, StatusCode

Attributes = Mapping[str, str | int | float | bool]

_TRACER = trace.get_tracer("rondo")
# of the span that is begun now
first_ids: ContextVar[SpanContext | None] = ContextVar("rondo_first_ids", default=None)


def derived(*about: str) -> SpanContext:
    """Return the first span of the trace that these texts identify. Another process may have begun it."""
    digest = hashlib.sha256("\x00".join(about).encode()).digest()
    trace_id, span_id = int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big")
    return SpanContext(trace_id, span_id, is_remote=True)


def first_span(name: str, at: SpanContext, began: datetime, attributes: Attributes) -> None:
    """Record the first span of a trace, with the ids `at`, from `began` to now."""
    token = first_ids.set(at)
    try:
        since = int(began.timestamp() * 1e9)
        _TRACER.start_span(name, context=Context(), start_time=since, attributes=attributes).end()
    finally:
        first_ids.reset(token)


@contextmanager
def span(
    name: str,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    below: SpanContext | None = None,
    leads: bool = False,
) -> Iterator[Span]:
    """A span around the block, as a child of `below` or of the thread's current span. `leads`: it becomes the current
    one.

    An exception marks the span as failed, with its code or class alone, since the text may quote a message.
    """
    parent = None if below is None else trace.set_span_in_context(trace.NonRecordingSpan(below), Context())
    started = _TRACER.start_span(name, context=parent, kind=kind, attributes=attributes)
    current = trace.use_span(started, record_exception=False, set_status_on_exception=False)
    try:
        with current if leads else nullcontext():
            yield started
    except Exception as error:
        fail(started, str(getattr(error, "code", "") or type(error).__name__))
        raise
    finally:
        started.end()


def fail(failed: Span, code: str) -> None:
    """Mark a span as failed; `code` is an error code or the name of an exception's class."""
    failed.set_status(StatusCode.ERROR)
    failed.set_attribute("error.type", code)
