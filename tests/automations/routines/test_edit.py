"""The service of routines: modes, schedules, duplicates, the limit, edits (rules 6.4, 6.5, 4.7)."""

import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from automations.exceptions import DuplicateRoutine, RoutineNotFound, TooManyRoutines
from automations.jobs.removed_routines import normalised
from automations.models import CronJob, JobClock, RunRecord
from automations.routines.edit import agent_routines, remove_routine, update_routine
from automations.routines.plan import interval_text, routine_schedule_text
from automations.runs.report import report_to_home
from interfaces.api.shared import deleted
from sessions_app.exceptions import NotFound, RevisionConflict, SessionClosed
from sessions_app.mailbox.deposit import NewUpdate
from sessions_app.models import Agent, MailboxEvent, Session, SessionState, SessionType, Turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.delete import blockers_of, delete_agent, delete_session
from sessions_app.sessions.open import primary_session
from tests.automations.jobs.made import add, at_once, clock_of, code_of, new, planned_for
from tests.conftest import Person, new_person
from tests.races import UPDATE, gate, orphans

pytestmark = pytest.mark.rule("4.11", "6.4", "6.5")


def soon(**ahead: int) -> str:
    return (datetime.now(UTC).replace(microsecond=0) + timedelta(**ahead)).isoformat()


def test_an_interval_is_first_due_one_interval_from_now(person: Person) -> None:
    for text, seconds in {"45s": 45, "30m": 1800, "1h": 3600, "2d": 172_800, " 90m ": 5400}.items():
        before = datetime.now(UTC)
        job = add(person, text, schedule=text)
        assert (job.schedule_kind, job.every_seconds) == ("every", seconds)
        assert abs((planned_for(job) - before).total_seconds() - seconds) < 5


def test_an_interval_is_written_in_its_largest_whole_unit() -> None:
    texts = {45: "45s", 60: "1m", 5400: "90m", 3600: "1h", 90_000: "25h", 86_400: "1d"}
    assert {seconds: interval_text(seconds) for seconds in texts} == texts


def test_a_routine_without_schedule_or_instant_runs_once_immediately(person: Person) -> None:
    job: Any = add(person, execution_mode="isolated")
    assert job.schedule_kind == "at"
    assert job.at == clock_of(job).next_run_at
    assert job.at <= datetime.now(UTC)
    assert routine_schedule_text(job) is None


def test_an_instant_alone_fires_once_and_defaults_to_the_zone(person: Person) -> None:
    at = soon(hours=2)
    assert add(person, next_run_at=at).at == datetime.fromisoformat(at)
    local = add(person, "Local", next_run_at="2031-07-01T09:00", timezone="Asia/Tokyo")
    assert local.at == datetime(2031, 7, 1, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize("schedule", ["1d", "0 9 * * *"])
def test_an_instant_with_a_schedule_is_the_first_firing(person: Person, schedule: str) -> None:
    at = soon(hours=2)
    job = add(person, schedule=schedule, next_run_at=at)
    assert clock_of(job).next_run_at == datetime.fromisoformat(at)
    assert job.schedule_kind in {"every", "cron"}
    if job.anchor:  # a day later comes the next one, not what is left of the day it was made
        assert job.anchor == datetime.fromisoformat(at)


REFUSED: dict[str, list[dict[str, Any]]] = {
    "empty_title": [{"title": " "}],
    "bad_title": [{"title": "x" * 201}, {"title": "a\nb"}],
    "bad_description": [{"description": "a\x00"}, {"description": "x" * 20_001}],
    "bad_execution_mode": [{"execution_mode": "session"}],
    "bad_task_type": [{"task_type": "dance"}],
    "bad_source": [{"source": "system"}],
    "bad_schedule": [{"schedule": "soon"}, {"schedule": " "}],
    "bad_interval": [{"schedule": "0m"}, {"schedule": "99999d"}],
    "bad_cron": [{"schedule": "* * * * * *"}],
    "unknown_timezone": [{"schedule": "1d", "timezone": "Mars/X"}],
    "past_at": [{"next_run_at": "2020-01-01T00:00:00Z"}],
    "bad_time": [{"next_run_at": "tomorrow"}],
    "bad_timeout_seconds": [{"timeout_seconds": 0}],
    "bad_max_retry": [{"max_retry": 11}],
}


def test_a_bad_routine_is_refused_with_its_code(person: Person) -> None:
    for code, given in REFUSED.items():
        for fields in given:
            assert code_of(partial(add, person, **({"title": "Water"} | fields))) == code, fields
    assert (CronJob.objects.count(), JobClock.objects.count()) == (0, 0)


def test_a_duplicate_has_the_same_normalised_title_and_schedule(person: Person) -> None:
    first = add(person, "Drink  water", schedule="1h")
    for title in ("drink water", " Drink\u3000Water ", "DRINK WATER"):
        with pytest.raises(DuplicateRoutine) as refusal:
            add(person, title, schedule="60m")
        assert refusal.value.routine_id == first.pk
    others = [
        add(person, "Drink water", schedule="2h"),
        add(person, "Drink tea", schedule="1h"),
        add(person, "Drink water", schedule="1h", allow_duplicate=True),
    ]
    assert agent_routines(person.agent.pk).count() == len(others) + 1
    add(new_person("bob"), "Drink water", schedule="1h")  # another agent's is no duplicate
    assert normalised("\uff21\uff22\uff23  d") == "abc d"


def test_a_one_shot_counts_as_duplicate_until_done_or_removed(person: Person) -> None:
    job = add(person, "Joke")
    with pytest.raises(DuplicateRoutine):
        add(person, "joke")
    remove_routine(job.pk)
    again = add(person, "Joke")
    JobClock.objects.filter(job=again).update(next_run_at=None)  # it was done
    assert add(person, "Joke").pk not in {job.pk, again.pk}


def test_the_limit_holds_when_several_adds_race(person: Person) -> None:
    Agent.objects.filter(pk=person.agent.pk).update(routine_limit=3)
    for number in range(2):
        add(person, f"Routine {number}", schedule="1h")
    racers = at_once(*(partial(add, person, f"Racer {n}", schedule="1h") for n in range(4)))
    assert sum(isinstance(came, TooManyRoutines) for came in racers) == 3
    assert agent_routines(person.agent.pk).filter(enabled=True).count() == 3
    disabled = add(person, "Disabled", schedule="1h", enabled=False)
    with pytest.raises(TooManyRoutines):
        update_routine(disabled.pk, {"enabled": True})
    assert not CronJob.objects.get(pk=disabled.pk).enabled
    one = agent_routines(person.agent.pk).filter(enabled=True)[0]
    JobClock.objects.filter(job=one).update(next_run_at=None)  # done: it does not count
    assert update_routine(disabled.pk, {"enabled": True}).enabled


def test_the_home_is_the_conversation_unless_it_is_primary(person: Person) -> None:
    thread = person.session()
    primary = primary_session(person.agent)
    assert add(person, "A", schedule="1h", session_id=thread.pk).home_id == thread.pk
    assert add(person, "B", schedule="1h", session_id=primary.pk).home_id is None
    Agent.objects.filter(pk=person.agent.pk).update(unified_session=True)
    assert add(person, "C", schedule="1h", session_id=thread.pk).home_id is None


def test_a_home_is_an_open_conversation_of_the_agent(person: Person) -> None:
    for session_id in (new_person("bob").session().pk, uuid.uuid4()):
        with pytest.raises(NotFound):
            add(person, session_id=session_id)
    closed = person.session()
    Session.objects.filter(pk=closed.pk).update(state=SessionState.ARCHIVED)
    with pytest.raises(SessionClosed):
        add(person, session_id=closed.pk)
    inside = {"key": "job:x:1", "type": SessionType.JOB, "channel": ""}
    job = Session.objects.create(agent=person.agent, owner=person.user, **inside)
    assert code_of(partial(add, person, session_id=job.pk)) == "internal_session"
    assert not CronJob.objects.exists()


def test_an_edit_changes_named_fields_and_keeps_the_rest(person: Person) -> None:
    job = add(person, description="d", schedule="1h", timeout_seconds=30)
    before = clock_of(job).next_run_at
    changed = update_routine(job.pk, {"title": "Tea", "timeout_seconds": None, "execution_mode": "isolated"})
    stored = CronJob.objects.get(pk=job.pk)
    assert (stored.name, stored.description, stored.timeout_seconds) == ("Tea", "d", None)
    assert (stored.execution_mode, stored.every_seconds, stored.revision) == ("isolated", 3600, 2)
    assert (clock_of(job).inline, clock_of(job).next_run_at) == (False, before)
    assert changed.revision == 2
    assert update_routine(job.pk, {"title": "Tea"}).revision == 2  # nothing changed
    assert update_routine(job.pk, {"schedule": "60m"}).revision == 2
    assert clock_of(job).next_run_at == before


FAR = {"next_run_at": "2031-01-01T00:00:00Z"}
MOVES: list[tuple[dict[str, Any], str]] = [
    *(({"schedule": "2h"}, "every"), ({"schedule": "0 9 * * *"}, "cron"), ({"schedule": None} | FAR, "at")),
    *(({"schedule": "2h"} | FAR, "every"), (FAR, "every")),
]


@pytest.mark.parametrize(("changes", "kind"), MOVES)
def test_another_schedule_moves_the_clock(person: Person, changes: dict[str, Any], kind: str) -> None:
    job = add(person, schedule="1h")
    before = clock_of(job).next_run_at
    assert update_routine(job.pk, changes).schedule_kind == kind
    after = planned_for(job)
    assert after != before
    if "next_run_at" in changes:
        assert after == datetime(2031, 1, 1, tzinfo=UTC)


def test_another_zone_moves_a_cron_and_leaves_an_interval(person: Person) -> None:
    cron, every = add(person, "A", schedule="0 9 * * *"), add(person, "B", schedule="1h")
    before = clock_of(every).next_run_at
    update_routine(cron.pk, {"timezone": "Asia/Tokyo"})
    update_routine(every.pk, {"timezone": "Asia/Tokyo"})
    assert planned_for(cron).hour == 0
    assert clock_of(every).next_run_at == before
    assert CronJob.objects.get(pk=every.pk).timezone == "Asia/Tokyo"


def test_a_bad_edit_changes_nothing(person: Person) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        *(({"source": "chat"}, "not_editable"), ({"schedule": None}, "bad_schedule")),
        *(({"title": ""}, "empty_title"), ({"enabled": 1}, "bad_enabled")),
        *(({"timezone": "Mars/X"}, "unknown_timezone"), ({"next_run_at": "2020-01-01T00:00:00Z"}, "past_at")),
    ]
    job = add(person, schedule="1h")
    before = CronJob.objects.values().get(), JobClock.objects.values().get()
    for changes, code in bad:
        assert code_of(partial(update_routine, job.pk, changes)) == code
        assert (CronJob.objects.values().get(), JobClock.objects.values().get()) == before, changes


def test_an_edit_and_a_removal_ask_for_the_revision(person: Person) -> None:
    job = add(person, schedule="1h")
    remove = partial(remove_routine, job.pk, revision=7)
    rename = partial(update_routine, job.pk, {"title": "x"}, revision=7)
    for attempt in (rename, remove, partial(remove, hard=True)):
        with pytest.raises(RevisionConflict):
            attempt()


def waiting_run(session: Session, job: CronJob) -> RunRecord:
    turn: Turn = receive(session.pk, MessageInput(content="hello"))
    slot = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    return RunRecord.objects.create(run_id=f"{job.pk}:1000", job=job, scheduled_for=slot, turn=turn)


def test_removing_cancels_what_waits_and_only_a_hard_one_takes_the_runs_along(person: Person) -> None:
    job = add(person, schedule="1h")
    run = waiting_run(person.session(), job)
    remove_routine(job.pk)
    assert not CronJob.objects.get(pk=job.pk).enabled
    assert clock_of(job).next_run_at is None
    assert Turn.objects.get(runs=run.pk).state == "cancelled"
    assert RunRecord.objects.filter(pk=run.pk).exists()
    remove_routine(job.pk)  # twice is once
    assert CronJob.objects.get(pk=job.pk).revision == 2
    run = waiting_run(person.session(), other := add(person, "Other", schedule="1h"))
    remove_routine(other.pk, hard=True)
    assert not CronJob.objects.filter(pk=other.pk).exists()
    assert not RunRecord.objects.filter(pk=run.pk).exists()
    assert set(Turn.objects.values_list("state", flat=True)) == {"cancelled"}
    with pytest.raises(RoutineNotFound):
        remove_routine(other.pk, hard=True)


def test_an_automation_is_no_routine(person: Person) -> None:
    job = new(person.session())
    assert not agent_routines(person.agent.pk).exists()
    for attempt in (lambda: update_routine(job.pk, {"title": "x"}), lambda: remove_routine(job.pk)):
        with pytest.raises(RoutineNotFound):
            attempt()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_first_firing_that_was_given_outlasts_a_pause(person: Person, enabled: bool) -> None:
    first = (datetime.now(UTC) + timedelta(days=3)).replace(minute=7, second=0, microsecond=0)
    job = add(person, schedule="0 9 * * *", next_run_at=first.isoformat(), enabled=enabled)
    update_routine(job.pk, {"enabled": False})
    assert clock_of(job).next_run_at is None
    update_routine(job.pk, {"enabled": True})
    assert clock_of(job).next_run_at == first
    update_routine(job.pk, {"schedule": "0 10 * * *"})
    assert planned_for(job) < first, "another schedule has its own first slot"


def homed(person: Person, title: str, home: Session | None = None) -> CronJob:
    return add(person, title, schedule="1h", session_id=home.pk if home else None)


@pytest.fixture(params=[{"chat_type": "group"}, {"key": "telegram:42"}], ids=["group", "channel"])
def group(person: Person, telegram: None, request: pytest.FixtureRequest) -> Session:
    """A home that is not the primary session's like: several people read there, or another channel serves it."""
    found: Session = person.session(**request.param)
    return found


def test_deleting_a_private_web_thread_moves_its_routines_to_primary(person: Person) -> None:
    home, away = person.session(), person.session()
    mine, disabled, other = homed(person, "A", home), homed(person, "B", home), homed(person, "C", away)
    remove_routine(disabled.pk)
    assert blockers_of(home.pk) == ()
    said = delete_session(home.pk)
    assert (said.deleted, said.deleted_ids) == (True, ())
    assert set(said.moved_ids) == {mine.pk, disabled.pk}
    for job in (mine, disabled, other):
        before = job.home_id
        job.refresh_from_db()
        assert job.home_id == (before if job is other else None)
    assert deleted(said).data["moved_routines"] == list(said.moved_ids)
    report_to_home(mine.home_id, person.agent.pk, NewUpdate(event_type="job_completed", summary="done"))
    assert MailboxEvent.objects.get().target_id == primary_session(person.agent).pk


def test_routines_block_deleting_their_home_even_when_disabled(person: Person, group: Session) -> None:
    home, other = group, person.session()
    mine, disabled, without = homed(person, "A", home), homed(person, "B", home), homed(person, "C")
    remove_routine(disabled.pk)
    said = delete_session(home.pk)
    assert not said.deleted
    blockers = [(each.id, each.name, each.enabled) for each in said.blockers]
    assert blockers == [(mine.pk, "A", True), (disabled.pk, "B", False)]
    assert delete_session(other.pk).deleted
    assert [each.id for each in blockers_of(primary_session(person.agent).pk)] == [without.pk]


def test_confirmed_deletion_removes_routines_and_their_work(person: Person, group: Session) -> None:
    home, elsewhere = group, person.session()
    mine, without = homed(person, "A", home), homed(person, "B")
    turn = Turn.objects.get(runs=waiting_run(elsewhere, mine))
    said = delete_session(home.pk, with_dependents=True)
    assert (said.deleted, said.deleted_ids) == (True, (mine.pk,))
    assert list(CronJob.objects.values_list("pk", flat=True)) == [without.pk]
    assert list(JobClock.objects.values_list("pk", flat=True)) == [without.pk]
    assert not RunRecord.objects.exists()
    turn.refresh_from_db()
    assert turn.state == "cancelled"
    assert not any(orphans().values())


def test_routines_block_deleting_their_agent_unless_confirmed(person: Person) -> None:
    added = {homed(person, "A", person.session()).pk, homed(person, "B").pk}
    said = delete_agent(person.agent.pk)
    assert {each.id for each in said.blockers} == added
    said = delete_agent(person.agent.pk, with_dependents=True)
    assert (said.deleted, set(said.deleted_ids)) == (True, added)
    assert not CronJob.objects.exists()
    assert not Agent.objects.exists()


def test_a_routine_added_just_before_deletion_blocks_it(person: Person, group: Session) -> None:
    with gate(group, UPDATE) as door:
        door.start(lambda: homed(person, "A", group))
        door.start(lambda: delete_session(group.pk))
        added, said = door.open()
    assert (said.deleted, [each.id for each in said.blockers]) == (False, [added.pk])
    assert Session.objects.filter(pk=group.pk, state="open").exists()


def test_a_routine_added_after_deletion_began_is_refused(person: Person) -> None:
    home = person.session()
    with gate(home, UPDATE) as door:
        door.start(lambda: delete_session(home.pk))
        door.start(lambda: homed(person, "A", home))
        said, refusal = door.open()
    assert said.deleted
    assert isinstance(refusal, NotFound | SessionClosed)
    assert not CronJob.objects.exists()
    assert not any(orphans().values())
