"""What becomes of a legacy job's answer: judged once, handed over once, whatever dies on the way (rules 4.1, 9.3)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelReply
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, RunRecord, RunState
from sessions_app.deliveries.send import send_next
from sessions_app.hints import DeliveryLane
from sessions_app.models import Agent, Delivery, DeliveryState, Message, Session, Turn, TurnKind
from tests.automations.turn_kinds.test_legacy import again, legacy_job
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.inside import Inside, Reply, during
from tests.model_server import ModelServer
from tests.races import waiting

pytestmark = pytest.mark.rule("4.1", "9.3")


def run_of(job: CronJob) -> RunRecord | None:
    return RunRecord.objects.filter(job=job, finished_at__isnull=False).first()


ASKED = "decide whether a person is told"


def judgements(server: ModelServer) -> list[str]:
    """The states of the requests for a verdict, in their order."""
    return [each.state for each in server.requests if ASKED in each.body["messages"][0]["content"]]


def judged(inside: Inside, job: CronJob, *replies: Reply) -> tuple[RunRecord, int]:
    """The run of the job's slot, and how often a verdict was asked for."""
    inside.model.answer_with(*replies)
    before = len(inside.model.calls)
    inside.beat()
    found = run_of(job)
    assert found is not None
    return found, sum(ASKED in call.system_prompt for call in inside.model.calls[before:])


def says(text: str) -> ModelReply:
    return ModelReply(text=text)


def test_an_answer_worth_telling_is_handed_to_the_jobs_address(inside: Inside, telegram: None) -> None:
    Agent.objects.update(model="offline")
    job = legacy_job(inside.person, message="Take the bread out!")
    run, _ = judged(inside, job)
    assert send_next(DeliveryLane(session_id=Turn.objects.get().session_id, channel="telegram"))
    delivery = Delivery.objects.get(state=DeliveryState.SENT)
    assert (delivery.channel, delivery.address, delivery.meta) == ("telegram", "42", {"thread": 7})
    assert (delivery.reason, delivery.attempts, delivery.last_error) == ("", 1, "")
    [line] = (inside.folder / "telegram.sent").read_text().splitlines()
    assert line.startswith(f"run:{run.run_id} 42 'Done: Take the bread out!")
    assert delivery.idempotency_key == f"run:{run.run_id}"
    assert (delivery.session_id, delivery.session_key) == (run.session_id, f"cron:{job.pk}")
    assert delivery.message is not None
    assert delivery.message.turn == run.turn
    assert delivery.message.content.startswith("Done: Take the bread out!")
    again(job)
    inside.beat()
    assert Delivery.objects.filter(session=run.session).count() == 2, "each run has a delivery of its own"


def test_an_answer_with_nothing_new_is_withheld_with_a_reason(inside: Inside) -> None:
    Agent.objects.update(model="offline")
    run, _ = judged(inside, legacy_job(inside.person, message="report: nothing new in the garden"))
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.reason) == (DeliveryState.WITHHELD, "It says: nothing new.")
    assert delivery.ended_at is not None
    assert run.state == RunState.SUCCEEDED, "what is told and what was done are two things"


SILENT: dict[str, tuple[dict[str, Any], Reply]] = {
    "it is not to be delivered": ({"deliver": False}, ModelReply(text="News!")),
    "it has no channel": ({"channel": ""}, ModelReply(text="News!")),
    "it has no address": ({"to": ""}, ModelReply(text="News!")),
    "it says nothing": ({}, ModelReply(text="")),
    "it fails": ({}, ModelRefused("payment required")),
    "it belongs to a session": (
        {"deliver": None, "channel": "", "to": "", "channel_meta": None},
        ModelReply(text="News!"),
    ),
}


def test_nothing_is_judged_or_handed_over_when_there_is_nobody_to_tell(inside: Inside) -> None:
    for why, (fields, reply) in SILENT.items():
        session = inside.person.session() if "deliver" in fields and fields["deliver"] is None else None
        run, verdicts = judged(inside, legacy_job(inside.person, session=session, **fields), reply)
        assert run.state == (RunState.FAILED if why == "it fails" else RunState.SUCCEEDED), why
        assert verdicts == 0, why
        assert not Delivery.objects.exists(), why
        assert Message.objects.filter(turn=run.turn, role="assistant").exists(), "its closure can be seen"
    inside.say(inside.person.session(), "anything new?")
    assert not any(ASKED in call.system_prompt for call in inside.model.calls)
    assert not Delivery.objects.exists()


def nothing_is_open() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
        )
        return cursor.fetchone()[0] == 0  # type: ignore[no-any-return]


def test_a_run_cancelled_while_being_judged_delivers_nothing(inside: Inside) -> None:
    def cancel() -> None:
        assert nothing_is_open(), "no transaction is open while the judge thinks"
        inside.handles[-1].control.cancel()

    run, verdicts = judged(inside, legacy_job(inside.person), says("News!"), during(cancel, says("{}")))
    assert (run.state, verdicts) == (RunState.CANCELLED, 1)
    assert not Delivery.objects.exists()


def test_a_judge_in_trouble_keeps_nothing_back(inside: Inside) -> None:
    troubles: list[Reply] = [ModelRefused("payment required"), says("perhaps"), says("")]
    for number, trouble in enumerate(troubles, 1):
        run, verdicts = judged(inside, legacy_job(inside.person), says("News!"), trouble)
        assert (run.state, verdicts) == (RunState.SUCCEEDED, 1)
        assert Delivery.objects.filter(state=DeliveryState.PENDING).count() == number


@pytest.mark.full
def test_a_worker_that_dies_before_its_commit_neither_loses_nor_doubles_the_delivery(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    job = legacy_job(person_with_server, message="[[hold:talk]] [[judge-hold:judge]] news!")
    fire_due_jobs()
    worker = fleet.worker()
    with transaction.atomic():
        # the commit's first row; what only refers to it goes on
        Session.objects.select_for_update(no_key=True).get(key__startswith="cron:")
        model_server.release("talk")
        model_server.release("judge")
        until(lambda: judgements(model_server) == ["answered"] and waiting())
        worker.kill()
        assert not Delivery.objects.exists()
    fleet.worker()
    until(lambda: run_of(job), 60)
    again(job)  # the second worker has had its turn of the session when it has had the next one, too
    fire_due_jobs()
    until(lambda: RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).count() == 2, 60)
    assert {run.state for run in RunRecord.objects.filter(job=job)} == {RunState.SUCCEEDED}
    deliveries = Delivery.objects.order_by("id")
    # a worker that died while it was sending is waited for until its claim runs out
    until(lambda: [each.state for each in deliveries.all()] == [DeliveryState.SENT, DeliveryState.SENT], 60)
    turns = Turn.objects.filter(kind=TurnKind.LEGACY).order_by("id")
    assert [each.message.turn for each in deliveries if each.message] == list(turns)
