"""What is kept and for how long (rule 10.3): nothing open goes, nor what something open needs; messages never go."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, models, transaction

from agent_core.execution import WAITING
from automations.models import RunRecord, RunState
from sessions_app.models import (
    ApiToken,
    Delivery,
    Event,
    ExecutionState,
    IdempotencyKey,
    MailboxEvent,
    Message,
    Pruning,
    Session,
    SignInLink,
    StreamTicket,
    Turn,
    TurnState,
    TurnStep,
)
from sessions_app.models.process import EVENTS
from sessions_app.retention.walk import count_batch, prune_batch, walks
from sessions_app.streams.event_log import Position, horizon, now, read_events
from tests.conftest import Person, new_person
from tests.past import ago, past_run, past_turn, prune_all, ticking
from tests.races import in_thread
from tests.talk import fresh
from tests.tokens import token_of

pytestmark = pytest.mark.rule("10.3")

KEPT = ["EVENTS_DAYS", "JOURNALS_DAYS", "TURNS_DAYS", "TURNS_PER_SESSION", "RUNS_DAYS", "RUNS_PER_JOB"]
KEPT += ["MAILBOX_DAYS", "DELIVERIES_DAYS", "SCHEDULED_DAYS"]


@pytest.fixture
def person(db: None) -> Person:
    return new_person("ada")


@pytest.fixture
def session(person: Person) -> Session:
    return person.session()  # type: ignore[no-any-return]


def ids(rows: models.QuerySet[Any]) -> set[Any]:
    return set(rows.values_list("pk", flat=True))


def walk(name: str) -> Any:
    return next(each for each in walks() if each.name == name)


def test_events_are_kept_for_a_day(session: Session) -> None:
    past_turn(session, 2)
    young = past_turn(session, 0.9)
    assert prune_all() == {"events": 2}
    assert set(Event.objects.values_list("turn_id", flat=True)) == {young.pk}


def test_an_ended_turn_loses_its_whole_journal_after_a_week(session: Session) -> None:
    old, young, long = past_turn(session, 8), past_turn(session, 6), past_turn(session, 9, finished_at=ago(1))
    TurnStep.objects.create(turn=old, n=2, kind="response", data={}, created_at=ago(8))
    prune_all(1, "journals")
    assert set(TurnStep.objects.values_list("turn_id", flat=True)) == {young.pk, long.pk}
    assert (Turn.objects.count(), long.steps.count()) == (3, 2)


def test_an_open_turn_stays_with_its_journal_however_old(session: Session, person: Person) -> None:
    turns = [past_turn(session, 1000, TurnState.QUEUED), past_turn(person.session(), 1000, TurnState.RUNNING)]
    past_turn(session, 1000)
    prune_all()
    assert ids(Turn.objects.all()) == {turn.pk for turn in turns}
    assert [turn.steps.count() for turn in turns] == [2, 2]


def test_an_old_turn_is_deleted_and_its_references_are_cleared(session: Session) -> None:
    turn = past_turn(session, 91)
    young = past_turn(session, 89)
    mail = MailboxEvent.objects.create(
        target=session, event_type="x", summary="x", acknowledged_at=ago(1), acknowledged_by=turn
    )
    job = ticking(session)
    run = past_run(job, ago(1), turn=turn)
    assert prune_all(500, "turns by age") == {"turns by age": 1}
    assert ids(Turn.objects.all()) == {young.pk}
    assert set(TurnStep.objects.values_list("turn_id", flat=True)) == {young.pk}
    for row in (mail, run):
        row.refresh_from_db()
    assert (mail.acknowledged_by, run.turn) == (None, None)
    said = Message.objects.filter(session=session).values_list("seq", "turn", "content")
    expected = [(1, None, "user"), (2, None, "assistant"), (3, young.pk, "user"), (4, young.pk, "assistant")]
    assert list(said) == expected
    assert (fresh(session).last_seq, session.revision) == (4, 2)


def test_every_column_that_refers_to_turns_is_looked_after() -> None:
    """A new one would make pruning fail at COMMIT, or leave a row behind that names nothing."""
    referring = [
        relation
        for relation in Turn._meta.related_objects
        if getattr(relation.field, "db_constraint", True) or relation.on_delete is not models.DO_NOTHING
    ]
    deleted = {each.related_model for each in referring if each.on_delete is models.CASCADE}
    cleared = {each.related_model for each in referring if each.on_delete is models.SET_NULL}
    assert deleted == {TurnStep}
    assert cleared >= {Message, MailboxEvent, ExecutionState, RunRecord, Turn}
    assert {each.related_model for each in referring} == cleared | deleted


def test_a_turn_goes_together_with_the_messages_it_took_along(session: Session) -> None:
    host = past_turn(session, 91)
    guests = [past_turn(session, 91, TurnState.MERGED, host=host, claim=None) for _ in range(2)]
    assert prune_all(1, "turns by age") == {"turns by age": 3}
    assert not Turn.objects.filter(pk__in=[host.pk, *(guest.pk for guest in guests)]).exists()


def test_host_and_guest_turns_stay_while_either_is_open(session: Session) -> None:
    running = past_turn(session, 91, TurnState.RUNNING)
    guest = past_turn(session, 91, TurnState.QUEUED, host=running)
    host = past_turn(session, 91)
    waiting = past_turn(session, 91, TurnState.QUEUED, host=host)
    prune_all(1, "turns by age", "turns by count")
    assert ids(Turn.objects.all()) == {running.pk, guest.pk, host.pk, waiting.pk}


@pytest.mark.parametrize(
    ("state", "waits"), [(RunState.QUEUED, True), (RunState.QUEUED, False), (RunState.RUNNING, False)]
)
def test_an_open_runs_turn_stays_for_the_next_attempt(session: Session, state: str, waits: bool) -> None:
    turn = past_turn(session, 91, TurnState.FAILED)
    job = ticking(session)
    run = past_run(job, ago(91), state, turn, not_before=ago(-1) if waits else None)
    past_run(job, ago(90.5))
    prune_all()
    assert ids(Turn.objects.all()) == {turn.pk}
    assert fresh(run).turn_id == turn.pk
    RunRecord.objects.filter(pk=run.pk).update(state=RunState.FAILED, not_before=None, finished_at=ago(91))
    prune_all()
    assert not Turn.objects.exists()
    assert not RunRecord.objects.filter(pk=run.pk).exists()


def test_a_session_keeps_its_newest_turns(session: Session, person: Person, settings: Any) -> None:
    settings.RONDO_KEEP_TURNS_PER_SESSION = 3
    other = person.session()
    turns = [past_turn(session, 10 - number) for number in range(7)]
    others = [past_turn(other, 10) for _ in range(3)]
    assert prune_all(2, "turns by count") == {"turns by count": 4}
    assert ids(Turn.objects.all()) == {turn.pk for turn in turns[4:] + others}


def test_rows_that_ended_within_an_hour_survive_newer_ones(session: Session, settings: Any) -> None:
    settings.RONDO_KEEP_TURNS_PER_SESSION = settings.RONDO_KEEP_RUNS_PER_JOB = 1
    turns = [past_turn(session, 0.04) for _ in range(3)]
    job = ticking(session)
    runs = [past_run(job, ago(0.04) + timedelta(seconds=number)) for number in range(3)]
    prune_all()
    assert (Turn.objects.count(), RunRecord.objects.count()) == (3, 3)
    for rows in (Turn.objects.all(), RunRecord.objects.all()):
        rows.update(finished_at=ago(0.05))
    prune_all()
    assert ids(Turn.objects.all()) == {turns[-1].pk}
    assert ids(RunRecord.objects.all()) == {runs[-1].pk}


def test_runs_go_by_age_and_by_number(session: Session, settings: Any) -> None:
    settings.RONDO_KEEP_RUNS_PER_JOB = 3
    many, old, few = (ticking(session) for _ in range(3))
    runs = [past_run(many, ago(10 - number)) for number in range(6)]
    aged = [past_run(old, ago(92)), past_run(old, ago(91)), past_run(old, ago(89))]
    young = [past_run(few, ago(80)), past_run(few, ago(79))]
    assert prune_all(2, "runs") == {"runs": 5}
    assert ids(RunRecord.objects.all()) == {run.pk for run in runs[3:] + aged[2:] + young}


def test_a_gap_is_as_old_as_its_last_slot(session: Session) -> None:
    job = ticking(session)
    gap = past_run(job, ago(100), RunState.SKIPPED, slots_to=ago(80))
    past_run(job, ago(2))
    assert prune_all(500, "runs") == {}
    RunRecord.objects.filter(pk=gap.pk).update(slots_to=ago(95))
    assert prune_all(500, "runs") == {"runs": 1}


def test_a_job_keeps_its_open_latest_and_latest_unskipped_runs(session: Session) -> None:
    job = ticking(session)
    past_run(job, ago(1000))
    waiting = past_run(job, ago(999), RunState.QUEUED, not_before=ago(-1))
    past_run(job, ago(998), RunState.FAILED)
    running = past_run(job, ago(997), RunState.RUNNING)
    outcome = past_run(job, ago(996), RunState.FAILED)
    past_run(job, ago(995), RunState.SKIPPED)
    last = past_run(job, ago(994), RunState.SKIPPED)
    assert prune_all(1, "runs") == {"runs": 3}
    assert ids(job.runs.all()) == {waiting.pk, running.pk, outcome.pk, last.pk}


def test_ended_executions_go_and_open_ones_stay(session: Session, person: Person, settings: Any) -> None:
    def execution(name: str, status: str, days: float, **fields: Any) -> str:
        ExecutionState.objects.create(
            id=name, session=session, source="message", status=status, request="bake",
            created_at=ago(200), updated_at=ago(days), **fields,
        )  # fmt: skip
        return name

    kept = {execution(f"young{status}", status, 89) for status in ("completed", "failed", "cancelled")}
    kept |= {execution(status[:16], status, 199, question="Which?", asked_at=ago(199)) for status in WAITING}
    kept.add(execution("at-work", "running", 199, turn=past_turn(session, 199, TurnState.RUNNING)))
    for status in ("completed", "failed", "cancelled"):
        execution(f"old{status}", status, 91)
    settings.RONDO_KEEP_TURNS_DAYS = 0
    assert prune_all(1, "executions") == {}
    settings.RONDO_KEEP_TURNS_DAYS = 90
    assert prune_all(1, "executions") == {"executions": 3}
    assert ids(ExecutionState.objects.all()) == kept


def test_an_execution_that_is_taken_up_again_meanwhile_stays(session: Session) -> None:
    fields = {"session": session, "source": "message", "request": "bake", "updated_at": ago(91)}
    ExecutionState.objects.create(id="again", status="planning", turn=past_turn(session, 1), **fields)
    assert walk("executions").remove(["again"]) == set()
    assert ExecutionState.objects.filter(pk="again").exists()


def test_updates_go_once_they_were_read_or_dropped(session: Session) -> None:
    def mail(**fields: Any) -> int:
        about = {"event_type": "x", "summary": "x", "created_at": ago(50)}
        return MailboxEvent.objects.create(target=session, **about, **fields).pk

    pending = mail()
    read_lately = mail(acknowledged_at=ago(29))
    dropped_lately = mail(dropped_at=ago(29), reason="stale")
    mail(acknowledged_at=ago(31))
    mail(dropped_at=ago(31), reason="stale")
    assert prune_all(1) == {"mailbox events": 2}
    assert ids(MailboxEvent.objects.all()) == {pending, read_lately, dropped_lately}


def test_deliveries_go_once_they_ended(session: Session) -> None:
    def delivery(number: int, state: str, days: float | None) -> int:
        made = Delivery.objects.create(
            session=session, session_key=session.key, idempotency_key=str(number), channel="c", address="a",
            state=state, reason="why", last_error="why", created_at=ago(200),
            **{"tried_at" if state == "failed" else "ended_at": None if days is None else ago(days)},
        )  # fmt: skip
        return made.pk

    kept = {delivery(0, "pending", None), delivery(1, "sent", 89), delivery(9, "failed", 91)}
    for number, state in enumerate(("sent", "withheld", "closed"), 2):
        delivery(number, state, 91)
    assert prune_all(1) == {"deliveries": 3}
    assert ids(Delivery.objects.all()) == kept


def test_keys_sign_in_links_and_stream_tickets_go_a_day_after_they_were_made(person: Person) -> None:
    token_of(person.user)
    token = ApiToken.objects.get()
    for number in (2, 1, 0):
        made = ago(number + 0.5)
        IdempotencyKey.objects.create(user=person.user, address="a", key=f"{number}", created_at=made)
        lives = {"created_at": made, "expires_at": made + timedelta(minutes=1)}
        used = made if number == 2 else None
        SignInLink.objects.create(user=person.user, token_sha256=f"{number}" * 64, used_at=used, **lives)
        StreamTicket.objects.create(token=token, ticket_sha256=f"{number}" * 64, **lives)
    assert prune_all(1) == {"idempotency keys": 2, "sign-in links": 2, "stream tickets": 2}
    assert IdempotencyKey.objects.get().key == "0"
    assert SignInLink.objects.get().token_sha256 == "0" * 64
    assert StreamTicket.objects.get().ticket_sha256 == "0" * 64


def test_zero_keeps_everything_for_ever(session: Session, settings: Any) -> None:
    for name in KEPT:
        setattr(settings, f"RONDO_KEEP_{name}", 0)
    job = ticking(session)
    for number in range(3):
        past_run(job, ago(10_000 - number), turn=past_turn(session, 10_000))
    read = {"acknowledged_at": ago(9_000), "created_at": ago(9_000)}
    MailboxEvent.objects.create(target=session, event_type="x", summary="x", **read)
    assert prune_all() == {}


def test_either_limit_of_runs_may_be_for_ever(session: Session, settings: Any) -> None:
    settings.RONDO_KEEP_RUNS_PER_JOB = 0
    job = ticking(session)
    runs = [past_run(job, ago(day)) for day in (95, 92, 3, 2)]
    prune_all()
    assert ids(job.runs.all()) == {run.pk for run in runs[2:]}
    settings.RONDO_KEEP_RUNS_PER_JOB, settings.RONDO_KEEP_RUNS_DAYS = 1, 0
    prune_all()
    assert ids(job.runs.all()) == {runs[3].pk}


def test_a_walk_goes_on_where_its_last_batch_was_committed(session: Session) -> None:
    turns = [past_turn(session, 100) for _ in range(5)]
    first = prune_batch(walk("turns by age"), 2)
    assert (first.removed, first.more) == (2, True)
    assert Pruning.objects.get(pk="turns by age").position["after"] == turns[1].pk
    assert Pruning.objects.get(pk="turns by age").completed_at is None
    second, third = prune_batch(walk("turns by age"), 2), prune_batch(walk("turns by age"), 2)
    assert (second.removed, second.more, third.removed, third.more) == (2, True, 1, False)
    row = Pruning.objects.get(pk="turns by age")
    assert row.removed == 5
    assert row.completed_at is not None


LOCKED: dict[str, Callable[[Session], models.QuerySet[Any]]] = {
    "events": lambda session: Event.objects.filter(session=session),
    "journals": lambda session: TurnStep.objects.filter(turn__session=session),
    "turns by age": lambda session: Turn.objects.filter(session=session),
    "runs": lambda session: RunRecord.objects.filter(session=session),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", LOCKED)
def test_locked_rows_are_skipped_until_the_next_walk(session: Session, name: str) -> None:
    turn = past_turn(session, 100)
    job = ticking(session)
    past_run(job, ago(100), turn=turn)
    past_run(job, ago(1))
    with transaction.atomic():
        held = ids(LOCKED[name](session).select_for_update())
        thread, came = in_thread(lambda: prune_all(500, name))
        thread.join(10)
        assert came == [{}]
        assert ids(LOCKED[name](session)) == held
    assert prune_all(500, name)


def test_counting_removes_nothing_and_finds_what_then_goes(session: Session, settings: Any) -> None:
    settings.RONDO_KEEP_TURNS_PER_SESSION = settings.RONDO_KEEP_RUNS_PER_JOB = 2
    job = ticking(session)
    for number in range(5):
        past_run(job, ago(20 - number), turn=past_turn(session, 20 - number))
    before = [ids(model.objects.all()) for model in (Turn, TurnStep, Event, RunRecord)]
    found = {}
    for each in walks():
        step = count_batch(each, None, 3)
        found[each.name] = step.removed
        while step.more:
            step = count_batch(each, step.position, 3)
            found[each.name] += step.removed
    assert [ids(model.objects.all()) for model in (Turn, TurnStep, Event, RunRecord)] == before
    assert not Pruning.objects.exists()
    assert {name: number for name, number in found.items() if number} == prune_all(3)


FUTURE = 4_000_000_000_000


def _event(session: Session) -> Event:
    return Event.objects.create(agent=session.agent, session=session, type="status")


@pytest.mark.rule("9.1")
@pytest.mark.django_db(transaction=True)
def test_migrate_removes_events_of_another_server_and_keeps_ours(person: Person) -> None:
    session = person.session()
    Event.objects.all().delete()
    ours, foreign = _event(session), _event(session)
    change = "UPDATE sessions_app_event SET xid = %s::text::xid8 WHERE id = %s"
    connection.cursor().execute(change, [FUTURE, foreign.pk])
    Pruning.objects.update_or_create(pk=EVENTS, defaults={"horizon_xid": FUTURE, "horizon_id": foreign.pk})
    window = Position(session_id=session.pk, cursor=now())
    [page] = read_events([window])
    assert page.hidden  # the window would wait for it
    call_command("migrate", verbosity=0)
    assert list(Event.objects.values_list("pk", flat=True)) == [ours.pk]
    assert horizon().xid == 0
    [page] = read_events([window])
    assert (page.events, page.hidden) == ([], False)


@pytest.mark.rule("9.1")
@pytest.mark.django_db(transaction=True)
def test_migrate_keeps_the_horizon_of_this_server(person: Person) -> None:
    before = now()
    Pruning.objects.update_or_create(pk=EVENTS, defaults={"horizon_xid": before.xid - 1, "horizon_id": 7})
    call_command("migrate", verbosity=0)
    assert horizon().xid == before.xid - 1
