"""The main job: an automation runs as a normal turn of its session, end to end, in real processes."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from agent_core.testing import ModelServer
from automations.jobs.edit import NewJob, create_job
from automations.models import RunRecord, RunState
from sessions_app.models import Event, EventType, Message, OnBusy, Session, Turn, TurnState
from sessions_app.sessions.delete import delete_session
from sessions_app.turns.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until

pytestmark = pytest.mark.rule("4.8")


def ended(turn: Turn) -> Turn | None:
    turn.refresh_from_db()
    return turn if turn.state not in {TurnState.QUEUED, TurnState.RUNNING} else None


def runs(state: str, session: Session) -> list[RunRecord]:
    return list(RunRecord.objects.filter(state=state, session=session).order_by("scheduled_for"))


@pytest.mark.rule("4.1")
def test_an_automation_and_its_session_share_one_history(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    fleet.beat()
    session = person.session()
    first = receive(session.pk, MessageInput(content="My favourite colour is blue."))
    until(lambda: ended(first))
    job = create_job(
        NewJob(
            session_id=session.pk,
            name="colours",
            message="What is my favourite colour?",
            schedule={"kind": "every", "seconds": 1},
        )
    )
    run = until(lambda: runs(RunState.SUCCEEDED, session))[0]
    history = list(Message.objects.filter(session=session, turn=run.turn))
    assert [message.role for message in history] == ["user", "assistant"]
    trigger, answer = history
    assert trigger.content == "Scheduled automation triggered: colours\n\nWhat is my favourite colour?"
    assert trigger.model_content is None
    assert trigger.metadata == {
        "_automation_turn": True,
        "automation_id": job.pk,
        "automation_name": "colours",
        "automation_run_id": run.run_id,
        "automation_prompt_ref": run.prompt_ref,
    }
    assert "blue" in answer.content
    assert answer.metadata["source"] == {
        "kind": "automation",
        "id": job.pk,
        "name": "colours",
        "run_id": run.run_id,
    }
    assert run.prompt_ref is not None
    assert run.prompt_ref["sha256"] == hashlib.sha256(run.rendered_prompt.encode()).hexdigest()
    assert "What is my favourite colour?" in run.rendered_prompt
    assert not Message.objects.filter(content__contains='of="task"').exists()
    following = receive(session.pk, MessageInput(content="What did the automation say?"))
    until(lambda: ended(following))
    assert "blue" in Message.objects.filter(turn=following, role="assistant").get().content
    blocked = delete_session(session.pk)
    assert not blocked.deleted
    assert [blocker.id for blocker in blocked.blockers] == [job.pk]
    gone = delete_session(session.pk, with_dependents=True)
    assert gone.deleted
    assert gone.deleted_ids == (job.pk,)
    assert not Session.objects.filter(pk=session.pk).exists()
    assert not RunRecord.objects.exists()


def test_seqs_have_no_gap_and_the_revision_counts_the_commits(fleet: Fleet, person: Person) -> None:
    session = person.session()
    turns = [
        receive(session.pk, MessageInput(content=f"note {number}", on_busy=OnBusy.ENQUEUE))
        for number in range(12)
    ]
    fleet.worker()
    until(lambda: all(ended(turn) for turn in turns))
    session.refresh_from_db()
    assert session.revision == 12
    seqs = list(Message.objects.filter(session=session).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, session.last_seq + 1))
    asked = list(
        Message.objects.filter(session=session, role="user").order_by("seq").values_list("content", flat=True)
    )
    assert asked == [f"note {number}" for number in range(12)]
    assert session.title == "note 0"
    for turn in turns:
        ends = Event.objects.filter(turn_id=turn.pk, type=EventType.TURN_END)
        assert ends.count() == 1


@pytest.mark.rule("2.3")
def test_a_long_turn_delays_only_its_session_and_keeps_order(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    busy, other = person_with_server.session(), person_with_server.session()
    fleet.worker()
    fleet.beat()
    held = receive(busy.pk, MessageInput(content="[[hold:long]] think about it"))
    until(lambda: model_server.held.get("long"))
    start = datetime.now(UTC) + timedelta(seconds=1)
    for number in (2, 1):  # made in the other order than they are due
        at = (start + timedelta(milliseconds=200 * number)).isoformat()
        create_job(
            NewJob(session_id=busy.pk, name=f"job {number}", message="go", schedule={"kind": "at", "at": at})
        )
    at = (start + timedelta(milliseconds=600)).isoformat()
    create_job(NewJob(session_id=other.pk, message="elsewhere", schedule={"kind": "at", "at": at}))
    until(lambda: runs(RunState.SUCCEEDED, other), what="the other session's automation runs meanwhile")
    until(lambda: len(runs(RunState.QUEUED, busy)) == 2)
    asked = receive(busy.pk, MessageInput(content="and me", on_busy=OnBusy.ENQUEUE))
    held.refresh_from_db()
    assert held.state == TurnState.RUNNING
    model_server.release("long")
    until(lambda: len(runs(RunState.SUCCEEDED, busy)) == 2 and ended(asked))
    order = Turn.objects.filter(session=busy).order_by("started_at")
    names = [turn.metadata.get("automation_name") or turn.content for turn in order]
    assert names == ["[[hold:long]] think about it", "and me", "job 1", "job 2"]
    finished = list(order.values_list("started_at", "finished_at"))
    assert all(end and begin and end <= begin for (_, end), (begin, _) in pairwise(finished))


def test_an_automations_closure_is_visible_whatever_the_outcome(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    fleet.beat()
    session = person_with_server.session()
    at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    for name, message in (("empty", "[[empty]] x"), ("refused", "[[fail:402]] x")):
        create_job(
            NewJob(session_id=session.pk, name=name, message=message, schedule={"kind": "at", "at": at})
        )
    until(lambda: RunRecord.objects.filter(finished_at__isnull=False).count() == 2)
    empty, refused = (RunRecord.objects.get(job__name=name) for name in ("empty", "refused"))
    assert (empty.state, refused.state) == (RunState.SUCCEEDED, RunState.FAILED)
    assert Message.objects.get(turn=empty.turn, role="assistant").content == "Finished with no output."
    told = Message.objects.get(turn=refused.turn, role="assistant").content
    quota = "The model provider rejected the request (402: the account's quota or credit is used up)."
    assert (told, refused.error) == (f"The turn failed: {quota}", quota)
    assert "402" in refused.error_detail
    assert "test-key" not in refused.error_detail + told


def test_an_automation_requested_in_chat_is_bound_to_the_session(fleet: Fleet, person: Person) -> None:
    fleet.worker()
    fleet.beat()
    session = person.session()
    asked = receive(session.pk, MessageInput(content="Every 10 seconds check the repo"))
    until(lambda: ended(asked))
    job = session.jobs.get()
    assert (job.every_seconds, job.source, job.created_by_turn_id) == (10, "chat", asked.pk)
    reply = Message.objects.filter(turn=asked, role="assistant").last()
    assert reply is not None
    assert job.pk in reply.content


def test_an_automation_cannot_create_automations(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    fleet.worker()
    fleet.beat()
    session = person_with_server.session()
    at = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    message = 'use tool cron with {"action": "add", "message": "more", "every_seconds": 1}'
    create_job(NewJob(session_id=session.pk, message=message, schedule={"kind": "at", "at": at}))
    run = until(lambda: runs(RunState.SUCCEEDED, session))[0]
    assert session.jobs.count() == 1
    results = Message.objects.get(turn=run.turn, role="tool").parts["results"]
    assert results[0]["outcome"] == "failed"
    assert "cannot create automations" in results[0]["output"]
