"""Sessions, mail, automations, edits, deletes, firings and deaths in any order: every invariant holds after every step.

The workers here are claims without a process, so that a death can come between any two steps; tests/chaos kills
real processes. `RONDO_PROPERTY_EXAMPLES` runs it longer.
"""

import contextlib
import itertools
import os
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import hypothesis
import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from agent_core.exceptions import Stale
from agent_core.types import Ending, Entry, Role, ToolCall, TurnResult
from automations.exceptions import AutomationsError, JobNotFound
from automations.firing import fire_jobs
from automations.firing.retries import queue_due_retries
from automations.jobs.edit import NewJob, create_job, delete_job, update_job
from automations.models import CronJob, JobClock, RunRecord
from automations.schedules.plan import plan_of
from sessions_app.exceptions import SessionsError
from sessions_app.journal import Journal
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.models import Agent, OnBusy, Priority, Session, SessionType, Turn, Worker
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions import delete
from sessions_app.sessions.delete import delete_agent, delete_session
from sessions_app.turns.claim import claim_next
from sessions_app.turns.commit import commit
from sessions_app.turns.context import Prepared, prepare_turn
from sessions_app.turns.tool_calls import JournalPorts
from tests import plugins  # noqa: F401 - registers the tools
from tests.conftest import Person, new_person
from tests.properties import invariants

EXAMPLES = int(os.environ.get("RONDO_PROPERTY_EXAMPLES", "20"))
STEPS = 50
_numbers = itertools.count(1)

schedules = st.one_of(
    st.builds(lambda seconds: {"kind": "every", "seconds": seconds}, st.integers(1, 4_000)),
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 9 * * *", "30 2 * * 0"]).map(
        lambda expr: {"kind": "cron", "expr": expr, "timezone": "Europe/Berlin"}
    ),
)
policies = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from(["skip", "queue"]),
        "catch_up": st.sampled_from(["one", "none", "all"]),
        "max_retry": st.integers(0, 2),
        "jitter_seconds": st.sampled_from([0, 0, 1, 90]),
        "max_runs": st.sampled_from([None, None, 1, 3]),
    }
)
changes = st.one_of(
    schedules.map(lambda schedule: {"schedule": schedule}),
    policies,
    st.booleans().map(lambda on: {"enabled": on}),
    st.just({"message": "something else"}),
)
endings = {
    "answer": TurnResult(ending=Ending.SUCCEEDED, entries=(Entry(role=Role.ASSISTANT, content="done"),)),
    "nothing": TurnResult(ending=Ending.SUCCEEDED),
    "failure": TurnResult(ending=Ending.FAILED, error_code="model_unavailable", error_text="No answer."),
    "final failure": TurnResult(ending=Ending.FAILED, error_code="model_refused", error_text="Refused."),
}


def ports_of(prepared: Prepared) -> JournalPorts:
    return JournalPorts(journal=prepared.journal, context=prepared.tool_context)


class Rollback(Exception):
    """What was under way dies before its commit."""


class Server(RuleBasedStateMachine):
    """One agent, several sessions, three workers, and a beat that may die."""

    sessions = Bundle("sessions")
    jobs = Bundle("jobs")
    held = Bundle("held")  # turns that a worker, alive or dead, believes to run
    person: Person
    agents: ClassVar[list[Agent]] = []

    def __init__(self) -> None:
        super().__init__()
        self.person = new_person(f"person-{next(_numbers)}-{uuid.uuid4().hex[:6]}")
        self.workers = [Worker.objects.create(host="here", pid=n, id=uuid.uuid4()).pk for n in range(3)]
        self.session_ids = set(Session.objects.filter(agent=self.person.agent).values_list("pk", flat=True))
        self.job_ids: set[str] = set()

    @rule(target=sessions)
    def open_session(self) -> uuid.UUID:
        session_id: uuid.UUID = self.person.session().pk
        self.session_ids.add(session_id)
        return session_id

    @rule(on=st.booleans())
    def toggle_unified_mode(self, on: bool) -> None:
        Agent.objects.filter(pk=self.person.agent.pk).update(unified_session=on)

    @rule(session=sessions, on_busy=st.sampled_from(OnBusy.values), key=st.sampled_from([None, "a", "b"]))
    def write(self, session: uuid.UUID, on_busy: str, key: str | None) -> None:
        message = MessageInput(content="hello", on_busy=OnBusy(on_busy), idempotency_key=key)
        self._refusable(lambda: receive(session, message))

    @rule(session=sessions, priority=st.sampled_from(Priority), key=st.sampled_from(["", "", "weather"]))
    def deposit_mail(self, session: uuid.UUID, priority: Priority, key: str) -> None:
        mail = NewUpdate(event_type="news", summary="It rains.", priority=priority, dedupe_key=key)
        deposit(session, mail)

    @rule(target=jobs, session=sessions, schedule=schedules, policy=policies, late=st.integers(0, 200))
    def make_job(self, session: uuid.UUID, schedule: Any, policy: Any, late: int) -> Any:
        new = NewJob(session_id=session, message="look", schedule=schedule, **policy)
        job = self._refusable(lambda: create_job(new))
        if job is None:
            return multiple()
        self.job_ids.add(job.pk)
        self._was_made_before(job, timedelta(minutes=late))
        return job.pk

    def _was_made_before(self, job: CronJob, ago: timedelta) -> None:
        """A job that nobody has fired yet, made so long ago."""
        clock = JobClock.objects.get(job=job)
        job = CronJob.objects.get(pk=job.pk)
        begun = clock.planned_from - ago
        if job.anchor is not None:
            job.anchor -= ago
            job.save(update_fields=["anchor"])
        JobClock.objects.filter(job=job).update(
            planned_from=begun, next_run_at=plan_of(job, 0).next_firing(begun)
        )

    @rule(job=jobs, seconds=st.integers(1, 9_000))
    def time_passes(self, job: str, seconds: int) -> None:
        """For a job on a grid: everything of it lies further back."""
        back = timedelta(seconds=seconds, milliseconds=next(_numbers))
        row = CronJob.objects.filter(pk=job, schedule_kind="every").first()
        if row is None:
            return
        CronJob.objects.filter(pk=job).update(anchor=F("anchor") - back, ends_at=F("ends_at") - back)
        JobClock.objects.filter(job=job).update(
            next_run_at=F("next_run_at") - back,
            last_slot=F("last_slot") - back,
            planned_from=F("planned_from") - back,
        )
        for run in RunRecord.objects.filter(job=job).order_by("scheduled_for"):
            moved = {
                name: getattr(run, name) - back
                for name in ("scheduled_for", "slots_from", "slots_to")
                if getattr(run, name) is not None
            }
            RunRecord.objects.filter(pk=run.pk).update(**moved)

    @rule(limit=st.sampled_from([1, 3, 100]))
    def beat(self, limit: int) -> None:
        queue_due_retries(limit)
        fire_jobs.fire_due_jobs(limit)

    @rule()
    def beat_dies_before_its_commit(self) -> None:
        with contextlib.suppress(Rollback), transaction.atomic():
            queue_due_retries(100)
            fire_jobs.fire_due_jobs(100)
            raise Rollback

    @rule()
    def waits_for_retries_are_over(self) -> None:
        RunRecord.objects.filter(not_before__isnull=False).update(not_before=Now())

    @rule(job=jobs, given=changes)
    def edit(self, job: str, given: Any) -> None:
        self._refusable(lambda: update_job(job, given))

    @rule(job=consumes(jobs))
    def delete_job(self, job: str) -> None:
        self._refusable(lambda: delete_job(job))

    @rule(target=held, session=sessions, worker=st.integers(0, 2))
    def claim(self, session: uuid.UUID, worker: int) -> Any:
        return self._claimed(session, self.workers[worker]) or multiple()

    @rule(target=held, turn=held)
    def overtake(self, turn: Prepared) -> Any:
        """The turn's worker is taken for dead, and another one takes the turn; the first one knows nothing of it."""
        Worker.objects.filter(pk=turn.turn.worker or uuid.UUID(int=0)).delete()
        other = Worker.objects.create(host="here", pid=9, id=uuid.uuid4()).pk
        return self._claimed(turn.turn.session_id, other) or multiple()

    @rule(job=jobs, seconds=st.integers(60, 90_000))
    def pause_for_a_while(self, job: str, seconds: int) -> None:
        self._refusable(lambda: update_job(job, {"enabled": False}))
        self.time_passes(job, seconds)
        self._refusable(lambda: update_job(job, {"enabled": True}))

    def _claimed(self, session: uuid.UUID, worker: uuid.UUID) -> Prepared | None:
        self._signs_of_life()
        turn = claim_next(session, worker, auto_allowed=True)
        return None if turn is None else prepare_turn(turn, Journal(turn))

    @rule(turn=held)
    def use_a_tool(self, turn: Prepared) -> None:
        call = ToolCall(id=uuid.uuid4().hex, name="count", arguments={"name": "x"})

        def work(prepared: Prepared) -> None:
            ports = ports_of(prepared)
            ports.intend(call)
            ports.outcome_unknown(call)

        self._fenced(turn, work)

    @rule(turn=held)
    def take_waiting_messages_along(self, turn: Prepared) -> None:
        self._fenced(turn, lambda prepared: ports_of(prepared).injected())

    @rule(turn=consumes(held), ending=st.sampled_from(list(endings)))
    def end(self, turn: Prepared, ending: str) -> None:
        self._fenced(turn, lambda prepared: commit(prepared, endings[ending]))

    @rule(turn=held, ending=st.sampled_from(list(endings)))
    def die_within_the_commit(self, turn: Prepared, ending: str) -> None:
        def work(prepared: Prepared) -> None:
            with transaction.atomic():
                commit(prepared, endings[ending])
                raise Rollback

        with contextlib.suppress(Rollback):
            self._fenced(turn, work)

    @rule(worker=st.integers(0, 2))
    def worker_dies(self, worker: int) -> None:
        """Its turns stay RUNNING in its name; another one comes in its place."""
        Worker.objects.filter(pk=self.workers[worker]).delete()
        self.workers[worker] = Worker.objects.create(host="here", pid=worker, id=uuid.uuid4()).pk

    @rule(session=sessions)
    def cancel(self, session: uuid.UUID) -> None:
        turn = Turn.objects.filter(session=session).order_by("-id").first()
        if turn is not None:
            self._refusable(lambda: cancel_turn(turn.pk))

    @rule(session=sessions, confirmed=st.booleans())
    def delete_session(self, session: uuid.UUID, confirmed: bool) -> None:
        had_jobs = CronJob.objects.filter(session=session).exists()
        done = self._refusable(lambda: delete_session(session, with_dependents=confirmed))
        if done is not None:
            assert done.deleted == (confirmed or not had_jobs)
        state = Session.objects.filter(pk=session).values_list("state", flat=True).first()
        assert state in (None, "open"), "a delete that came to nothing leaves the session as it was"

    @invariant()
    def everything_holds(self) -> None:
        invariants.check(self.person.agent)

    def teardown(self) -> None:
        """Whatever was left half way comes to an end; then the agent goes, with everything."""
        self._drain()
        invariants.check(self.person.agent)
        invariants.nothing_waits(self.person.agent)
        done = delete_agent(self.person.agent.pk, with_dependents=True)
        assert done.deleted
        invariants.nothing_is_left(self.person.agent.pk, self.session_ids, self.job_ids)
        Worker.objects.all().delete()

    def _drain(self) -> None:
        Worker.objects.all().delete()  # also those that have overtaken others a moment ago
        for worker in range(3):
            self.worker_dies(worker)
        for session in Session.objects.filter(agent=self.person.agent, type__in=SessionType.values):
            while True:
                prepared = self._claimed(session.pk, self.workers[0])
                if prepared is None:
                    break
                self._fenced(prepared, lambda prepared: commit(prepared, endings["answer"]))

    def _signs_of_life(self) -> None:
        Worker.objects.filter(pk__in=self.workers).update(heartbeat_at=datetime.now(UTC) + timedelta(hours=1))

    def _refusable(self, verb: Callable[[], Any]) -> Any:
        """What a verb answers; a refusal is an answer, too."""
        self._signs_of_life()
        try:
            return verb()
        except (SessionsError, AutomationsError, JobNotFound):
            return None

    def _fenced(self, prepared: Prepared, work: Callable[[Prepared], Any]) -> None:
        """A write of a running turn: refused exactly when the turn is not this claim's any more."""
        turn = prepared.turn
        mine = Turn.objects.filter(pk=turn.pk, claim=turn.claim, state="running").exists()
        try:
            work(prepared)
        except Stale:
            assert not mine, "a worker that owns its turn was refused"
        else:
            assert mine, "a stale worker wrote"


@pytest.mark.rule("1.4", "4.5", "6.1", "6.2")
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
@pytest.mark.long("fifty steps, and the invariants after each")
@pytest.mark.parametrize("examples", [3, pytest.param(EXAMPLES, marks=pytest.mark.full)])
def test_every_invariant_holds_whatever_happens_in_whatever_order(
    transactional_db: None, broker: str, settings: Any, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    settings.RONDO_WORKER_LOST_SECONDS = 1
    monkeypatch.setattr(delete, "LOCK_WAIT", 0.05)
    run_state_machine_as_test(Server, settings=hypothesis.settings(PROFILE, max_examples=examples))


PROFILE = settings(
    stateful_step_count=STEPS,
    deadline=None,
    derandomize="RONDO_PROPERTY_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
