"""The spans of turns and deliveries. A turn's trace is that of its run, or its own: the same in every worker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.trace import Span, SpanContext, SpanKind

from agent_core.telemetry import spans
from sessions_app.models import Delivery, Turn


def trace_of_run(run_id: str) -> SpanContext:
    """Return the ids of the first span of a run's trace, which stands for its slot."""
    return spans.derived("run", run_id)


def trace_of_turn(session_id: uuid.UUID, turn_id: int, run_id: str) -> SpanContext:
    """Return the ids of the first span of a turn's trace: its run's slot, or else its wait in the queue."""
    return trace_of_run(run_id) if run_id else spans.derived("turn", str(session_id), str(turn_id))


@contextmanager
def turn_span(turn: Turn) -> Iterator[None]:
    """The span of this attempt of the turn; model and tool calls are below it."""
    trace = trace_of_turn(turn.session_id, turn.pk, turn.origin_run)
    about: dict[str, str | int] = {
        "rondo.turn": turn.pk,
        "rondo.kind": turn.kind,
        "gen_ai.conversation.id": str(turn.session_id),
        **_runs(turn),
    }
    if turn.attempt == 1 and not turn.origin_run:
        spans.first_span("queue", trace, turn.queued_at, about)
    about |= {"gen_ai.operation.name": "invoke_agent", "rondo.attempt": turn.attempt}
    with spans.span("invoke_agent", about, kind=SpanKind.CONSUMER, below=trace, leads=True) as span:
        yield
        span.set_attributes({"rondo.state": turn.state, **_agent(turn), **_used(turn)})
        if turn.error_code:
            spans.fail(span, turn.error_code)


def delivery_span(delivery: Delivery) -> AbstractContextManager[Span]:
    """The span of an attempt to deliver, without the address, which may hold a secret."""
    about: spans.Attributes = {
        "rondo.delivery": delivery.pk,
        "rondo.channel": delivery.channel,
        "rondo.attempt": delivery.attempts,
    }
    below = _trace_of_delivery(delivery)
    return spans.span(f"deliver {delivery.channel}", about, kind=SpanKind.PRODUCER, below=below)


def _runs(turn: Turn) -> dict[str, str]:
    """The attributes that name the turn's run, or the runs that share it, whose slots have traces of their own."""
    if turn.origin_run:
        return {"rondo.run": turn.origin_run}
    shared = turn.input.runs
    return {"rondo.runs": " ".join(shared)} if shared else {}


def _agent(turn: Turn) -> dict[str, str]:
    """The attribute with the agent's name, if the turn has read its agent."""
    is_read = "session" in turn._state.fields_cache and "agent" in turn.session._state.fields_cache
    return {"gen_ai.agent.name": turn.session.agent.name} if is_read else {}


def _trace_of_delivery(delivery: Delivery) -> SpanContext | None:
    if delivery.message is not None and delivery.message.turn is not None:
        turn = delivery.message.turn
        return trace_of_turn(turn.session_id, turn.pk, turn.origin_run)
    about = (delivery.event or {}).get("data", {})
    if about.get("run"):
        return trace_of_run(about["run"])
    if about.get("turn") and delivery.session_id is not None:  # of a turn that is no run's
        return trace_of_turn(delivery.session_id, about["turn"], "")
    return None


def _used(turn: Turn) -> dict[str, str | int]:
    used: dict[str, str | int] = {
        f"gen_ai.usage.{name}": int(turn.usage[name])
        for name in ("input_tokens", "output_tokens")
        if turn.usage.get(name)
    }
    return used | ({"gen_ai.response.model": turn.model} if turn.model else {})
