"""Pings for dead man's switches: one of each run that ended, and of a working beat."""

from typing import Any

import pytest

from automations.models import RunRecord, RunState
from sessions_app.deliveries.system_events import fail_address
from sessions_app.models import Delivery
from tests.api.conftest import Caller, new_caller, problem
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.sessions_app.deliveries.receivers import Receiver, http_receiver

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.3")]


def paths(receiver: Receiver) -> list[str]:
    return [each.path for each in receiver.taken()]


@pytest.mark.full
def test_each_run_is_pinged_once_and_a_failed_one_as_failed(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, settings: Any
) -> None:
    person_with_server.agent.policy = {"max_attempts": 1}
    person_with_server.agent.save()
    with http_receiver() as receiver:
        settings.RONDO_WEBHOOK_HOSTS = (receiver.host,)
        fleet.environ |= {"RONDO_WEBHOOK_HOSTS": receiver.host, "RONDO_DELIVERY_RETRY_SECONDS": "1,1"}
        fleet.environ |= {"RONDO_BEAT_PING_URL": receiver.set("/beat", "take")}
        session = person_with_server.session()
        good = receiver.set("/good?key=1", "500", "take")
        for message, url in (("hello", good), ("[[fail:400]]", f"{receiver.url}/bad")):
            new(session, message=message, schedule=EVERY_SECOND, max_runs=1, ping_url=url)
        fleet.worker()
        beat = fleet.beat()
        until(lambda: sorted(paths(receiver)) == ["/bad/fail", "/beat", "/good?key=1"])
        tries = [each for each in receiver.requests if each.path.startswith("/good")]
        assert [each.temper for each in tries] == ["500", "take"], "a ping is tried again"
        assert {each.body for each in receiver.requests} == {b""}
        assert beat.stop() == 0
    assert {RunState.SUCCEEDED, RunState.FAILED} <= set(RunRecord.objects.values_list("state", flat=True))
    assert Delivery.objects.filter(channel="ping").count() == 2


def test_the_address_of_a_ping_is_checked() -> None:
    ada: Caller = new_caller("ada")
    ada.agent()
    job = ada.automation(ada.session(), ping_url="https://example.org/ping")
    assert job["ping_url"] == "https://example.org/ping"
    for bad in ("http://127.0.0.1/", "ftp://example.org/", "https://example.org/" + "x" * 1_900):
        problem(ada.patch(f"/api/automations/{job['id']}/", {"ping_url": bad}), 400, "bad_ping_url")
    assert ada.patch(f"/api/automations/{job['id']}/", {"ping_url": ""}).json()["ping_url"] == ""


def test_a_failure_is_said_in_the_path() -> None:
    assert fail_address("https://hc.example/a/?x=1") == "https://hc.example/a/fail?x=1"
