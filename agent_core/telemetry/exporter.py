"""Sends spans by OTLP over HTTP. Imported only when traces are on; the variables OTEL_… configure it as usual."""

from __future__ import annotations

import os
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult

from agent_core.telemetry.spans import first_ids


class _Ids(RandomIdGenerator):
    """Random ids, except for the first span of a trace."""

    def generate_span_id(self) -> int:
        given = first_ids.get()
        return given.span_id if given is not None else int(super().generate_span_id())

    def generate_trace_id(self) -> int:
        given = first_ids.get()
        return given.trace_id if given is not None else int(super().generate_trace_id())


class _ByTrace(Sampler):
    """Decides by the trace alone, so that all processes decide alike without telling each other."""

    def __init__(self, configured: Sampler) -> None:
        self._configured = configured

    def should_sample(
        self,
        parent_context: Context | None,  # noqa: ARG002 - the interface's
        trace_id: int,
        name: str,
        *more: Any,
        **named: Any,
    ) -> SamplingResult:
        return self._configured.should_sample(Context(), trace_id, name, *more, **named)

    def get_description(self) -> str:
        return f"by trace: {self._configured.get_description()}"


def start(version: str) -> None:
    """Send the spans of this process to a collector, in the background."""
    about = {"service.version": version}
    if "OTEL_SERVICE_NAME" not in os.environ:
        about["service.name"] = "rondo"
    provider = TracerProvider(resource=Resource.create(about), id_generator=_Ids())
    provider.sampler = _ByTrace(provider.sampler)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
