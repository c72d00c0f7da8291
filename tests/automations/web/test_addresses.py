"""Each address of appointments: another person's things do not exist there, and hostile input answers a page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob, RunRecord, RunState, ScheduledMessage
from automations.routines.edit import NewRoutine, add_routine
from automations.scheduled_messages import MessageToSchedule, schedule_message
from sessions_app.sessions.open import open_session, primary_session
from tests.conftest import Person, new_person

pytestmark = pytest.mark.django_db
DAILY = {"kind": "cron", "expr": "0 9 * * *"}


class World:
    """What somebody has, and a browser of somebody else."""

    def __init__(self, owner: Person) -> None:
        self.session = owner.session(title="Secret title")
        made = NewJob(session_id=self.session.pk, message="secret words", name="Secret name", schedule=DAILY)
        self.job = create_job(made)
        self.routine = add_routine(
            NewRoutine(
                agent_id=owner.agent.pk,
                title="Secret routine",
                instructions="x",
                schedule="0 9 * * *",
                session_id=self.session.pk,
            )
        )
        text = MessageToSchedule(
            session_id=self.session.pk, send_at="2099-01-01T00:00:00Z", message_text="Secret text"
        )
        self.message = schedule_message(text).message
        self.run = RunRecord.objects.create(
            run_id=f"{self.job.pk}:1",
            job=self.job,
            session=self.session,
            scheduled_for=datetime(2026, 1, 1, tzinfo=UTC),
            state=RunState.SKIPPED,
            reason="missed",
            finished_at=datetime(2026, 1, 1, tzinfo=UTC),
        )

    def addresses(self, session_id: Any) -> list[str]:
        """Every address with these things, seen from a session."""
        here, job, routine = f"/sessions/{session_id}", self.job.pk, self.routine.pk
        return [
            f"{here}/appointments/",
            *(
                f"{here}/appointments/{kind}/{key}/{verb}"
                for kind, key in (("automation", job), ("routine", routine))
                for verb in ("", "switch/", "delete/")
            ),
            f"{here}/appointments/message/{self.message.pk}/",
            f"{here}/runs/{self.run.run_id}/",
            f"{here}/automations/{job}/",
            f"{here}/automations/{job}/skip/",
            f"{here}/messages/{self.message.pk}/withdraw/",
        ]


@pytest.fixture
def world() -> World:
    return World(new_person("ada"))


@pytest.fixture
def eve() -> tuple[Client, Any]:
    person = new_person("eve")
    client = Client()
    client.force_login(person.user)
    return client, person.session().pk


@pytest.mark.parametrize("method", ["get", "post"])
def test_nothing_of_others_exists_in_any_conversation(
    world: World, eve: tuple[Client, Any], method: str
) -> None:
    client, own = eve
    mine = f"/sessions/{own}/appointments/"
    for address in [*world.addresses(world.session.pk), *world.addresses(own)]:
        answer = getattr(client, method)(address, headers={"Accept": "text/html"})
        assert answer.status_code in {404, 405} or address == mine, (address, answer.status_code)
        assert b"ecret" not in answer.content, address
    for address in ("automations/new/", "automations/coming/", "messages/later/"):
        assert getattr(client, method)(f"/sessions/{world.session.pk}/{address}").status_code in {404, 405}
    assert b"ecret" not in client.get("/upcoming/").content
    assert CronJob.objects.get(pk=world.job.pk).enabled
    assert RunRecord.objects.filter(job=world.job).count() == 1
    assert ScheduledMessage.objects.get().status == "pending"


@pytest.mark.parametrize("method", ["get", "post"])
def test_what_is_of_one_conversation_does_not_exist_in_another_of_the_same_person(
    world: World, method: str
) -> None:
    client = Client()
    client.force_login(world.session.owner)
    other = open_session(world.session.agent, title="Other")
    panel = f"/sessions/{other.pk}/appointments/"
    for address in world.addresses(other.pk):
        answer = getattr(client, method)(address, {"to": "off"}, headers={"Accept": "text/html"})
        assert answer.status_code in {404, 405} or address == panel, (address, answer.status_code)
        assert b"Secret" not in answer.content.replace(b"Secret title", b""), address
    assert CronJob.objects.filter(pk__in=[world.job.pk, world.routine.id], enabled=True).count() == 2
    assert RunRecord.objects.filter(job=world.job).count() == 1
    assert ScheduledMessage.objects.get().status == "pending"


def test_the_owner_reaches_each_of_them(world: World) -> None:
    client = Client()
    client.force_login(world.session.owner)
    for address in world.addresses(world.session.pk):
        if not address.endswith(("switch/", "skip/", "withdraw/")):
            answer = client.get(address)
            assert answer.status_code == 200, address
            assert b"ecret" in answer.content, address


@pytest.mark.parametrize("key", ["%00", "x" * 3000, "..", "%F0%9F%92%A9", "<script>"])
@pytest.mark.parametrize("kind", ["automation", "routine", "message", "heartbeat", "nothing"])
def test_a_hostile_key_is_not_found(eve: tuple[Client, Any], kind: str, key: str) -> None:
    client, own = eve
    here = f"/sessions/{own}"
    for address in (
        f"{here}/appointments/{kind}/{key}/",
        f"{here}/appointments/{kind}/{key}/delete/",
        f"{here}/runs/{key}/",
        f"{here}/automations/{key}/",
    ):
        answer = client.get(address, headers={"Accept": "text/html"})
        assert answer.status_code == 404, (address[:80], answer.status_code)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"repeat": "daily", "time": "09:00", "message": "a\x00b"},
        {"repeat": "daily", "time": "09:00", "message": " "},
        {"repeat": "daily", "time": "09:00", "message": "x" * 30_000},
        {"repeat": "cron", "expr": "* * * * * *", "message": "news"},
        {"repeat": "cron", "expr": "0 9 31 2 *", "message": "news"},
        {"repeat": "once", "at": "2001-01-01T00:00", "message": "news"},
        {"repeat": "once", "at": "9999-12-31T23:59", "message": "news"},
        {"repeat": "every", "count": "9" * 30, "unit": "60", "message": "news"},
        {"repeat": "daily", "time": "09:00", "message": "news", "ends_at": "2001-01-01T00:00"},
        {"repeat": "daily", "time": "09:00", "message": "news", "timezone": "../../etc/passwd"},
        {"repeat": "daily", "time": "09:00", "message": "news", "max_runs": "0"},
    ],
)
def test_a_wrong_form_stores_nothing_and_says_why(eve: tuple[Client, Any], given: dict[str, str]) -> None:
    client, own = eve
    answer = client.post(f"/sessions/{own}/automations/new/", given)
    assert answer.status_code == 422
    assert b"error" in answer.content
    assert not CronJob.objects.filter(session_id=own).exists()
    preview = client.post(f"/sessions/{own}/automations/coming/", given)
    assert preview.status_code == 200


def test_the_lane_counts_slots_at_the_same_minute(world: World) -> None:
    for name in ("One", "Two"):
        schedule = {"kind": "cron", "expr": "59 23 * * *"}
        create_job(NewJob(session_id=world.session.pk, message="x", name=name, schedule=schedule))
    client = Client()
    client.force_login(world.session.owner)
    lane = client.get("/upcoming/").content.decode().partition("</svg></div></section>")[0]
    assert re.findall(r'<text class="count" x="479" y="22">(\d+)</text>', lane) == ["2"]
    assert "<title>23:59 One, 23:59 Two</title>" in lane


@pytest.mark.parametrize("since", ["", "2026-11-24", "0001-01-01", "9999-12-31", "x", "%00", "2026-13-01"])
def test_any_week_is_a_page(world: World, since: str) -> None:
    client = Client()
    client.force_login(world.session.owner)
    assert client.get(f"/upcoming/?from={since}").status_code == 200


def test_the_page_that_deletes_a_conversation_names_what_is_not_sent_any_more(world: World) -> None:
    client = Client()
    client.force_login(world.session.owner)
    asked = client.get(f"/sessions/{world.session.pk}/deleting/").content.decode()
    assert "Secret name" in asked
    assert "1 message scheduled in it is not sent any more" in asked
    assert "Secret text" in asked
    ScheduledMessage.objects.waiting().cancel()
    assert "Secret text" not in client.get(f"/sessions/{world.session.pk}/deleting/").content.decode()


@pytest.mark.parametrize("address", ["deleting/", "delete/"])
def test_a_primary_conversation_is_not_asked_about_but_refused_with_the_reason(
    world: World, address: str
) -> None:
    client = Client()
    client.force_login(world.session.owner)
    primary = primary_session(world.session.agent)
    send = client.get if address == "deleting/" else client.post
    refused = send(f"/sessions/{primary.pk}/{address}", headers={"Accept": "text/html"})
    assert refused.status_code == 409
    assert b"A primary session cannot be deleted by itself; delete its agent" in refused.content
    assert b"<form" not in refused.content
