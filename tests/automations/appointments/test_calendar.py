"""A user's slots over all conversations: past and coming, in days of a zone, bounded."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from automations.appointments.calendar import MOST_ENTRIES, Entry, upcoming
from automations.appointments.panel import attention
from automations.models import CronJob, JobClock, MessageStatus, RunRecord, RunState, ScheduledMessage
from automations.runs.skips import run_id
from automations.scheduled_messages import MessageToSchedule, schedule_message
from sessions_app.exceptions import BadInput
from sessions_app.models import ConsentQuestion, ExecutionState
from tests.automations.jobs.made import DAILY, new
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("4.5")

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = {"kind": "cron", "expr": "* * * * *", "timezone": "Europe/Berlin"}


def add_runs(job: CronJob, slots: list[datetime], **fields: Any) -> None:
    given: dict[str, Any] = {"state": RunState.SUCCEEDED, "finished_at": slots[0]} | fields
    RunRecord.objects.bulk_create(
        RunRecord(job=job, run_id=run_id(job.pk, slot), scheduled_for=slot, **given) for slot in slots
    )


def minutes(begin: datetime, number: int) -> list[datetime]:
    return [begin + timedelta(minutes=minute) for minute in range(number)]


def day_of(local: datetime) -> dict[str, Any]:
    """The arguments for the day of Berlin that begins then."""
    end = datetime.combine(local.date() + timedelta(days=1), time(), BERLIN)
    return {"since": local, "until": end, "zone": BERLIN}


def local_midnight(days: int) -> datetime:
    return datetime.combine(datetime.now(BERLIN).date() + timedelta(days=days), time(), BERLIN)


def shown(found: list[Entry]) -> list[tuple[str, str]]:
    return [(each.name, each.state) for each in found]


def test_past_and_coming_slots_of_all_sessions(person: Person) -> None:
    first, second = person.session(title="One"), person.session(title="Two")
    job, other = new(first, name="job"), new(second, name="other")
    old = local_midnight(-3) + timedelta(hours=9)
    add_runs(job, [old], lag_ms=90_000, duration_ms=1_000)
    add_runs(other, [old + timedelta(minutes=1)], state=RunState.FAILED, reason="timeout")
    found = upcoming(person.user, **day_of(local_midnight(-3)))
    assert shown(found) == [("job", "late"), ("other", "failed")]
    assert [(each.title, each.session_id, each.agent) for each in found] == [
        ("One", first.pk, "demo"),
        ("Two", second.pk, "demo"),
    ]
    assert found[0].at.isoformat()[10:16] == "T09:00"
    assert (found[0].text, found[0].run_id) == ("Ran 1 min 30 s late. It took 1 s.", run_id(job.pk, old))
    coming = upcoming(person.user, **day_of(local_midnight(2)))
    assert shown(coming) == [("job", "next"), ("other", "next")]
    assert coming[0].text == "every day at 09:00 (Europe/Berlin)"
    assert coming[0].at == local_midnight(2) + timedelta(hours=9)
    assert upcoming(new_person("bob").user, **day_of(local_midnight(-3))) == []


def test_a_job_every_minute_is_one_entry_a_day(person: Person) -> None:
    job = new(person.session(), schedule=MINUTE)
    midnight = local_midnight(-3)
    length = local_midnight(-2).astimezone(UTC) - midnight.astimezone(UTC)
    add_runs(job, minutes(midnight.astimezone(UTC), length // timedelta(minutes=1)))
    RunRecord.objects.filter(scheduled_for__lt=midnight + timedelta(minutes=2)).update(state=RunState.FAILED)
    [past] = upcoming(person.user, **day_of(midnight))
    assert past.count == length // timedelta(minutes=1)
    assert (past.at, past.state) == (midnight, "failed")
    assert past.until is not None
    assert past.until.isoformat()[10:16] == "T23:59"
    assert past.text == f"every minute (Europe/Berlin): {past.count - 2:,} ran, 2 failed"
    coming = upcoming(person.user, **day_of(local_midnight(200)))
    assert [each.state for each in coming] == ["next"]
    ahead = local_midnight(201).astimezone(UTC) - local_midnight(200).astimezone(UTC)
    assert coming[0].count == ahead // timedelta(minutes=1)
    assert coming[0].text == f"every minute (Europe/Berlin), {coming[0].count:,} times"
    assert coming[0].at == local_midnight(200)


def test_a_gap_from_before_the_range_is_shown_in_it(person: Person) -> None:
    job = new(person.session())
    begin = local_midnight(-9)
    gap: dict[str, Any] = {"slots_from": begin, "slots_to": local_midnight(-3), "slots_count": 7}
    add_runs(job, [begin], state=RunState.SKIPPED, reason="missed", **gap)
    [entry] = upcoming(person.user, **day_of(local_midnight(-5)))
    assert (entry.at, entry.until, entry.state) == (begin, local_midnight(-3), "missed")
    assert upcoming(person.user, **day_of(local_midnight(-2))) == []


def test_a_day_with_few_slots_is_listed_in_full_and_coming_ones_end_with_the_runs(person: Person) -> None:
    job = new(person.session(), schedule=MINUTE, max_runs=4)
    for number, entries in ((6, 6), (7, 1)):
        add_runs(job, minutes(local_midnight(-3), number))
        assert len(upcoming(person.user, **day_of(local_midnight(-3)))) == entries
        RunRecord.objects.all().delete()
    CronJob.objects.filter(pk=job.pk).update(expr=DAILY["expr"])
    now = datetime.now(UTC)
    found = upcoming(person.user, now, now + timedelta(days=30))
    assert len(found) == len({each.at for each in found}) == 4


def test_paused_and_due_jobs_have_no_coming_slot(person: Person) -> None:
    session = person.session()
    new(session, enabled=False)
    due = new(session, schedule={"kind": "every", "seconds": 86_400})
    now = datetime.now(UTC)
    CronJob.objects.filter(pk=due.pk).update(anchor=now - timedelta(hours=1))
    JobClock.objects.filter(pk=due.pk).update(next_run_at=now - timedelta(hours=1))
    found = upcoming(person.user, now - timedelta(hours=2), now + timedelta(days=1))
    assert [each.at for each in found] == [
        now.replace(microsecond=now.microsecond // 1000 * 1000) + timedelta(hours=23)
    ]


def test_the_entries_are_bounded(person: Person) -> None:
    for number in range(10):
        new(person.session(), name=f"job {number}", schedule=DAILY | {"expr": "0 9,17 * * *"})
    now = datetime.now(UTC)
    found = upcoming(person.user, now, now + timedelta(days=60))
    assert len(found) == MOST_ENTRIES
    assert found == sorted(found, key=lambda each: each.at)
    for until in (now, now + timedelta(days=63)):
        with pytest.raises(BadInput):
            upcoming(person.user, now, until)


def test_messages_are_in_the_calendar(person: Person) -> None:
    session = person.session()
    for day in (1, 2):
        at = datetime.now(UTC) + timedelta(days=day)
        given = MessageToSchedule(session_id=session.pk, send_at=at.isoformat(), message_text=f"text {day}")
        schedule_message(given)
    ScheduledMessage.objects.filter(message_text="text 1").update(status=MessageStatus.CANCELLED)
    now = datetime.now(UTC)
    assert shown(upcoming(person.user, now, now + timedelta(days=7))) == [("text 2", "next")]


def test_attention_lists_what_needs_a_person(person: Person, telegram: None) -> None:
    session = person.session(title="One")
    failing, disabled = new(session, name="failing"), new(session, name="disabled")
    fine, paused = new(session, name="fine"), new(session, name="paused", enabled=False)
    now = datetime.now(UTC)
    for job in (failing, paused):
        add_runs(job, [now - timedelta(hours=1)], state=RunState.FAILED, reason="timeout")
    add_runs(fine, [now - timedelta(hours=1)])
    CronJob.objects.filter(pk=disabled.pk).update(enabled=False, fault="SECRET")
    ExecutionState.objects.create(
        id="e1", session=session, status="waiting_user", question="Which\nday?", asked_at=now, request="x"
    )
    ConsentQuestion.objects.create(
        id="c1", session=session, turn_id=1, text="May I?", calls=[{"id": "1"}], asked_seq=1, asked_at=now
    )
    found = attention(person.user)
    assert [(each.what, each.name) for each in found] == [
        ("question", ""),
        ("question", ""),
        ("disabled", "disabled"),
        ("failing", "failing"),
    ]
    assert [each.text for each in found[:2]] == ["Which day?", "May I?"]
    assert found[3].text == "Failed: it took too long."
    assert {each.title for each in found} == {"One"}
    assert "SECRET" not in repr(found)
    assert attention(new_person("bob").user) == []


@pytest.mark.usefixtures("real_telegram")
def test_attention_tells_of_answers_that_nobody_gets(person: Person) -> None:
    session = person.session()
    new(session, name="mute")
    type(session).objects.filter(pk=session.pk).update(channel="telegram", chat_id="42")
    [notice] = attention(person.user)
    assert (notice.what, notice.name) == ("undeliverable", "mute")
    assert notice.text.startswith("Answers cannot be delivered by 'telegram'")
