"""Traces reach a collector: from the slot to delivery in one trace, also when a worker is killed in the middle."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agent_core.connections import Connection, model_attributes
from automations.models import RunRecord, RunState
from sessions_app.models import Delivery, DeliveryState
from sessions_app.queue.receive import MessageInput, receive
from tests import plugins
from tests.automations.jobs.made import EVERY_SECOND, add, new
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.sessions_app.deliveries.receivers import Receiver, http_receiver
from tests.talk import ended

pytestmark = pytest.mark.django_db(transaction=True)
WORDS = "a secret of the conversation"


@dataclass(kw_only=True)
class Collector:
    """Takes OTLP over HTTP."""

    receiver: Receiver

    @property
    def bodies(self) -> list[bytes]:
        return [
            gzip.decompress(each.body) if each.headers.get("content-encoding") == "gzip" else each.body
            for each in list(self.receiver.requests)
        ]

    def spans(self) -> list[Any]:
        proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        found = []
        for body in self.bodies:
            for resource in proto.ExportTraceServiceRequest.FromString(body).resource_spans:
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans() if span.name == name]


def about(span: Any, name: str) -> Any:
    [value] = [each.value for each in span.attributes if each.key == name]
    return getattr(value, value.WhichOneof("value"))


@pytest.fixture
def collector(fleet: Fleet) -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    with http_receiver() as receiver:
        fleet.environ |= {
            "RONDO_TRACES": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        yield Collector(receiver=receiver)


@pytest.mark.full
def test_one_trace_leads_from_the_slot_over_a_killed_worker_to_the_delivery(
    fleet: Fleet, collector: Collector, model_server: ModelServer, person_with_server: Person, settings: Any
) -> None:
    with http_receiver() as receiver:
        settings.RONDO_WEBHOOK_HOSTS = (receiver.host,)
        fleet.environ |= {"RONDO_WEBHOOK_HOSTS": receiver.host}
        session = person_with_server.session(channel="webhook", address=f"{receiver.url}/in?key=hidden")
        worker = fleet.worker()
        beat = fleet.beat()
        message = 'use tool wait_again with {"name": "open"}'
        new(session, message=message, schedule=EVERY_SECOND, max_runs=1)
        until(lambda: plugins.calls(fleet.folder, "open"))
        until(lambda: collector.named("chat test"), what="the first worker's call is there")
        worker.kill()
        (fleet.folder / "open.go").touch()
        second = fleet.worker()
        until(lambda: Delivery.objects.filter(session=session, state=DeliveryState.SENT).exists())
        assert (second.stop(), beat.stop()) == (0, 0)
    run = RunRecord.objects.get(state=RunState.SUCCEEDED)
    [slot] = until(lambda: collector.named("slot"))
    assert not slot.parent_span_id
    assert about(slot, "rondo.run") == run.pk
    [turn] = until(lambda: collector.named("invoke_agent"))  # that of the killed attempt is lost
    assert (turn.parent_span_id, about(turn, "rondo.attempt")) == (slot.span_id, 2)
    assert about(turn, "gen_ai.conversation.id") == str(session.pk)
    first, *_, last = collector.named("chat test")
    [tool] = collector.named("execute_tool wait_again")
    [delivery] = collector.named("deliver webhook")
    parents = [each.parent_span_id for each in (last, tool, delivery)]
    assert parents == [turn.span_id, turn.span_id, slot.span_id]
    assert first.parent_span_id != turn.span_id, "the call of the killed worker is in the trace, too"
    assert about(last, "gen_ai.usage.input_tokens") > 0
    assert (about(last, "gen_ai.provider.name"), about(last, "gen_ai.request.model")) == ("openai", "test")
    assert about(turn, "gen_ai.agent.name") == person_with_server.agent.name
    assert {span.trace_id for span in collector.spans()} == {slot.trace_id}
    sent = b"".join(collector.bodies)
    assert b"use tool" not in sent
    assert b"hidden" not in sent


@pytest.mark.full
def test_a_persons_turn_is_a_trace_of_its_own_and_says_why_it_failed(
    fleet: Fleet, collector: Collector, model_server: ModelServer, person_with_server: Person
) -> None:
    person_with_server.agent.policy = {"max_attempts": 1}
    person_with_server.agent.save()
    worker = fleet.worker()
    session = person_with_server.session()
    turns = [receive(session.pk, MessageInput(content=text)) for text in ("hello", f"[[fail:503]] {WORDS}")]
    for turn in turns:
        until(lambda turn=turn: ended(turn))  # type: ignore[misc]
    assert worker.stop() == 0
    good, bad = collector.named("invoke_agent")
    assert len({span.trace_id for span in collector.spans()}) == 2
    assert {span.span_id for span in collector.named("queue")} == {good.parent_span_id, bad.parent_span_id}
    assert (good.status.code, bad.status.code, about(bad, "error.type")) == (0, 2, "model_unavailable")
    failed = [span for span in collector.named("chat test") if span.trace_id == bad.trace_id]
    assert about(failed[0], "error.type") == "model_unavailable"
    assert WORDS.encode() not in b"".join(collector.bodies)


@pytest.mark.full
def test_a_routine_and_the_events_of_a_turn_belong_to_their_trace(
    fleet: Fleet, collector: Collector, model_server: ModelServer, person_with_server: Person, settings: Any
) -> None:
    with http_receiver() as receiver:
        settings.RONDO_WEBHOOK_HOSTS = (receiver.host,)
        fleet.environ |= {"RONDO_WEBHOOK_HOSTS": receiver.host}
        agent = person_with_server.agent
        agent.events_url, agent.policy = f"{receiver.url}/events", {"max_attempts": 1, "timeout_seconds": 1}
        agent.save()
        worker, beat = fleet.worker(), fleet.beat()
        slow = receive(person_with_server.session().pk, MessageInput(content="[[hold:for-ever]] now"))
        until(lambda: ended(slow))
        routine = add(person_with_server, "news", execution_mode="inline")
        until(lambda: RunRecord.objects.filter(job=routine.pk, finished_at__isnull=False).exists())
        until(lambda: Delivery.objects.filter(state=DeliveryState.SENT).exists())
        assert (worker.stop(), beat.stop()) == (0, 0)
    roots = {span.span_id: span for name in ("queue", "slot") for span in collector.named(name)}
    for turn in collector.named("invoke_agent"):
        assert turn.parent_span_id in roots, "the trace of each turn has its root"
    [slot] = [span for span in collector.named("slot") if about(span, "rondo.automation") == routine.pk]
    assert [span.trace_id for span in collector.named("invoke_agent")].count(slot.trace_id) == 1
    [event] = collector.named("deliver events")
    assert roots[event.parent_span_id].name == "queue"
    assert about(roots[event.parent_span_id], "rondo.turn") == slow.pk


def test_a_model_is_named_by_its_provider() -> None:
    for model, provider, expected in (
        ("offline", "", ("rondo", "offline")),
        ("anthropic:claude-x", "", ("anthropic", "claude-x")),
        ("google:gemini:1", "", ("gcp.gemini", "gemini:1")),
        ("mine:gpt", "openai-responses", ("openai", "gpt")),
        ("mine:gpt", "ollama", ("ollama", "gpt")),
    ):
        named = model_attributes(model, Connection(name="mine", provider=provider) if provider else None)
        assert (named["gen_ai.provider.name"], named["gen_ai.request.model"]) == expected
