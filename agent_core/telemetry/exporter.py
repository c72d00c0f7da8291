"""Sends spans by OTLP over HTTP. Imported only when traces are on; the variables OTEL_… configure it as usual."""

from __future__ import annotations

import os
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan

from agent_core.telemetry.spans import Attributes, Trace

SERVICE = "rondo"


class _Ids:
    """Random ids, but for first spans."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self.given: ContextVar[Trace | None] = ContextVar("rondo_given_ids", default=None)

    def generate_span_id(self) -> int:
        given = self.given.get()
        return given.span_id if given is not None else int(self._random.generate_span_id())

    def generate_trace_id(self) -> int:
        given = self.given.get()
        return given.trace_id if given is not None else int(self._random.generate_trace_id())

    def is_trace_id_random(self) -> bool:
        """Samplers may use its bits: a digest is as even as a random number."""
        return True


class _Running:
    """A span of OpenTelemetry."""

    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    @property
    def trace(self) -> Trace | None:
        context = self._span.get_span_context()
        return Trace(trace_id=context.trace_id, span_id=context.span_id)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def fail(self, code: str) -> None:
        self._span.set_status(StatusCode.ERROR)
        self._span.set_attribute("error.type", code)

    def end(self) -> None:
        self._span.end()


class OtlpSink:
    """Sends the spans of this process to a collector, in the background."""

    def __init__(self, version: str) -> None:
        self._ids = _Ids()
        about = {"service.version": version}
        if "OTEL_SERVICE_NAME" not in os.environ:
            about["service.name"] = SERVICE
        ids: Any = self._ids  # a base class from a package that may be missing would have no type
        self._provider = TracerProvider(resource=Resource.create(about), id_generator=ids)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer(SERVICE, version)

    def start(self, name: str, kind: str, parent: Trace | None, attributes: Attributes) -> _Running:
        """Start a span below a parent."""
        context = Context() if parent is None else self._context(parent)
        return _Running(
            self._tracer.start_span(name, context=context, kind=SpanKind[kind.upper()], attributes=attributes)
        )

    def first(self, name: str, trace: Trace, began: datetime, attributes: Attributes) -> None:
        """Give the first span of a trace, which began then and ends now."""
        token = self._ids.given.set(trace)
        try:
            since = int(began.timestamp() * 1e9)
            self._tracer.start_span(name, context=Context(), start_time=since, attributes=attributes).end()
        finally:
            self._ids.given.reset(token)

    def _context(self, parent: Trace) -> Context:
        """Sampled as the first span of the trace is, which another process may have given."""
        decision = self._provider.sampler.should_sample(Context(), parent.trace_id, "").decision
        is_sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        at = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
        return set_span_in_context(NonRecordingSpan(at), Context())
