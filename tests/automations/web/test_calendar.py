"""The calendar at a secret address: valid, with names and times only, and nothing without the secret."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from automations.models import MessageStatus, RunState, ScheduledMessage
from automations.runs.skips import GapReason
from interfaces.web.appointments.upcoming import READS
from sessions_app.limits.request_rate import take_allowance
from sessions_app.models import CalendarAddress
from tests.automations.jobs.made import EVERY, new, past_run
from tests.automations.messages import later
from tests.automations.web.test_addresses import signed_in
from tests.conftest import Person, new_person

pytestmark = pytest.mark.django_db


def address_of(person: Person) -> str:
    shown = signed_in(person).post("/account/calendar/").content.decode()
    return str(re.findall(r"<code>http://testserver(/calendar/.+?)</code>", shown)[0])


def read(address: str) -> list[dict[str, str]]:
    """The events, read as RFC 5545 says."""
    text = Client().get(address).content.decode()
    assert max(len(line.encode()) for line in text.split("\n")) <= 76  # with the CR
    found: list[dict[str, str]] = []
    for event in text.replace("\r\n ", "").split("\r\nBEGIN:VEVENT\r\n")[1:]:
        pairs = (line.partition(":") for line in event.split("\r\n"))
        found.append({name: re.sub(r"\\(.)", r"\1", value) for name, _, value in pairs})
    stamped = re.findall(r"\r\nDTSTAMP:\d{8}T\d{6}Z\r\n", text)
    assert len({each["UID"] for each in found}) == len(found) == len(stamped)
    return found


def test_a_program_reads_names_and_times(person: Person) -> None:
    session, name = person.session(), "Tea; milk, sugar \\ " + "é" * 40
    job = new(session, name=name, message="SECRET")
    new(session, name="Busy", message="SECRET", schedule=EVERY)
    days = [datetime.now(UTC).date() + timedelta(days=each) for each in (1, 2, 3)]
    rule = {
        "kind": "rrule",
        "rule": "FREQ=DAILY;UNTIL=" + f"{days[2]:%Y%m%d}",
        "starts_at": f"{days[0]}T09:00",
    }
    new(session, name="By rule", schedule=rule | {"timezone": "UTC", "except": [str(days[1])]})
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    for text in ("Call Ada", "Call off"):
        later(session, text, send_at=at.isoformat())
    ScheduledMessage.objects.filter(message_text="Call off").update(status=MessageStatus.CANCELLED)
    failed = past_run(job, 2, RunState.FAILED, "timeout", error_detail="SECRET")
    past_run(job, 3, RunState.SKIPPED, GapReason.OVERLAP)
    past_run(job, 8, RunState.SUCCEEDED)
    found, again = (read(address_of(person)) for _ in range(2))
    by_name = {each["SUMMARY"]: each for each in found}
    assert [each["DTSTART"] for each in found if each["SUMMARY"] == "By rule"] == [
        f"{day:%Y%m%d}T090000Z" for day in (days[0], days[2])
    ]
    assert by_name.keys() == {"By rule", name, f"{name} (failed)", "Busy", "Call Ada"}
    assert by_name[f"{name} (failed)"]["UID"] == failed.pk
    assert by_name["Call Ada"]["DTSTART"] == f"{at:%Y%m%dT%H%M%SZ}"
    assert sum(each["SUMMARY"] == name for each in found) == 62
    assert 62 <= sum("DTSTART;VALUE=DATE" in each for each in found) <= 63  # one of a day with many slots
    assert [each["UID"] for each in again] == [each["UID"] for each in found]
    assert "SECRET" not in repr(found)


def test_only_the_newest_secret_opens_it_and_nothing_keeps_it(person: Person) -> None:
    first, second = address_of(person), address_of(person)

    def statuses() -> list[int]:
        return [Client().get(each).status_code for each in (first, second)]

    answer: Any = Client().get(second)
    assert "no-store" in answer.headers["Cache-Control"]
    assert (answer.headers["Referrer-Policy"], dict(answer.cookies)) == ("no-referrer", {})
    assert second[10:-4] not in str(list(CalendarAddress.objects.values()))
    assert second not in signed_in(person).get("/account/").content.decode()
    for wrong in ("x", "A" * 5000, "%00", "é" * 43):
        assert Client().get(f"/calendar/{wrong}.ics").status_code == 404, wrong
    signed_in(new_person("eve")).post("/account/calendar/", {"to": "off"})
    assert statuses() == [404, 200]
    User.objects.update(is_active=False)
    assert statuses() == [404, 404]
    User.objects.update(is_active=True)
    taken = [take_allowance(f"calendar:{person.user.pk}", READS) for _ in range(READS.limit)]
    assert any(taken)
    assert statuses() == [404, 429]
    signed_in(person).post("/account/calendar/", {"to": "off"})
    assert statuses() == [404, 404]
