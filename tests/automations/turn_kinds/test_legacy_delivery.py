"""What becomes of a legacy job's answer: judged once, handed over once, whatever dies on the way (rules 4.1, 9.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from agent_core.testing import ModelServer
from automations.firing.fire_jobs import fire_due_jobs
from automations.models import CronJob, RunRecord, RunState
from sessions_app.models import Delivery, DeliveryState, Message, Session, Turn, TurnKind
from sessions_app.turns.cancel import cancel_turn
from sessions_app.turns.receive import MessageInput, receive
from tests.automations.turn_kinds.test_legacy import again, legacy_job
from tests.conftest import Person
from tests.fleet import Fleet, Process, until
from tests.races import waiting
from tests.stories.test_main_job import ended

pytestmark = pytest.mark.rule("4.1", "9.3")


def run_of(job: CronJob) -> RunRecord | None:
    return RunRecord.objects.filter(job=job, finished_at__isnull=False).first()


def judgements(server: ModelServer) -> list[str]:
    """The states of the requests for a verdict, in their order."""
    return [
        received.state
        for received in server.requests
        if "decide whether a person is told" in received.body["messages"][0]["content"]
    ]


def test_an_answer_worth_telling_is_handed_to_the_jobs_address(fleet: Fleet, person: Person) -> None:
    job = legacy_job(person, message="Take the bread out!")
    fire_due_jobs()
    fleet.worker()
    run = until(lambda: run_of(job))
    delivery = until(lambda: Delivery.objects.filter(state=DeliveryState.SENT).first())
    assert (delivery.channel, delivery.address, delivery.meta) == ("telegram", "42", {"thread": 7})
    assert (delivery.reason, delivery.attempts, delivery.last_error) == ("", 1, "")
    [line] = (fleet.folder / "telegram.sent").read_text().splitlines()
    assert line.startswith(f"run:{run.run_id} 42 'Done: Take the bread out!")
    assert delivery.idempotency_key == f"run:{run.run_id}"
    assert (delivery.session_id, delivery.session_key) == (run.session_id, f"cron:{job.pk}")
    assert delivery.message is not None
    assert delivery.message.turn == run.turn
    assert delivery.message.content.startswith("Done: Take the bread out!")


def test_an_answer_with_nothing_new_is_withheld_with_a_reason(fleet: Fleet, person: Person) -> None:
    job = legacy_job(person, message="report: nothing new in the garden")
    fire_due_jobs()
    fleet.worker()
    run = until(lambda: run_of(job))
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.reason) == (DeliveryState.WITHHELD, "It says: nothing new.")
    assert delivery.ended_at is not None
    assert run.state == RunState.SUCCEEDED, "what is told and what was done are two things"


SILENT: dict[str, tuple[dict[str, Any], str]] = {
    "it is not to be delivered": ({"deliver": False}, RunState.SUCCEEDED),
    "it has no channel": ({"channel": ""}, RunState.SUCCEEDED),
    "it has no address": ({"to": ""}, RunState.SUCCEEDED),
    "it says nothing": ({"message": "[[empty]] x"}, RunState.SUCCEEDED),
    "it fails": ({"message": "[[fail:402]] x"}, RunState.FAILED),
}


@pytest.mark.parametrize("why", SILENT)
def test_nothing_is_judged_or_handed_over_when(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, why: str
) -> None:
    fields, state = SILENT[why]
    job = legacy_job(person_with_server, **fields)
    fire_due_jobs()
    fleet.worker()
    run = until(lambda: run_of(job))
    assert run.state == state
    assert not Delivery.objects.exists()
    assert judgements(model_server) == []
    assert Message.objects.filter(turn=run.turn, role="assistant").exists(), "its closure can be seen"


def test_a_run_cancelled_while_being_judged_delivers_nothing(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    job = legacy_job(person_with_server, message="[[judge-hold:j]] news!")
    fire_due_jobs()
    fleet.worker()
    until(lambda: model_server.held.get("j"))
    cancel_turn(Turn.objects.get().pk)
    run = until(lambda: run_of(job))
    assert run.state == RunState.CANCELLED
    assert not Delivery.objects.exists()


@pytest.mark.parametrize("trouble", ["[[judge-fail:402]]", "[[judge-reply:perhaps]]", "[[judge-empty]]"])
def test_a_judge_in_trouble_keeps_nothing_back(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, trouble: str
) -> None:
    job = legacy_job(person_with_server, message=f"{trouble} report: nothing new")
    fire_due_jobs()
    fleet.worker()
    run = until(lambda: run_of(job))
    assert run.state == RunState.SUCCEEDED
    until(lambda: Delivery.objects.get().state == DeliveryState.SENT)
    assert len(judgements(model_server)) == 1


def test_answers_of_automations_and_people_are_neither_judged_nor_delivered(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    session = person_with_server.session()
    bound = legacy_job(
        person_with_server, session=session, deliver=None, channel="", to="", channel_meta=None
    )
    fire_due_jobs()
    asked = receive(session.pk, MessageInput(content="anything new?"))
    fleet.worker()
    until(lambda: run_of(bound) and ended(asked))
    assert Turn.objects.filter(kind=TurnKind.AUTOMATION, state="succeeded").count() == 1
    assert judgements(model_server) == []
    assert not Delivery.objects.exists()


def nothing_is_open() -> bool:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
        )
        return cursor.fetchone()[0] == 0  # type: ignore[no-any-return]


def test_no_transaction_is_open_while_the_judge_thinks(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    job = legacy_job(person_with_server, message="[[judge-hold:j]] news!")
    fire_due_jobs()
    fleet.worker()
    until(lambda: model_server.held.get("j"))
    assert until(nothing_is_open)
    model_server.release("j")
    until(lambda: run_of(job))


def _before_the_judge(server: ModelServer, worker: Process) -> None:
    until(lambda: server.held.get("talk"))
    worker.kill()
    server.release("talk")
    server.release("judge")


def _while_it_is_judged(server: ModelServer, worker: Process) -> None:
    server.release("talk")
    until(lambda: server.held.get("judge"))
    worker.kill()
    server.release("judge")


def _after_the_judge_before_the_commit(server: ModelServer, worker: Process) -> None:
    with transaction.atomic():
        # the commit's first row; what only refers to it goes on
        Session.objects.select_for_update(no_key=True).get(key__startswith="cron:")
        server.release("talk")
        server.release("judge")
        until(lambda: judgements(server) == ["answered"] and waiting())
        worker.kill()
        assert not Delivery.objects.exists()


def _after_the_commit(server: ModelServer, worker: Process) -> None:
    server.release("talk")
    server.release("judge")
    until(Delivery.objects.exists)
    worker.kill()


@pytest.mark.parametrize(
    "death",
    [_before_the_judge, _while_it_is_judged, _after_the_judge_before_the_commit, _after_the_commit],
    ids=lambda death: death.__name__.strip("_"),
)
def test_a_worker_that_dies_neither_loses_nor_doubles_the_delivery(
    fleet: Fleet,
    model_server: ModelServer,
    person_with_server: Person,
    death: Callable[[ModelServer, Process], None],
) -> None:
    job = legacy_job(person_with_server, message="[[hold:talk]] [[judge-hold:judge]] news!")
    fire_due_jobs()
    worker = fleet.worker()
    death(model_server, worker)
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


def test_each_run_has_a_delivery_of_its_own(fleet: Fleet, person: Person) -> None:
    job = legacy_job(person, message="Water the plants!")
    fleet.worker()
    for number in (1, 2):
        if number == 2:
            again(job)
        fire_due_jobs()
        until(lambda: RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).count() == number)  # noqa: B023
    until(lambda: Delivery.objects.filter(state=DeliveryState.SENT).count() == 2)
    assert len((fleet.folder / "telegram.sent").read_text().splitlines()) == 2
