"""How scheduled agents fail elsewhere: each situation is built here. The numbers are those of docs/failures.md."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db.models.functions import Now
from django.test import Client

from agent_core import models
from agent_core.connections import hooks
from agent_core.exceptions import NO_QUOTA, NOT_FOUND, ModelRefused, ModelUnavailable
from agent_core.llm.protocol import ModelReply
from agent_core.turn import request_size
from agent_core.types import Ended
from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.explain import explain
from automations.jobs.system import HEARTBEAT
from automations.models import CronJob, JobClock, JobHealth, RunRecord, RunState
from automations.runs.describe import SlotState, slot_state
from automations.runs.record import REPEAT_AFTER
from automations.runs.skips import GapReason
from config.operations.doctor import CHECKS
from sessions_app.agents.edit import update_agent
from sessions_app.deliveries import outbox
from sessions_app.models import (
    Agent,
    ConsentQuestion,
    Delivery,
    MailboxEvent,
    Message,
    Session,
    Turn,
    TurnState,
)
from sessions_app.queue.receive import MessageInput, receive
from tests.automations.jobs import made
from tests.automations.test_message_deliveries import Chat, chat, deliver_all
from tests.automations.turn_kinds.test_bound import ran, repeated
from tests.conftest import new_person
from tests.deletion import caller
from tests.inside import Inside, Script, begun, call, listening, makes
from tests.races import in_thread

__all__ = ["chat"]  # a fixture
pytestmark = pytest.mark.django_db(transaction=True)
DOWN = ModelUnavailable("down", reason="The model provider cannot be reached (connection refused)")
REFUSED = ModelRefused("no", reason="The model provider rejected the request (400)")
SILENT = ModelReply(text=" ")


@pytest.fixture
def session(inside: Inside, chat: Chat) -> Session:
    """A conversation in a chat outside the server."""
    Agent.objects.update(policy={"max_attempts": 1})
    found: Session = inside.person.session(key="chat:7", address="7")
    return found


@pytest.mark.rule("11.2")
def test_a_morning_job_whose_provider_is_away_for_four_minutes_answers_once(
    inside: Inside, session: Session, chat: Chat
) -> None:
    """Complaint 1: at 09:00 and 09:01 nobody answers, at 09:06 somebody does."""
    run = ran(inside, made.new(session), DOWN)
    waits = []
    for reply in (DOWN, ModelReply(text="Good morning.")):
        run.refresh_from_db()
        assert run.state == RunState.QUEUED, "what has not run is no success, and is not lost"
        assert run.turn is not None
        assert run.not_before is not None
        assert run.turn.finished_at is not None
        waits.append(round((run.not_before - run.turn.finished_at).total_seconds() / 60))
        repeated(inside, run, reply)
    assert waits == [wait.total_seconds() / 60 for wait in REPEAT_AFTER[:2]] == [1, 5]
    assert (run.state, run.attempt, run.reason) == (RunState.SUCCEEDED, 3, "")
    deliver_all(session)
    assert [parcel.text for parcel in chat.taken] == ["Good morning."], "the attempts before are no news"
    said = Message.objects.filter(session=session, role="assistant").order_by("seq")
    assert [bool(message.metadata.get("closure")) for message in said] == [True, True, False]


@pytest.mark.rule("11.2")
def test_a_failure_whose_next_attempt_never_comes_is_told_once(
    inside: Inside, session: Session, chat: Chat
) -> None:
    """Complaint 9: the next slot comes while the run waits for its next attempt."""
    job = made.new(session, name="News")
    for _ in range(3):
        ran(inside, job, DOWN)
    deliver_all(session)
    assert RunRecord.objects.filter(job=job, reason="superseded").count() == 2
    [told] = chat.taken
    assert told.type == "notice"
    assert "connection refused" in told.text


@pytest.mark.rule("11.3")
def test_a_run_that_did_not_do_its_job_is_not_shown_as_done(
    inside: Inside, session: Session, chat: Chat
) -> None:
    """Complaint 2: a task that never once worked is not green."""
    job = made.new(session)
    empty = ran(inside, job, SILENT)
    cut = ran(inside, job, ModelReply(text="First of all", ended_by=Ended.LENGTH))
    assert (empty.attention, cut.attention) == ("empty", "cut_short")
    chat.shut = True
    lost = ran(inside, job, ModelReply(text="Here it is."))
    deliver_all(session)
    found = {run.pk: run for run in RunRecord.objects.filter(job=job)}
    assert {run.state for run in found.values()} == {RunState.SUCCEEDED}, "the turns did succeed"
    said = [found[run.pk].attention for run in (empty, cut, lost)]
    # the shut chat lost what had waited for it, too
    assert said == ["undelivered", "undelivered", "undelivered"]
    assert {slot_state(run) for run in found.values()} == {SlotState.ATTENTION}
    job.refresh_from_db()
    assert job.health.failures_in_a_row == 3, "three of them count as failing"
    chat.shut = False
    for delivery in Delivery.objects.filter(state="failed"):
        outbox.send_again(delivery.pk)
    deliver_all(session)
    for run in (empty, cut, lost):
        run.refresh_from_db()
    assert [run.attention for run in (empty, cut, lost)] == ["empty", "cut_short", ""]
    job.health.refresh_from_db()
    assert job.health.failures_in_a_row == 0


@pytest.mark.rule("11.4")
def test_an_approval_that_nobody_sees_at_night_holds_no_later_slot(
    inside: Inside, session: Session, chat: Chat, client: Client
) -> None:
    """Complaint 3: it hangs for ever on an approval that nobody sees, and starves later slots."""
    job = made.new(session, name="Tidy up")
    asks = (makes(call("erase", name="disk")), ModelReply(text="I may not erase it."))
    runs = [ran(inside, job, *asks), ran(inside, job, *asks)]
    runs.append(ran(inside, job, ModelReply(text="All is well.")))
    assert [(run.state, run.attention) for run in runs] == [("succeeded", "needs_consent")] * 2 + [
        ("succeeded", "")
    ]
    question = ConsentQuestion.objects.get(state="open")
    deliver_all(session)
    asked = [question.text in parcel.text for parcel in chat.taken]
    assert (question.run, asked) == (runs[1].pk, [False, True, False]), (
        "the newer question replaced the older one"
    )
    client.force_login(inside.person.user)
    assert "erase" in client.get("/upcoming/").content.decode()
    listed = StringIO()
    call_command("automations", stdout=listed)
    assert f"#{question.pk}: may it use erase?" in listed.getvalue()
    assert CHECKS["questions"]().detail.startswith("1 ")
    assert inside.did("disk") == 0
    inside.model.answer_with(ModelReply(text="It is erased."))
    answer = caller(inside.person).post(f"/api/questions/{question.pk}/answer/", {"content": "yes"})
    assert answer.status_code == 202
    inside.run_all()
    deliver_all(session)
    assert (inside.did("disk"), chat.taken[-1].text) == (1, "It is erased.")


@pytest.mark.rule("4.4")
def test_many_beats_make_one_turn_of_a_slot(inside: Inside, session: Session) -> None:
    """Complaint 4: the same slot twice or more."""
    job = made.new(session)
    made.overdue(job)
    for thread, _ in [in_thread(fire_due_jobs) for _ in range(8)]:
        thread.join(30)
    inside.run_all()
    JobClock.objects.filter(job=job).update(last_slot=None, next_run_at=RunRecord.objects.get().scheduled_for)
    fire_due_jobs()  # a clock that was set back
    inside.run_all()
    job.refresh_from_db()
    assert (RunRecord.objects.count(), Turn.objects.count(), job.enabled) == (1, 1, True)


@pytest.mark.rule("4.4")
def test_every_job_of_a_crowded_instant_runs_also_after_a_failed_slot(
    inside: Inside, session: Session
) -> None:
    """Complaint 6: silently never fires when idle, busy or crowded."""
    jobs = [made.new(session, message=f"task {number}") for number in range(30)]
    failed = ran(inside, jobs[0], REFUSED)
    assert failed.state == RunState.FAILED
    receive(session.pk, MessageInput(content="A person writes at the same instant."))
    JobClock.objects.update(next_run_at=Now())
    inside.beat()
    done = RunRecord.objects.filter(state=RunState.SUCCEEDED)
    assert set(done.values_list("job_id", flat=True)) == {job.pk for job in jobs}
    assert not Turn.objects.exclude(state__in=[TurnState.SUCCEEDED, TurnState.FAILED]).exists()


@pytest.mark.rule("11.2")
def test_a_job_that_keeps_failing_is_told_once_and_once_when_it_works(
    inside: Inside, session: Session, chat: Chat
) -> None:
    """Complaint 9: a failure is silent, or errors are posted as answers again and again."""
    job = made.new(session, name="News")
    for _ in range(5):
        ran(inside, job, REFUSED)
    ran(inside, job)
    assert RunRecord.objects.filter(job=job, reason=GapReason.BACKOFF).count() == 1, "the sixth slot waits"
    deliver_all(session)
    first, slowed = [parcel.text for parcel in chat.taken]
    assert "400" in first
    assert "5 runs in a row" in slowed
    assert any("once an hour" in text for text in explain(inside.person.user, job.pk).warnings)
    chat.taken.clear()
    _let_pass(job, timedelta(hours=1))
    assert ran(inside, job, DOWN).state == RunState.FAILED, "it is not repeated, too"
    deliver_all(session)
    assert chat.taken == [], "a failure that goes on is no news"
    _let_pass(job, timedelta(hours=1))
    ran(inside, job, ModelReply(text="News."))
    deliver_all(session)
    told = {parcel.type: parcel.text for parcel in chat.taken}
    assert told["message"] == "News."
    assert "works again" in told["notice"]
    unread = MailboxEvent.objects.filter(target=session, dropped_at=None, acknowledged_at=None)
    assert [event.event_type for event in unread] == ["works_again"], "it replaces what was not read"


@pytest.mark.rule("11.2", "11.3")
def test_answers_on_their_way_to_a_dead_chat_do_not_mend_a_failing_job(
    inside: Inside, session: Session, chat: Chat
) -> None:
    """Complaint 9: "failing" and "works again" in turn, as long as a chat is dead."""
    job, chat.shut = made.new(session, name="News"), True

    def told() -> list[str]:
        return list(MailboxEvent.objects.order_by("pk").values_list("event_type", flat=True))

    for answers, failures in ((1, 0), (1, 0), (1, 3), (2, 5), (2, 7)):
        before = _failures(job)
        for _ in range(answers):
            _let_pass(job, timedelta(hours=1))
            ran(inside, job, ModelReply(text="News."))
            assert _failures(job) == before, "an answer on its way is not done"
        deliver_all(session)
        assert _failures(job) == failures
    assert told() == ["failing"]
    chat.shut = False
    _let_pass(job, timedelta(hours=1))
    ran(inside, job, ModelReply(text="News."))
    deliver_all(session)
    assert (_failures(job), told()) == (0, ["failing", "works_again"])


def _failures(job: CronJob) -> int:
    return sum(JobHealth.objects.filter(job=job).values_list("failures_in_a_row", flat=True))


def _let_pass(job: CronJob, time: timedelta) -> None:
    JobHealth.objects.filter(job=job, failures_in_a_row__gt=0).update(failed_last=Now() - time)


@pytest.mark.rule("11.2")
@pytest.mark.parametrize("code", [NO_QUOTA, NOT_FOUND])
def test_a_run_whose_model_is_unpaid_or_retired_has_its_answer_of_the_fallback_model(
    inside: Inside, session: Session, chat: Chat, code: str
) -> None:
    """Complaint 11: a bill that is not paid for days, with a fallback model that nobody asks."""
    spare = Script()
    models.register("scripted-spare", lambda: spare)
    update_agent(inside.person.agent.pk, {"fallback_model": "scripted-spare"})
    spare.answer_with(ModelReply(text="Good morning."))
    run = ran(inside, made.new(session), ModelRefused("no", code=code))
    deliver_all(session)
    assert (run.state, run.attempt, run.attention) == (RunState.SUCCEEDED, 1, "")
    assert [parcel.text for parcel in chat.taken] == ["Good morning."]


@pytest.mark.rule("11.3", "3.3")
def test_the_words_of_a_job_stand_in_each_request_of_its_turn(inside: Inside, session: Session) -> None:
    """Complaint 13: a cut context loses the job's own words, and an older question is answered."""
    for number in range(8):
        inside.model.answer_with(ModelReply(text=f"{number} " + "chatter " * 400))
        inside.say(session, f"question {number} " + "of old " * 400)
    before, hooks.context_tokens = hooks.context_tokens, lambda: 4_000
    try:
        inside.model.calls.clear()
        twice = (makes(call("listen", str(number), number=number)) for number in range(2))
        with listening(lambda: "heard " * 6_000):
            run = ran(inside, made.new(session, message="count the herons"), *twice)
    finally:
        hooks.context_tokens = before
    assert run.state == RunState.SUCCEEDED
    assert len(inside.model.calls) == 3
    for asked in inside.model.calls:
        assert request_size.of_call(asked) <= 4_000
        assert any("count the herons" in entry.content for entry in asked.entries)
        assert not any("question 0" in entry.content for entry in asked.entries), "it was cut"


@pytest.mark.rule("5.4", "7.6")
def test_fifty_silent_empty_and_failing_heartbeats_touch_no_conversation(
    transactional_db: None, chat: Chat, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complaint 14: a heartbeat sends the last answer again, takes its place, or deletes the history."""
    inside = begun(tmp_path, monkeypatch, new_person("ada", dreams=True))
    CronJob.objects.exclude(system_event=HEARTBEAT).delete()
    update_agent(
        inside.person.agent.pk, {"heartbeat": {"active_hours": [0, 24]}, "policy": {"max_attempts": 1}}
    )
    inside.person.agent.refresh_from_db()
    session = inside.person.session(key="chat:7", address="7")
    inside.say(session, "hello")
    deliver_all(session)
    chat.taken.clear()
    before = list(Message.objects.filter(session=session).values_list("seq", "content"))
    job, overflow = CronJob.objects.get(), ModelRefused("long", code="context_too_long")
    for number in range(50):
        reply = (ModelReply(text="HEARTBEAT_OK"), ModelReply(text=""), overflow)[number % 3]
        inside.model.replies = [reply] * 3  # it also reads the conversations first
        made.overdue(job)
        fire_due_jobs()
        inside.run_all()
    assert RunRecord.objects.filter(job=job, finished_at__isnull=False).count() == 50
    deliver_all(session)
    assert chat.taken == []
    assert list(Message.objects.filter(session=session).values_list("seq", "content")) == before
    assert [each.detail or each.summary for each in MailboxEvent.objects.all()] == []
    heartbeat = Session.objects.get(type="heartbeat")
    kept = Message.objects.filter(session=heartbeat).values_list("seq", flat=True)
    assert sorted(kept) == list(range(1, heartbeat.last_seq + 1)), "an overflow deletes nothing"
