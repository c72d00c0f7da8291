"""What one user may have, and how long a turn may be given: bounded by the server's settings (rule 10.0)."""

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import NewJob, create_job, update_job
from automations.models import CronJob, JobClock, RunRecord
from automations.routines.edit import NewRoutine, add_routine, update_routine
from sessions_app.agents.documents import write_document
from sessions_app.exceptions import StorageFull
from sessions_app.journal import Journal
from sessions_app.limits import quotas
from sessions_app.memory.files import GivenFile
from sessions_app.models import Agent, Allowance, Session
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.client_places import add_client_messages, branch_session
from sessions_app.turns.claim import claim_next
from sessions_app.turns.context import prepare_turn
from tests.agent_core.planner.plans import says
from tests.api.conftest import Caller, for_each, problem
from tests.automations.messages import a_worker
from tests.conftest import new_person
from tests.deletion import caller
from tests.inside import Inside

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.0")]

HOURLY = {"kind": "every", "seconds": 3600}


def test_the_server_bounds_a_users_agents_and_sessions(ada: Caller, bob: Caller, settings: Any) -> None:
    settings.RONDO_AGENTS_PER_USER, settings.RONDO_SESSIONS_PER_USER = 2, 2
    ada.agent("second")
    sessions = [ada.session(title="one"), ada.session("second", title="two")]
    before = Agent.objects.count(), Session.objects.count()

    said = problem(ada.post("/api/agents/", {"name": "third"}), 409, "too_many_agents")
    assert "2 agents" in said["detail"]
    said = problem(ada.post("/api/sessions/", {"agent": "demo"}), 409, "too_many_sessions")
    assert "2 sessions" in said["detail"]
    assert (Agent.objects.count(), Session.objects.count()) == before

    bob.agent("second"), bob.session()  # another user's do not count
    Session.objects.filter(pk=sessions[0]).delete()
    ada.session()


def test_no_turn_may_be_given_more_time_than_the_server_allows(ada: Caller, settings: Any) -> None:
    settings.RONDO_TURN_SECONDS = 100
    session = ada.session()
    jobs = CronJob.objects.count()
    job = {"message": "look", "schedule": HOURLY}
    routines, hourly_walk = "/api/agents/demo/routines/", {"title": "walk", "schedule": "1h"}
    kept = ada.automation(session, timeout_seconds=100)["id"]

    def check(refused: Any, code: str) -> None:
        assert "100" in problem(refused, 400, code)["detail"]

    for_each(
        [
            (ada.patch("/api/agents/demo/", {"policy": {"timeout_seconds": 101}}), "bad_policy"),
            (ada.post("/api/agents/", {"name": "x", "policy": {"timeout_seconds": 101}}), "bad_policy"),
            (ada.post(f"/api/sessions/{session}/automations/", job | {"timeout_seconds": 101}), "bad_timeout_seconds"),
            (ada.patch(f"/api/automations/{kept}/", {"timeout_seconds": 101}), "bad_timeout_seconds"),
            (ada.post(routines, hourly_walk | {"timeout_seconds": 101}), "bad_timeout_seconds"),
            (ada.post(routines, hourly_walk | {"policy": {"timeout_seconds": 101}}), "bad_policy"),
        ],
        check,
    )  # fmt: skip
    assert CronJob.objects.count() == jobs + 1


def test_a_time_limit_of_before_is_cut_to_that_of_the_server(ada: Caller, settings: Any) -> None:
    session = ada.session()
    assert ada.patch("/api/agents/demo/", {"policy": {"timeout_seconds": 7200}}).status_code == 200
    ada.post(f"/api/sessions/{session}/messages/", {"content": "hello"})
    turn = claim_next(uuid.UUID(session), a_worker(), auto_allowed=False)
    assert turn is not None
    settings.RONDO_TURN_SECONDS = 100
    prepared = prepare_turn(turn, Journal(turn))
    assert prepared.request is not None
    assert prepared.request.policy.timeout_seconds == 100


def test_a_user_who_has_stored_too_much_sends_no_more(
    inside: Inside, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "CHECKED_EACH", 400_000)
    settings.RONDO_MEGABYTES_PER_USER = 1
    person = inside.person
    other, session = new_person("bob").session(), person.session()
    for _ in range(6):
        assert inside.say(session, "hello", says("x" * 200_000)).state == "succeeded"
    stored = Session.objects.get(pk=session.pk).stored_bytes
    assert 1_200_000 < stored < 1_250_000
    with pytest.raises(StorageFull, match="1 MB"):
        receive(session.pk, MessageInput(content="more"))
    messages = f"/api/sessions/{person.session().pk}/messages/"
    said = problem(caller(person).post(messages, {"content": "x"}), 409, "storage_full")
    assert "1 MB" in said["detail"]
    receive(other.pk, MessageInput(content="of another user"))
    sessions = person.session(), other
    jobs = [create_job(NewJob(session_id=each.pk, message="look", schedule=HOURLY)) for each in sessions]
    JobClock.objects.filter(job__in=jobs).update(next_run_at=Now())
    fire_due_jobs(10)
    runs = {run.job_id: (run.state, run.reason) for run in RunRecord.objects.all()}
    assert [runs.get(job.pk) for job in jobs] == [("skipped", "storage_full"), ("queued", "")]

    session.delete()
    Allowance.objects.update(full_at=Now())  # as after ten minutes
    receive(person.session().pk, MessageInput(content="there is room again"))
    quotas.count_stored(person.user.pk, 400_000)
    receive(person.session().pk, MessageInput(content="and still"))


LONG = "\u00e9" * 20_000


def store_images(session: Session) -> None:
    image = GivenFile(media_type="image/png", content=b"x" * 1_100_000)
    receive(session.pk, MessageInput(content="look", files=(image,)))


def store_history(session: Session) -> None:
    """Of a program."""
    with transaction.atomic():
        add_client_messages(session, [("user", "x" * 50_000), ("assistant", "é" * 50_000)] * 8)
    assert Session.objects.get(pk=session.pk).stored_bytes == 1_200_000


def store_automations(session: Session, first: str, **changes: Any) -> None:
    for _ in range(33):
        job = create_job(NewJob(session_id=session.pk, message=first, schedule=HOURLY))
        if changes:
            update_job(job.pk, changes)


def store_routines(session: Session, **changes: Any) -> None:
    long = {"description": LONG, "instructions": LONG}
    texts: dict[str, Any] = {} if changes else long
    for number in range(15):
        plan = NewRoutine(agent_id=session.agent_id, title=f"{number}", schedule="1h", enabled=False, **texts)
        routine = add_routine(plan)
        if changes:
            update_routine(routine.pk, long | changes)


def store_documents(session: Session) -> None:
    for _ in range(6):  # with what they replace
        write_document(session.agent_id, "MEMORY.md", "x" * 200_000)


def store_branches(session: Session) -> None:
    with transaction.atomic():
        *_, end = add_client_messages(session, [("user", "x" * 50_000)] * 7)
    for _ in range(4):
        branch_session(session, end)


@pytest.mark.parametrize(
    "store",
    [
        store_images,
        store_history,
        store_documents,
        store_branches,
        partial(store_automations, first=LONG),
        pytest.param(partial(store_automations, first="look", message=LONG), marks=pytest.mark.full),
        store_routines,
        pytest.param(partial(store_routines, enabled=False), marks=pytest.mark.full),
    ],
)
def test_images_histories_documents_branches_and_the_texts_of_appointments_count_as_stored(
    inside: Inside, settings: Any, monkeypatch: pytest.MonkeyPatch, store: Callable[[Session], None]
) -> None:
    monkeypatch.setattr(quotas, "CHECKED_EACH", 400_000)
    settings.RONDO_MEGABYTES_PER_USER = 1
    session = inside.person.session()
    store(session)
    with pytest.raises(StorageFull, match="1 MB"):
        receive(session.pk, MessageInput(content="more"))
