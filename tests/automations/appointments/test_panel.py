"""The appointments of a conversation: each slot with what became of it, in a constant number of statements."""

from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agent_core.connections import USED_UP, hooks
from agent_core.text.formats import utc_text
from automations.appointments.calendar import MOST_ENTRIES, Entry, upcoming
from automations.appointments.notices import attention
from automations.appointments.panel import Appointment, appointments_of, why
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.fire_messages import fire_due_messages
from automations.jobs.edit import NewJob, bind_job, update_job
from automations.jobs.explain import explain
from automations.jobs.failing import free_slowed
from automations.models import (
    CronJob,
    JobClock,
    JobHealth,
    JobPreflight,
    RunRecord,
    RunState,
    ScheduledMessage,
)
from automations.runs.describe import CANCELLED, SlotState, slot_state
from automations.runs.skips import GapReason, run_id
from interfaces.web.cures import CURED_IN, cured_in
from sessions_app.connections.edit import add_connection
from sessions_app.connections.usable import CURES, uncallable, usable
from sessions_app.exceptions import BadInput
from sessions_app.models import Agent, Connection, ConsentQuestion, ExecutionState, Session
from sessions_app.sessions.open import primary_session
from tests.automations.jobs.made import DAILY, add, new
from tests.automations.messages import later
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("4.5")

DAY = datetime(2026, 11, 20, 8, tzinfo=UTC)
LATER = "2099-01-01T09:00:00Z"


def add_runs(job: CronJob, days: int = 1, **fields: Any) -> None:
    given = {"finished_at": DAY, "lag_ms": 100, "duration_ms": 2_000} | fields
    add_runs_at(job, [DAY + timedelta(days=day) for day in range(days)], **given)


def named(found: list[Appointment]) -> dict[str, Appointment]:
    return {each.name: each for each in found}


FAILED = {"retry_error", "superseded"}
OUTCOMES: list[tuple[dict[str, Any], SlotState]] = [
    *(
        ({"state": "succeeded", "lag_ms": 60_000}, SlotState.RAN),
        ({"state": "succeeded", "lag_ms": 60_001}, SlotState.LATE),
    ),
    ({"state": "failed", "lag_ms": 90_000}, SlotState.FAILED),
    *(({"state": state}, SlotState.WAITING) for state in ("queued", "running")),
    ({"state": "skipped", "reason": GapReason.MISSED}, SlotState.MISSED),
    ({"state": "skipped", "reason": GapReason.OVERLAP}, SlotState.SKIPPED),
    ({"state": "skipped", "reason": GapReason.SCHEDULE_ERROR}, SlotState.FAILED),
    *(({"state": "cancelled", "reason": each}, SlotState.FAILED) for each in FAILED),
    *(({"state": "cancelled", "reason": each}, SlotState.SKIPPED) for each in {*CANCELLED} - FAILED),
]


def test_a_slot_has_one_word_for_its_outcome() -> None:
    for fields, expected in OUTCOMES:
        assert slot_state(RunRecord(scheduled_for=DAY, **fields)) is expected, fields


@pytest.mark.rule("11.2")
def test_skipped_slots_do_not_hide_the_trouble_of_the_run_before(session: Session, job: CronJob) -> None:
    last: tuple[dict[str, Any], ...] = (
        {"state": RunState.FAILED, "reason": "timeout"},
        {"state": RunState.SKIPPED, "reason": GapReason.BACKOFF},
        {"state": RunState.SUCCEEDED, "attention": "needs_consent"},
        {"state": RunState.QUEUED, "finished_at": None},
    )
    troubles = []
    for number, fields in enumerate(last):
        add_runs_at(job, [DAY + timedelta(days=number)], **{"finished_at": DAY} | fields)
        trouble = appointments_of(session.owner, session.pk)[0].trouble
        troubles.append(trouble and trouble.state)
    assert troubles == [SlotState.FAILED, SlotState.FAILED, SlotState.ATTENTION, None]


@pytest.mark.rule("11.2", "11.5")
def test_a_card_says_one_cause_once_and_the_former_one_behind_it(session: Session, job: CronJob) -> None:
    """402, then 500: of the same cause preflight knows as well."""
    add_connection(session.owner, "work", {"provider": "ollama", "base_url": "https://models.example/v1"})
    Agent.objects.update(model="work:gpt-5")
    cure, now = CURES["model_quota"], datetime.now(UTC)
    Connection.objects.update(updated_at=now - timedelta(days=1))  # not since the run
    quota = {"state": RunState.FAILED, "reason": "model_quota", "error": "It refused the request (402)."}
    add_runs_at(job, [now - timedelta(hours=2)], finished_at=now, **quota)
    for is_known in (False, True):
        if is_known:
            problem = {"code": "bad_model", "text": uncallable("work:gpt-5", USED_UP), "since": utc_text(now)}
            JobPreflight.objects.filter(job=job).update(problems=[problem])
        [card] = appointments_of(session.owner, session.pk)
        said = " ".join((card.trouble_text, card.now, *card.warnings))
        assert (said.count(cure), card.before, cured_in(card.codes)) == (1, (), CURED_IN["model_quota"]), said
    away = {"reason": "model_unavailable", "attempt": 2, "not_before": now + timedelta(days=2)}
    add_runs_at(job, [now - timedelta(hours=1)], state=RunState.QUEUED, finished_at=None, **away)
    [card] = appointments_of(session.owner, session.pk)
    assert (card.trouble_text, card.codes[0], cure in card.now) == ("", "model_unavailable", False)
    assert [cure in each for each in card.before] == [True], "it is said once, though two have found it"
    assert card.next[0].strftime("%H:%M") in card.now, "the next slot comes before the attempt"


@pytest.mark.rule("11.2", "11.5")
def test_one_cause_of_a_connection_is_one_notice_and_calm_once_it_works(
    person: Person, client: Client
) -> None:
    """402, then 500, then it works again."""
    row = add_connection(person.user, "mine", {"provider": "ollama", "base_url": "https://models.example/v1"})
    Agent.objects.update(model="mine:m")
    session, now = person.session(title="One"), datetime.now(UTC)
    jobs = [new(session, name=f"job {number}") for number in range(3)]
    quota = {"state": RunState.FAILED, "reason": "model_quota", "error": "It refused the request (402)."}
    away = "The model provider failed (500)"
    runs: list[dict[str, Any]] = [
        quota,
        quota | {"reason": "model_unavailable", "error": f"{away}; tried 3 times."},
        {"state": RunState.QUEUED, "reason": "model_unavailable", "error": f"{away}.", "finished_at": None}
        | {"attempt": 2, "not_before": now + timedelta(minutes=1)},
    ]
    slow = {"failures_in_a_row": 5, "failing_since": now - timedelta(hours=2), "failed_last": now}
    for job, fields in zip(jobs, runs, strict=True):
        JobHealth.objects.create(job=job, told="slowed", **slow)
        given = {"finished_at": now - timedelta(minutes=5)} | fields
        add_runs_at(job, [now - timedelta(hours=1)], started_at=now - timedelta(minutes=6), **given)
    Connection.objects.update(last_error=away, state_since=now - timedelta(minutes=4))
    [notice] = attention(person.user)
    assert (notice.connection, len(notice.also)) == ("mine", 2)
    assert away in notice.text
    assert "tried" not in notice.text.replace("tries again", ""), (
        "what is tried within an attempt is no attempt"
    )
    assert f"{now + timedelta(minutes=1):%H:%M}" in notice.text
    client.force_login(person.user)
    page = client.get("/upcoming/").content.decode()
    resume = reverse("switch", args=[session.pk, notice.kind, notice.id])
    shown_once = [page.count(f"#appointment-{each.id}") for each in (notice, *notice.also)]
    assert (shown_once, resume in page, reverse("agent", args=["demo"]) in page) == ([1, 1, 1], True, True)
    cards = named(appointments_of(person.user, session.pk))
    said = {name: " ".join((card.trouble_text, card.now, *card.warnings)) for name, card in cards.items()}
    assert ("402" in said["job 0"], "500" in said["job 0"]) == (False, True), said["job 0"]
    assert ["402" in each for each in cards["job 0"].before] == [True]
    RunRecord.objects.filter(job=jobs[1]).update(reason="timeout")
    hooks.report(usable(row), "")
    freed = dict(JobHealth.objects.values_list("job__name", "failures_in_a_row"))
    assert freed == {"job 0": 0, "job 1": 5, "job 2": 0}, "a timeout is of no connection"
    assert [each.name for each in attention(person.user)] == ["job 1"]
    card = named(appointments_of(person.user, session.pk))["job 0"]
    assert (card.is_failing, "402" in card.trouble_text + card.now, "402" in card.before[0]) == (
        False,
        False,
        True,
    )
    JobHealth.objects.filter(job=jobs[0]).update(**slow)
    free_slowed(row.pk)
    assert JobHealth.objects.get(job=jobs[0]).is_slowed, "once a day"


def test_the_last_slots_come_oldest_first_in_the_zone(person: Person, session: Session, job: CronJob) -> None:
    add_runs(job, 25)
    [shown] = appointments_of(person.user, session.pk)
    assert (shown.kind, shown.id, shown.words) == ("automation", job.pk, "every day at 09:00 (Europe/Berlin)")
    assert [slot.at for slot in shown.last] == [DAY + timedelta(days=day) for day in range(5, 25)]
    assert shown.last[0].at.isoformat() == "2026-11-25T09:00:00+01:00"
    ran = ("ran", "Ran. It took 2 s.", None)
    assert {(slot.state, slot.text, slot.until) for slot in shown.last} == {ran}
    assert len(shown.next) == 3
    assert shown.next == explain(person.user, job.pk).next[:3]
    assert shown.now.startswith("Next run: ")
    assert (shown.state, shown.enabled, shown.editable, shown.is_failing) == ("scheduled", True, True, False)


def test_a_gap_is_one_slot_from_start_to_end(person: Person, session: Session, job: CronJob) -> None:
    gap: dict[str, Any] = {"slots_from": DAY, "slots_to": DAY + timedelta(days=2), "slots_count": 3}
    add_runs(job, state=RunState.SKIPPED, reason="missed", lag_ms=None, duration_ms=None, **gap)
    [slot] = appointments_of(person.user, session.pk)[0].last
    assert (slot.at, slot.until, slot.count) == (DAY, DAY + timedelta(days=2), 3)
    assert (slot.state, slot.run_id) == ("missed", run_id(job.pk, DAY))


def test_failing_appointments_come_first_then_by_time(person: Person, session: Session) -> None:
    soon, far = new(session, name="soon"), new(session, name="far", schedule={"kind": "at", "at": LATER})
    failed, faulty = new(session, name="failed"), new(session, name="faulty")
    paused = new(session, name="paused", enabled=False)
    add_runs(failed, state=RunState.FAILED, reason="timeout")
    add_runs(far, state=RunState.SUCCEEDED)
    add_runs(paused, state=RunState.FAILED, reason="timeout")
    CronJob.objects.filter(pk=faulty.pk).update(enabled=False, fault="boom")
    JobClock.objects.filter(pk=faulty.pk).update(next_run_at=None)
    found = appointments_of(person.user, session.pk)
    assert [each.name for each in found] == ["failed", "faulty", "soon", "far", "paused"]
    assert [each.state for each in found] == ["scheduled", "failed", "scheduled", "scheduled", "paused"]
    assert [each.is_failing for each in found] == [True, True, False, False, False]
    add_runs(soon, state=RunState.QUEUED, finished_at=None)
    assert named(appointments_of(person.user, session.pk))["soon"].last[0].state == "waiting"


@pytest.mark.parametrize(("ended", "reason"), [("failed", "timeout"), ("cancelled", "superseded")])
def test_a_later_success_ends_the_failing(person: Person, session: Session, ended: str, reason: str) -> None:
    job = new(session)
    add_runs(job, state=ended, reason=reason)
    assert appointments_of(person.user, session.pk)[0].is_failing
    slot = DAY + timedelta(days=1)
    for state, expected in ((RunState.SKIPPED, True), (RunState.SUCCEEDED, False)):
        slot += timedelta(days=1)
        why = "overlap" if state == RunState.SKIPPED else ""
        fields = {"scheduled_for": slot, "finished_at": slot, "reason": why}
        RunRecord.objects.create(job=job, run_id=f"r{slot}", state=state, **fields)
        assert appointments_of(person.user, session.pk)[0].is_failing is expected


def test_a_one_time_job_that_failed_and_was_rescheduled_is_not_failing(person: Person) -> None:
    session = person.session()
    job = new(session, schedule={"kind": "at", "at": LATER})
    CronJob.objects.filter(pk=job.pk).update(at=DAY)
    JobClock.objects.filter(pk=job.pk).update(next_run_at=None)
    add_runs(job, state=RunState.FAILED, reason="timeout")
    assert appointments_of(person.user, session.pk)[0].is_failing
    update_job(job.pk, {"schedule": {"kind": "at", "at": LATER}})
    assert not appointments_of(person.user, session.pk)[0].is_failing


@pytest.mark.django_db(transaction=True)
def test_each_conversation_shows_what_lives_in_it() -> None:
    person = new_person("ada", dreams=True)
    thread, primary = person.session(), primary_session(person.agent)
    CronJob.objects.filter(system_event="heartbeat").update(enabled=False)
    add(person, "all", schedule="1h")
    add(person, "mine", schedule="1h", session_id=thread.pk)
    new(thread, name="job")
    assert set(named(appointments_of(person.user, thread.pk))) == {"mine", "job"}
    shown = named(appointments_of(person.user, primary.pk))
    kinds = {name: (each.kind, each.editable, each.state) for name, each in shown.items()}
    assert kinds == {"all": ("routine", True, "scheduled"), "Heartbeat": ("heartbeat", False, "off")}
    assert {each.session_id for each in shown.values()} == {primary.pk}
    assert named(appointments_of(person.user, thread.pk))["mine"].session_id == thread.pk


def test_a_unified_thread_also_shows_the_primary_sessions(person: Person) -> None:
    thread = person.session()
    new(thread, name="old")
    Agent.objects.filter(pk=person.agent.pk).update(unified_session=True)
    bind_job(NewJob(session_id=thread.pk, message="go", name="new", schedule=DAILY))
    add(person, "all", schedule="1h")
    assert set(named(appointments_of(person.user, thread.pk))) == {"old", "new", "all"}


def test_scheduled_messages_wait_are_sent_and_fail(person: Person, session: Session) -> None:
    message = later(session, "Happy\nnew year!")
    [shown] = appointments_of(person.user, session.pk)
    assert (shown.kind, shown.name, shown.state) == ("message", "Happy new year!", "scheduled")
    assert (shown.now, shown.words) == ("Will be sent: 2099-01-01 09:00.", "once at 2099-01-01 09:00 (UTC)")
    assert (shown.last, shown.editable, len(shown.next)) == ((), False, 1)
    rows = ScheduledMessage.objects.filter(pk=message.pk)
    rows.update(send_at=datetime.now(UTC) - timedelta(seconds=1))
    assert appointments_of(person.user, session.pk)[0].now.endswith("beat has not queued it yet.")
    fire_due_messages()
    [shown] = appointments_of(person.user, session.pk)
    assert (shown.last[0].state, shown.next) == ("waiting", ())
    RunRecord.objects.update(state=RunState.SUCCEEDED, finished_at=DAY)
    rows.update(status="failed", last_error="the channel refused it", updated_at=datetime.now(UTC))
    [shown] = appointments_of(person.user, session.pk)
    assert (shown.is_failing, shown.now) == (True, "Not sent: the channel refused it.")
    assert (shown.last[0].state, shown.last[0].text) == ("failed", shown.now)
    said = why(person.user, "message", message.pk)
    assert (said.now, said.last[0].text) == (shown.now, shown.now)
    rows.update(updated_at=DAY - timedelta(days=3))
    assert appointments_of(person.user, session.pk) == []


@pytest.mark.django_db(transaction=True)
def test_why_explains_jobs_routines_and_heartbeats() -> None:
    person = new_person("ada", dreams=True)
    job, routine = new(person.session()), add(person, "all", schedule="1h")
    heartbeat = CronJob.objects.get(system_event="heartbeat")
    assert why(person.user, "automation", job.pk) == explain(person.user, job.pk)
    assert why(person.user, "routine", routine.pk).words == "every hour"
    assert why(person.user, "heartbeat", heartbeat.pk).now.startswith("Next run: ")
    JobClock.objects.filter(pk=routine.pk).update(next_run_at=DAY)
    person.user.is_active = False
    person.user.save()
    assert why(person.user, "routine", routine.pk).now == "Not run: the owner's account is inactive."


def test_the_number_of_statements_is_constant(person: Person, session: Session) -> None:
    add_connection(person.user, "work", {"provider": "ollama", "base_url": "https://models.example/v1"})
    Agent.objects.update(model="work:m", fallback_model="work:n")

    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            appointments_of(person.user, session.pk)
        return len(captured)

    def add(number: int) -> None:
        for _ in range(number):
            job = new(session)
            add_runs(job, 3)
            JobClock.objects.filter(pk=job.pk).update(next_run_at=datetime.now(UTC).replace(microsecond=0))
            later(session, "hi")
        fire_due_jobs()

    add(1)
    few = statements()
    add(5)
    assert len(appointments_of(person.user, session.pk)) == 12
    assert statements() == few <= 15


BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = {"kind": "cron", "expr": "* * * * *", "timezone": "Europe/Berlin"}


def add_runs_at(job: CronJob, slots: list[datetime], **fields: Any) -> None:
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
    add_runs_at(job, [old], lag_ms=90_000, duration_ms=1_000)
    add_runs_at(other, [old + timedelta(minutes=1)], state=RunState.FAILED, reason="timeout")
    found = upcoming(person.user, **day_of(local_midnight(-3)))
    assert shown(found) == [("job", "late"), ("other", "failed")]
    found_in = [(each.title, each.session_id, each.agent) for each in found]
    assert found_in == [("One", first.pk, "demo"), ("Two", second.pk, "demo")]
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
    add_runs_at(job, minutes(midnight.astimezone(UTC), length // timedelta(minutes=1)))
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
    job, begin = new(person.session()), local_midnight(-9)
    gap: dict[str, Any] = {"slots_from": begin, "slots_to": local_midnight(-3), "slots_count": 7}
    add_runs_at(job, [begin], state=RunState.SKIPPED, reason="missed", **gap)
    [entry] = upcoming(person.user, **day_of(local_midnight(-5)))
    assert (entry.at, entry.until, entry.state) == (begin, local_midnight(-3), "missed")
    assert upcoming(person.user, **day_of(local_midnight(-2))) == []


def test_a_day_with_few_slots_is_listed_in_full_and_coming_ones_end_with_the_runs(person: Person) -> None:
    job = new(person.session(), schedule=MINUTE, max_runs=4)
    for number, entries in ((6, 6), (7, 1)):
        add_runs_at(job, minutes(local_midnight(-3), number))
        assert len(upcoming(person.user, **day_of(local_midnight(-3)))) == entries
        RunRecord.objects.all().delete()
    CronJob.objects.filter(pk=job.pk).update(expr=DAILY["expr"])
    now = datetime.now(UTC)
    found = upcoming(person.user, now, now + timedelta(days=30))
    assert len(found) == len({each.at for each in found}) == 4


def test_paused_and_due_jobs_have_no_coming_slot(person: Person, session: Session) -> None:
    new(session, enabled=False)
    due = new(session, schedule={"kind": "every", "seconds": 86_400})
    now = datetime.now(UTC)
    CronJob.objects.filter(pk=due.pk).update(anchor=now - timedelta(hours=1))
    JobClock.objects.filter(pk=due.pk).update(next_run_at=now - timedelta(hours=1))
    found = upcoming(person.user, now - timedelta(hours=2), now + timedelta(days=1))
    grid = now.replace(microsecond=now.microsecond // 1000 * 1000)
    assert [each.at for each in found] == [grid + timedelta(hours=23)]


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


def test_attention_lists_what_needs_a_person(person: Person, telegram: None) -> None:
    session = person.session(title="One")
    failing, disabled = new(session, name="failing"), new(session, name="disabled")
    fine, paused = new(session, name="fine"), new(session, name="paused", enabled=False)
    now = datetime.now(UTC)
    for job in (failing, paused):
        add_runs_at(job, [now - timedelta(hours=1)], state=RunState.FAILED, reason="model_quota")
    add_runs_at(fine, [now - timedelta(hours=1)])
    CronJob.objects.filter(pk=disabled.pk).update(enabled=False, fault="SECRET")
    asked: dict[str, Any] = {"session": session, "asked_at": now}
    ExecutionState.objects.create(pk="p", status="waiting_user", question="Which\nday?", request="x", **asked)
    asked |= {"run": RunRecord.objects.get(job=failing).pk, "same_call": "x", "expires_at": now}
    ConsentQuestion.objects.create(turn_id=1, text="May I?", calls=[{"id": "1"}], asked_seq=1, **asked)
    found = attention(person.user)
    named = [(each.what, each.name) for each in found]
    assert named == [
        ("question", ""),
        ("question", "failing"),
        ("disabled", "disabled"),
        ("failing", "failing"),
    ]
    assert [each.text for each in found[:2]] == ["Which day?", "May I?"]
    assert (found[0].execution, found[3].run_id) == ("p", RunRecord.objects.get(job=failing).pk)
    assert found[3].text.endswith(CURES["model_quota"])
    assert {each.title for each in found} == {"One"}
    add_runs_at(fine, [now], state=RunState.FAILED, reason="model_quota")
    [*_, told] = attention(person.user)
    assert (told.name, [each.name for each in told.also]) in (("failing", ["fine"]), ("fine", ["failing"]))
    assert "SECRET" not in repr(found)
    assert attention(new_person("bob").user) == []


@pytest.mark.usefixtures("real_telegram")
def test_attention_tells_of_answers_that_nobody_gets(person: Person, session: Session) -> None:
    new(session, name="mute")
    type(session).objects.filter(pk=session.pk).update(channel="telegram", chat_id="42")
    [notice] = attention(person.user)
    assert (notice.what, notice.name) == ("undeliverable", "mute")
    assert notice.text.startswith("Answers cannot be delivered by 'telegram'")
