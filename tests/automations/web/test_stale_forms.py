"""A form that was open for a while replaces nothing that the person has not seen."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from automations.jobs.edit import update_job
from automations.models import CronJob, RunRecord
from automations.routines.edit import update_routine
from sessions_app.models import Session
from tests.automations.jobs.made import add, new
from tests.automations.web.test_addresses import signed_in
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(person: Person) -> Client:
    return signed_in(person)


def as_sent(client: Client, address: str) -> dict[str, Any]:
    """What a browser sends of the form at this address, if nobody changes a field."""
    page = client.get(address, headers={"HX-Request": "true"})
    fields = [(each.html_name, each.field.widget, each.value()) for each in page.context["form"]]
    shown = {name: widget.format_value(value) for name, widget, value in fields}
    shown["unit"] = shown["unit"] if shown["unit"] != [""] else "60"  # a list always sends an entry
    filled = {name: value for name, value in shown.items() if value not in (None, "", [])}
    sent = {name: value[0] if isinstance(value, list) else value for name, value in filled.items()}
    return sent | {"revision": page.context.get("revision", "")}


def made(person: Person, schedule: dict[str, Any]) -> tuple[CronJob, str]:
    session = person.session()
    job = new(session, message="news", name="News", schedule=schedule)
    return job, f"/sessions/{session.pk}/automations/{job.pk}/"


def test_an_old_form_does_not_take_back_what_was_changed_meanwhile(client: Client, person: Person) -> None:
    job, address = made(person, {"kind": "every", "seconds": 3600})
    sent = as_sent(client, address) | {"name": "Mine"}
    update_job(job.pk, {"message": "other news", "schedule": {"kind": "cron", "expr": "5 5 * * *"}})
    refused = client.post(address, sent, headers={"HX-Request": "true"})
    job.refresh_from_db()
    assert (job.name, job.message, job.expr) == ("News", "other news", "5 5 * * *")
    assert (refused.status_code, b"It was changed meanwhile." in refused.content) == (422, True)
    assert b'value="Mine"' in refused.content
    again = sent | {"revision": refused.context["revision"]}  # now the person knows
    assert client.post(address, again).status_code == 303
    job.refresh_from_db()
    assert (job.name, job.message, job.every_seconds) == ("Mine", "news", 3600)


def test_a_mistake_in_an_old_form_does_not_make_it_a_new_one(client: Client, person: Person) -> None:
    job, address = made(person, {"kind": "every", "seconds": 3600})
    sent = as_sent(client, address)
    update_job(job.pk, {"message": "other news"})
    refused = client.post(address, sent | {"max_retry": "-1"})
    assert refused.status_code == 422
    assert client.post(address, sent | {"revision": refused.context["revision"]}).status_code == 422
    job.refresh_from_db()
    assert job.message == "other news"


def test_an_old_form_of_a_routine_undoes_nothing(client: Client, person: Person, session: Session) -> None:
    routine = add(person, "Read", schedule="2h", session_id=session.pk)
    address = f"/sessions/{session.pk}/routines/{routine.pk}/"
    sent = as_sent(client, address) | {"description": "mine"}
    update_routine(routine.pk, {"title": "Read the news"})
    refused = client.post(address, sent)
    routine.refresh_from_db()
    assert (refused.status_code, routine.name, routine.description) == (422, "Read the news", "")
    again = {"repeat": "weekdays", "time": "07:30", "timezone": "Europe/Berlin"}
    again |= {"revision": refused.context["revision"]}
    assert client.post(address, sent | again).status_code == 303
    routine.refresh_from_db()
    assert (routine.name, routine.description, routine.max_retry) == ("Read", "mine", 3)
    assert (routine.expr, routine.timezone) == ("30 7 * * 1-5", "Europe/Berlin")


def test_a_text_is_changed_without_moving_a_time_that_has_seconds(client: Client, person: Person) -> None:
    at = (datetime.now(UTC) + timedelta(minutes=2)).replace(second=47, microsecond=250_000)
    job, address = made(person, {"kind": "at", "at": at.isoformat()})
    end = at.replace(microsecond=500_000) + timedelta(days=1)
    update_job(job.pk, {"ends_at": end.isoformat()})
    assert client.post(address, as_sent(client, address) | {"message": "other news"}).status_code == 303
    job.refresh_from_db()
    assert (job.message, job.at, job.ends_at) == ("other news", at, end)


def test_as_many_slots_are_skipped_as_the_form_says(client: Client, person: Person) -> None:
    job, address = made(person, {"kind": "every", "seconds": 3600})
    for given, skipped in (("3", 3), ("", 3), ("x", 3), ("1", 4)):
        client.post(f"{address}skip/", {"slots": given})
        assert RunRecord.objects.get(job=job).slots_count == skipped, given
    why = client.get(f"/sessions/{job.session_id}/appointments/automation/{job.pk}/")
    assert f'action="{address}unskip/"' in why.content.decode()
    client.post(f"{address}unskip/")
    assert not RunRecord.objects.filter(job=job).exists()


def test_an_undo_takes_nothing_back_that_was_changed_since(client: Client, person: Person) -> None:
    job, _ = made(person, {"kind": "every", "seconds": 3600})
    switch = f"/sessions/{job.session_id}/appointments/automation/{job.pk}/switch/"
    [said] = client.post(switch, {"to": "off"}, follow=True).context["messages"]
    assert job.name in said.message
    update_job(job.pk, {"message": "other news"})
    assert client.post(said.extra_tags).status_code >= 400
    assert not CronJob.objects.get(pk=job.pk).enabled
