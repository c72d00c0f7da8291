"""Each address of appointments: another person's things do not exist there, and hostile input answers a page."""

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from django.test import Client

from automations.models import CronJob, RunRecord, ScheduledMessage
from sessions_app.sessions.open import open_session, primary_session
from tests.automations.jobs.made import add, new
from tests.automations.messages import later
from tests.conftest import Person, new_person

pytestmark = pytest.mark.django_db


def signed_in(person: Person) -> Client:
    client = Client(headers={"Accept": "text/html"})
    client.force_login(person.user)
    return client


class World:
    """What somebody has."""

    def __init__(self, owner: Person) -> None:
        self.client = signed_in(owner)
        self.session = owner.session(title="Secret title")
        self.job = new(self.session, message="secret words", name="Secret name")
        self.routine = add(owner, "Secret routine", schedule="1d", session_id=self.session.pk)
        self.message = later(self.session, "Secret text")
        slot = datetime(2026, 1, 1, tzinfo=UTC)
        about: dict[str, Any] = {"run_id": f"{self.job.pk}:1", "state": "skipped", "reason": "missed"}
        about |= {"session": self.session, "scheduled_for": slot, "finished_at": slot}
        self.run = RunRecord.objects.create(job=self.job, **about)

    def addresses(self, session_id: Any) -> list[str]:
        """Every address with these things, seen from a session."""
        here, job, routine = f"/sessions/{session_id}", self.job.pk, self.routine.pk
        kinds = (f"automation/{job}", f"routine/{routine}")
        shown = [f"{each}/{verb}" for each in kinds for verb in ("", "switch/", "delete/")]
        shown += ["", f"message/{self.message.pk}/"]
        others = [f"automations/{job}/", f"automations/{job}/skip/", f"runs/{self.run.run_id}/"]
        others += [f"automations/{job}/{verb}/" for verb in ("unskip", "pause")]
        slot = "2099-01-01T00:00:00%2B00:00"
        others += [f"automations/{job}/move/?slot={slot}", f"automations/{job}/move/?slot={slot}&to={slot}"]
        others += [f"messages/{self.message.pk}/withdraw/"]
        return [f"{here}/{each}" for each in (*(f"appointments/{each}" for each in shown), *others)]


@pytest.fixture
def world() -> World:
    return World(new_person("ada"))


@pytest.fixture
def eve() -> tuple[Client, Any]:
    """A browser of somebody else, and their conversation."""
    person = new_person("eve")
    return signed_in(person), person.session().pk


def check_hidden(world: World, client: Client, addresses: list[str], panel: str, known: bytes = b"") -> None:
    """Each address is none to this browser, but for the panel of its own, and changes nothing."""
    for address, method in product(addresses, ("get", "post")):
        answer = getattr(client, method)(address, {"to": "off"})
        assert answer.status_code in {404, 405} or address == panel, (address, answer.status_code)
        assert b"ecret" not in answer.content.replace(known, b""), address
    assert CronJob.objects.filter(pk__in=[world.job.pk, world.routine.pk], enabled=True).count() == 2
    assert RunRecord.objects.filter(job=world.job).count() == 1
    assert ScheduledMessage.objects.get().status == "pending"


def test_nothing_of_others_exists_in_any_conversation(world: World, eve: tuple[Client, Any]) -> None:
    client, own = eve
    forms = ("automations/new/", "automations/coming/", "messages/later/", "pause/")
    addresses = [f"/sessions/{world.session.pk}/{each}" for each in forms]
    addresses += [*world.addresses(world.session.pk), *world.addresses(own)]
    check_hidden(world, client, addresses, f"/sessions/{own}/appointments/")
    assert b"ecret" not in client.get("/upcoming/").content


def test_what_is_of_one_conversation_does_not_exist_in_another_of_the_same_person(world: World) -> None:
    other = open_session(world.session.agent, title="Other").pk
    known = b"Secret title"  # in the list of conversations
    check_hidden(world, world.client, world.addresses(other), f"/sessions/{other}/appointments/", known)


def test_the_owner_reaches_each_of_them(world: World) -> None:
    for address in world.addresses(world.session.pk):
        if not address.endswith(("switch/", "skip/", "withdraw/")):
            answer = world.client.get(address)
            assert answer.status_code == 200, address
            assert b"ecret" in answer.content, address


def test_a_hostile_key_is_not_found(eve: tuple[Client, Any]) -> None:
    client, own = eve
    kinds = ("automation", "routine", "message", "heartbeat", "nothing")
    for key in ("%00", "x" * 3000, "..", "%F0%9F%92%A9", "<script>"):
        parts = [f"appointments/{kind}/{key}/{verb}" for kind in kinds for verb in ("", "delete/")]
        for part in (*parts, f"runs/{key}/", f"automations/{key}/"):
            answer = client.get(f"/sessions/{own}/{part}")
            assert answer.status_code == 404, (part[:80], answer.status_code)


def test_a_wrong_form_stores_nothing_and_says_why(eve: tuple[Client, Any]) -> None:
    client, own = eve
    daily = {"repeat": "daily", "time": "09:00", "message": "news"}
    for given in (
        {},
        daily | {"message": "a\x00b"},
        {"repeat": "cron", "expr": "0 9 31 2 *", "message": "news"},
        {"repeat": "once", "at": "9999-12-31T23:59", "message": "news"},
        {"repeat": "every", "count": "9" * 30, "unit": "60", "message": "news"},
        daily | {"timezone": "../../etc/passwd"},
    ):
        answer = client.post(f"/sessions/{own}/automations/new/", given)
        assert answer.status_code == 422, given
        assert b"error" in answer.content, given
        assert not CronJob.objects.filter(session_id=own).exists()
        assert client.post(f"/sessions/{own}/automations/coming/", given).status_code == 200, given


def test_any_week_is_a_page(world: World) -> None:
    for since in ("", "2026-11-24", "0001-01-01", "9999-12-31", "x", "%00", "2026-13-01"):
        assert world.client.get(f"/upcoming/?from={since}").status_code == 200, since


def test_the_page_that_deletes_a_conversation_names_what_is_not_sent_any_more(world: World) -> None:
    asked = world.client.get(f"/sessions/{world.session.pk}/deleting/").content.decode()
    assert "Secret name" in asked
    assert "1 message scheduled in it is not sent any more" in asked
    assert "Secret text" in asked
    ScheduledMessage.objects.waiting().cancel()
    assert "Secret text" not in world.client.get(f"/sessions/{world.session.pk}/deleting/").content.decode()


def test_a_primary_conversation_is_not_asked_about_but_refused_with_the_reason(world: World) -> None:
    here = f"/sessions/{primary_session(world.session.agent).pk}"
    for refused in (world.client.get(f"{here}/deleting/"), world.client.post(f"{here}/delete/")):
        assert refused.status_code == 409
        assert b"A primary session cannot be deleted by itself; delete its agent" in refused.content
        assert b"<form" not in refused.content
