"""The first span of each run's trace: from its slot until it was fired."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from agent_core.telemetry import spans
from sessions_app.tracing.spans import trace_of_run


def trace_slots(run_ids: Iterable[str]) -> None:
    """Give the spans of runs that were queued. The id of a run names its job, or message, and its slot."""
    if not spans.is_on():
        return
    for run_id in run_ids:
        of, _, slot = run_id.rpartition(":")
        began = datetime.fromtimestamp(int(slot) / 1000, UTC)
        spans.first_span("slot", trace_of_run(run_id), began, {"rondo.run": run_id, "rondo.automation": of})
