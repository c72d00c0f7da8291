"""An automation explains itself: the last slots, this moment, the next ones. Each reason has its own sentence."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent_core.exceptions import ModelError
from agent_core.turn.endings import ERROR_TEXTS
from automations.appointments.calendar import upcoming
from automations.appointments.notices import attention
from automations.appointments.panel import appointments_of
from automations.exceptions import JobNotFound
from automations.jobs.edit import update_job
from automations.jobs.explain import Explanation, explain
from automations.models import CronJob, JobClock, JobHealth, RunRecord, RunState
from automations.models.health import SLOW_INTERVAL, SLOWED_AFTER
from automations.runs import describe
from automations.runs.describe import describe_run, span
from automations.runs.skips import GapReason
from sessions_app.agents.edit import update_agent
from sessions_app.channels import base as channels
from sessions_app.connections.usable import CURES
from sessions_app.models import Session, SessionState, Spending, Turn, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.spending.accounts import mark_stopped, set_user_caps
from sessions_app.spending.caps import period_of
from sessions_app.worker.sweep import ToolHung
from tests.automations.jobs.made import DAILY, EVERY, new
from tests.automations.turn_kinds.test_bound import fire
from tests.conftest import Person, new_person
from tests.deletion import caller

pytestmark = pytest.mark.rule("4.5")

DAY = datetime(2026, 11, 20, 8, tzinfo=UTC)
NUMBERS = count()


def run_of(job: CronJob | None = None, **fields: Any) -> RunRecord:
    slot = fields.pop("scheduled_for", DAY)
    return RunRecord(job=job, run_id=f"r:{next(NUMBERS)}", scheduled_for=slot, **fields)


def test_every_reason_has_its_own_sentence() -> None:
    failed = {
        *ERROR_TEXTS,
        ModelError.code,
        ToolHung.code,
        *(each.code for each in ModelError.__subclasses__()),
    }
    assert failed <= set(describe.FAILED)
    assert set(describe.GAPS) == set(GapReason)
    runs = [
        *(run_of(state=RunState.SKIPPED, reason=reason) for reason in GapReason),
        *(run_of(state=RunState.CANCELLED, reason=reason) for reason in describe.CANCELLED),
        *(run_of(state=RunState.FAILED, reason=code) for code in describe.FAILED),
        *(run_of(state=state) for state in (RunState.QUEUED, RunState.RUNNING, RunState.SUCCEEDED)),
        run_of(state=RunState.QUEUED, not_before=DAY, reason="timeout"),
        run_of(state=RunState.FAILED, reason="a_plugins_own"),
    ]
    said = [describe_run(run, UTC) for run in runs]
    assert len(set(said)) == len(said)
    for sentence in said:
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert "_" not in sentence
    ends: dict[str, Any] = {"slots_from": DAY, "slots_to": DAY + timedelta(days=11)}
    for reason in GapReason:
        gap = run_of(state=RunState.SKIPPED, reason=reason, slots_count=12, **ends)
        assert describe_run(gap, UTC).startswith("12 slots from 2026-11-20 08:00 to 2026-12-01 08:00 were ")
        gap.slots_count = None
        assert describe_run(gap, UTC).startswith("More than 1,000 slots from")


@pytest.mark.rule("11.1")
@pytest.mark.rule("11.2")
@pytest.mark.parametrize("why", ["slowed", "stopped", "spent"])
def test_slots_that_will_be_skipped_are_no_next_runs(person: Person, why: str) -> None:
    job = new(person.session(), schedule=EVERY)
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    if why == "stopped":
        mark_stopped(person.agent.pk, [job.pk], until.isoformat())
    elif why == "spent":  # by other automations of the user
        set_user_caps(person.user.pk, {"day": {"tokens": 50_000}})
        begin, end = period_of("day", "UTC", datetime.now(UTC))
        until = end or until
        Spending.objects.create(pk=f"user:{person.user.pk}:day:{begin}", spent_tokens=50_000, ends_at=until)
    else:
        slot = until - SLOW_INTERVAL
        JobHealth.objects.create(
            job=job, failures_in_a_row=SLOWED_AFTER, failing_since=slot, failed_last=slot
        )
    found, zone = explain(person.user, job.pk), ZoneInfo(job.timezone)
    assert until <= found.next[0] < until + timedelta(minutes=1)
    assert describe.when(until, zone) in found.now
    coming = upcoming(person.user, datetime.now(UTC), until + timedelta(minutes=10), zone=zone)
    assert coming[0].at == found.next[0]


@pytest.mark.rule("11.1")
def test_a_cap_into_which_no_reply_fits_leaves_no_next_run(person: Person) -> None:
    session = person.session()
    job = new(session, schedule=EVERY)
    few = {"limits": {"month": {"tokens": 4_095}}, "model_settings": {"max_tokens": 4_096}}
    update_agent(person.agent.pk, few)
    [shown], now = appointments_of(person.user, session.pk), datetime.now(UTC)
    [notice] = attention(person.user)
    assert (explain(person.user, job.pk).next, shown.next, shown.is_stopped) == ((), (), True)
    assert (notice.what, notice.text) == ("stopped", shown.now)
    assert upcoming(person.user, now, now + timedelta(days=40), zone=UTC) == []
    CronJob.objects.update(task_type="reminder")
    assert explain(person.user, job.pk).next, "it is done without a model"
    CronJob.objects.update(task_type="")
    update_agent(person.agent.pk, {"limits": {"month": {"tokens": 4_096}}})
    assert attention(person.user) == []
    assert explain(person.user, job.pk).next


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (45, "45 s"), (60, "1 min"), (200, "3 min 20 s"), (7_500, "2 h 5 min"), (90_000, "1 d 1 h")],
)
def test_a_span_has_its_two_largest_units(seconds: int, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


def of(person: Person, job: CronJob) -> Explanation:
    return explain(person.user, job.pk)


def test_the_last_runs_are_explained_in_the_zone_newest_first(person: Person, job: CronJob) -> None:
    ended = {"finished_at": DAY}
    gap = {"slots_from": DAY - timedelta(days=12), "slots_to": DAY - timedelta(days=1), "slots_count": 12}
    run_of(
        job, state=RunState.SKIPPED, reason="missed", scheduled_for=gap["slots_from"], **gap, **ended
    ).save()
    run_of(job, state=RunState.SUCCEEDED, lag_ms=300_000, duration_ms=2_000, **ended).save()
    secret = {"error_detail": "SECRET", "rendered_prompt": "SECRET", "response_summary": "SECRET"}
    later = DAY + timedelta(days=1)
    run_of(
        job, state=RunState.FAILED, reason="timeout", attempt=3, scheduled_for=later, **ended, **secret
    ).save()
    said = of(person, job)
    ends = "from 2026-11-08 09:00 to 2026-11-19 09:00"
    assert [run.text for run in said.last] == [
        "Failed after 3 attempts: it took too long.",
        "Ran 5 min late. It took 2 s.",
        f"12 slots {ends} were missed: the server was down; the slot at 2026-11-20 09:00 was run instead.",
    ]
    assert said.last[0].scheduled_for.isoformat() == "2026-11-21T09:00:00+01:00"
    assert said.last[2].count == 12
    assert "SECRET" not in repr(said)
    assert (said.words, said.timezone) == ("every day at 09:00 (Europe/Berlin)", "Europe/Berlin")


def test_the_last_twenty_runs_are_shown_only_to_the_owner(person: Person, job: CronJob) -> None:
    for day in range(25):
        slot = DAY + timedelta(days=day)
        run_of(job, state=RunState.SUCCEEDED, finished_at=slot, scheduled_for=slot).save()
    last = of(person, job).last
    assert len(last) == 20
    assert last[0].scheduled_for == DAY + timedelta(days=24)
    with pytest.raises(JobNotFound):
        explain(new_person("bob").user, job.pk)


def test_next_runs_stop_at_the_end_date_with_zone_offset(person: Person) -> None:
    ends = datetime.now(UTC) + timedelta(days=3)
    job = new(person.session(), ends_at=ends.isoformat())
    coming = of(person, job).next
    assert len(coming) == 3
    assert {(each.hour, each.isoformat()[-6:]) for each in coming} <= {(9, "+01:00"), (9, "+02:00")}
    assert max(coming) <= ends


def test_a_due_slot_is_no_coming_one(person: Person) -> None:
    job = new(person.session(), max_runs=3)
    JobClock.objects.filter(job=job).update(next_run_at=DAY - timedelta(days=365))
    said = of(person, job)
    assert len(said.next) == 2
    assert min(said.next) > datetime.now(UTC)
    assert said.now.startswith("Due since 2025-11-20 09:00: beat has not fired it yet (")


def test_a_run_that_waits_says_what_for(person: Person, session: Session) -> None:
    other, job = new(session, name="other"), new(session, name="mine")
    fire(other)
    run = fire(job)
    assert of(person, job).now.endswith("turns before it in the conversation's queue.")
    message = receive(session.pk, MessageInput(content="hello"))
    start = {"state": TurnState.RUNNING, "started_at": DAY}
    Turn.objects.filter(pk=message.pk).update(**start)
    busy = "Waits: the conversation is busy with a person's message since 2026-11-20 09:00."
    said = of(person, job)
    assert (said.now, said.last[0].text) == (busy, busy)
    Turn.objects.filter(pk=message.pk).update(state=TurnState.SUCCEEDED, finished_at=DAY)
    Turn.objects.filter(runs__job=other).update(**start)
    assert "is busy with the automation 'other' since 2026-11-20 09:00." in of(person, job).now
    Turn.objects.filter(runs__job=other).update(state=TurnState.SUCCEEDED, finished_at=DAY)
    assert of(person, job).now.startswith("Waits for a worker since 20")
    assert run.pk == said.last[0].run_id


def test_a_run_says_whether_it_is_running_or_awaiting_retry(person: Person, job: CronJob) -> None:
    run = fire(job)
    RunRecord.objects.filter(pk=run.pk).update(attempt=2, not_before=DAY, reason="model_unavailable")
    retry = "Waits for a retry: attempt 2 starts at 2026-11-20 09:00,"
    assert of(person, job).now == f"{retry} because the model did not answer."
    JobClock.objects.filter(pk=job.pk).update(next_run_at=DAY - timedelta(minutes=1))
    first = "Failed: the model did not answer. It runs again at its next slot, 2026-11-20 08:59."
    assert of(person, job).now == first, "a run that waits for a retry gives way to the next slot"
    RunRecord.objects.filter(pk=run.pk).update(not_before=None, state=RunState.RUNNING, started_at=DAY)
    running = of(person, job)
    assert (running.now, running.state) == ("Running since 2026-11-20 09:00 (attempt 2).", "running")


def test_this_moment_of_a_job_that_does_not_run(person: Person, session: Session, job: CronJob) -> None:
    assert of(person, job).now.startswith("Next run: 20")
    update_job(job.pk, {"enabled": False})
    JobClock.objects.filter(job=job).update(planned_from=DAY)
    paused = of(person, job)
    assert (paused.now, paused.next, paused.warnings) == ("Paused since 2026-11-20 09:00.", (), ())
    update_job(job.pk, {"enabled": True})
    Session.objects.filter(pk=session.pk).update(state=SessionState.ARCHIVED)
    archived = of(person, job)
    assert (archived.now, archived.next) == ("Not run: the conversation is archived.", ())
    Session.objects.filter(pk=session.pk).update(state=SessionState.OPEN)
    JobClock.objects.filter(job=job).update(next_run_at=None)
    ended = of(person, job)
    assert ended.now == "Done: its schedule has no more runs."
    assert ended.warnings == ("This schedule has no more runs.",)
    CronJob.objects.filter(pk=job.pk).update(ends_at=DAY)
    assert of(person, job).now == "Done: no runs after its end date 2026-11-20 09:00."
    once = new(session, schedule={"kind": "at", "at": "2099-01-01T09:00Z"})
    JobClock.objects.filter(job=once).update(next_run_at=None)
    assert of(person, once).now == "Done: its only run was at 2099-01-01 09:00."
    run_of(once, state=RunState.FAILED, finished_at=DAY).save()
    failed = of(person, once)
    assert (failed.now, failed.state) == ("Failed: its only run was at 2099-01-01 09:00.", "failed")


def test_a_disabled_faulty_job_explains_why_without_internal_details(person: Person, job: CronJob) -> None:
    CronJob.objects.filter(pk=job.pk).update(enabled=False, fault="DataError: SECRET")
    said = of(person, job)
    assert said.now.startswith("Disabled after an error: it could not be fired. Enable it again")
    assert said.state == "failed"
    assert "SECRET" not in repr(said)
    CronJob.objects.filter(pk=job.pk).update(timezone="Mars/X")
    gone = of(person, job)
    assert gone.now == "Disabled after an error: There is no time zone 'Mars/X'. Give it a valid schedule."
    assert (gone.timezone, gone.next) == ("Mars/X", ())


def test_slots_that_come_faster_than_the_work_are_warned_of(person: Person) -> None:
    job = new(person.session(), schedule={"kind": "every", "seconds": 60})
    run_of(job, state=RunState.SUCCEEDED, duration_ms=150_000, finished_at=DAY).save()
    (warning,) = of(person, job).warnings
    assert warning == (
        "Slots are 1 min apart and a run takes about 2 min 30 s: slots are skipped while a run is open."
    )
    RunRecord.objects.update(duration_ms=1_000)
    assert of(person, job).warnings == ()
    gap = {"slots_from": DAY, "slots_to": DAY, "slots_count": 4, "scheduled_for": DAY + timedelta(minutes=1)}
    run_of(job, state=RunState.SKIPPED, reason="overlap", finished_at=DAY, **gap).save()
    (warning,) = of(person, job).warnings
    assert warning == "Of the last slots 4 were skipped, because the previous run had not ended."


def test_changes_of_the_clocks_ahead_are_told(person: Person) -> None:
    """Within a year there is one of each kind, whatever day it is."""
    night = new(person.session(), schedule=DAILY | {"expr": "30 2 * * *"})
    warnings = " ".join(of(person, night).warnings)
    assert "there is no 02:30, it runs at 03:00 instead." in warnings
    assert "02:30 comes twice, it runs the first time only." in warnings
    assert of(person, new(person.session())).warnings == ()


def test_a_model_that_failed_in_the_last_run_is_warned_of(person: Person) -> None:
    error = "The provider rejected the request (401: invalid API key)."
    failed, skipped = RunState.FAILED, (RunState.SKIPPED, GapReason.OVERLAP)
    for last, warned in (
        ((failed, "model_auth"), True),
        ((failed, "model_not_configured"), True),
        ((failed, "timeout"), False),
        ((RunState.SUCCEEDED, ""), False),
    ):
        job = new(person.session())
        for days, (state, reason) in enumerate((skipped, last, (failed, "model_auth")), 1):
            slot, more = DAY - timedelta(days=days), {"error": error, "finished_at": DAY}
            run_of(job, scheduled_for=slot, state=state, reason=reason, **more).save()
        said = [each for each in of(person, job).warnings if "model" in each]
        cure = f" {CURES[last[1]]}" if warned else ""
        assert said == [f"The model could not be called in the last run.{cure}"] * warned, last


@pytest.mark.rule("4.9")
def test_a_route_that_lost_its_sender_is_warned_of_when_explained_or_saved(
    person: Person, telegram: None
) -> None:
    session, ada = person.session(key="telegram:42"), caller(person)
    given = {"message": "go", "schedule": {"kind": "every", "seconds": 3600}}
    made = ada.post(f"/api/sessions/{session.pk}/automations/", given).json()
    assert made["warnings"] == list(explain(person.user, made["id"]).warnings) == []
    channels.unregister("telegram")
    [warning] = explain(person.user, made["id"]).warnings
    assert warning.startswith(
        "Answers cannot be delivered by 'telegram': the channel 'telegram' is not set up; use"
    )
    assert "RONDO_PLUGINS" in warning
    assert ada.patch(f"/api/automations/{made['id']}/", {"name": "n"}).json()["warnings"] == [warning]
    again = ada.post(
        f"/api/sessions/{session.pk}/automations/", given | {"name": "o", "allow_duplicate": True}
    ).json()
    assert again["warnings"] == [warning]
    on_the_web = {"channel": "web", "chat_id": "", "meta": {}}
    Session.objects.filter(pk=session.pk).update(last_route=on_the_web)
    assert explain(person.user, made["id"]).warnings == (), "a person wrote on the web since"
