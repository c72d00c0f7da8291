"""Maintenance by real processes: killed, doubled, stopped; turns and deletions go on beside it (rule 10.3)."""

import threading
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import Min

from automations.models import RunRecord
from sessions_app.models import Event, Message, Pruning, Session, Turn, TurnState, TurnStep
from sessions_app.retention import walk
from sessions_app.retention.maintenance_round import run_maintenance
from sessions_app.retention.walk import BATCH, walks
from sessions_app.sessions.delete import delete_session
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.past import ago, past_run, past_turn, prune_all, ticking
from tests.queries import queries
from tests.races import in_thread

pytestmark = [pytest.mark.processes, pytest.mark.rule("10.3")]


def backlog(session: Session, count: int) -> None:
    """So many turns of a hundred days ago, each with a message, an event and a step."""
    with connection.cursor() as cursor:
        for statement in queries("backlog").values():
            cursor.execute(statement, {"session": session.pk, "count": count})


def old_rows() -> int:
    return sum(rows.count() for rows in (
        Turn.objects.filter(finished_at__lt=ago(91)), Event.objects.filter(created_at__lt=ago(2)),
        TurnStep.objects.filter(turn__finished_at__lt=ago(91)),
    ))  # fmt: skip


def removed() -> int:
    return sum(Pruning.objects.values_list("removed", flat=True))


@pytest.mark.full
def test_beat_has_a_worker_prune_all_that_is_old_again_and_again(fleet: Fleet, person: Person) -> None:
    session = person.session()
    backlog(session, 600)
    kept = past_turn(session, 0.5)
    fleet.environ["RONDO_MAINTENANCE_SECONDS"] = "1"
    worker = fleet.worker()
    fleet.beat()
    worker.wait_for("maintained")
    assert (old_rows(), removed()) == (0, 1800)
    assert Turn.objects.get().pk == kept.pk
    assert Message.objects.filter(session=session, turn=None).count() == 600
    first = until(lambda: Pruning.objects.aggregate(at=Min("completed_at"))["at"])
    until(lambda: Pruning.objects.aggregate(at=Min("completed_at"))["at"] > first)


def test_two_at_once_are_one_and_the_other_leaves(person: Person) -> None:
    backlog(person.session(), 600)
    inside, go_on = threading.Event(), threading.Event()

    def held(_done: Any) -> None:
        inside.set()
        go_on.wait(20)

    first, came = in_thread(lambda: run_maintenance(lambda: False, report=held))
    assert inside.wait(20)
    assert not run_maintenance(lambda: False).mine
    with pytest.raises(CommandError, match="another process"):
        call_command("maintain")
    go_on.set()
    first.join(30)
    assert came[0].mine
    assert run_maintenance(lambda: False).mine, "the lock is free again"


@pytest.mark.full
def test_a_large_backlog_continues_in_rounds_that_include_every_walk(person: Person) -> None:
    session = person.session()
    backlog(session, 1200)
    done = run_maintenance(lambda: False, seconds=0, spare=600)
    assert "there is more" in str(done)
    rounds = 1
    while done.left:
        done = run_maintenance(lambda: False, seconds=0, spare=600)  # a batch
        rounds += 1
        assert done.mine
        if rounds == len(walks()):
            assert Pruning.objects.count() == len(walks()), "none is left out"
    assert rounds > 3 * 1200 / BATCH
    assert old_rows() == 0
    assert run_maintenance(lambda: False, spare=600).batches == 0, "what has just been done is not done again"


@pytest.mark.full
def test_deletions_and_pruning_of_the_same_rows_never_deadlock(person: Person) -> None:
    for _ in range(6):
        session = person.session()
        job = ticking(session)
        host = past_turn(session, 100)
        past_turn(session, 100, TurnState.MERGED, host=host, claim=None)
        for number in range(20):
            past_run(job, ago(100 + number), turn=past_turn(session, 100))
        threads = [
            in_thread(lambda: prune_all(7)),
            in_thread(lambda session=session: delete_session(session.pk, with_dependents=True)),  # type: ignore[misc]
            in_thread(lambda: prune_all(3)),
        ]
        for thread, _ in threads:
            thread.join(30)
        results = [came[0] for _, came in threads]
        assert not any(isinstance(result, Exception) for result in results), results
        assert results[1].deleted
        assert not Turn.objects.filter(session=session.pk).exists()
        assert not RunRecord.objects.filter(job=job.pk).exists()


def test_pruning_waits_at_most_a_second_for_a_deletion(person: Person) -> None:
    session = person.session()
    job = ticking(session)
    turn = past_turn(session, 100)
    run = past_run(job, ago(1), turn=turn)
    with transaction.atomic():
        RunRecord.objects.select_for_update().get(pk=run.pk)
        thread, came = in_thread(lambda: run_maintenance(lambda: False))
        thread.join(30)
        assert (came[0].waited, came[0].failed) == (["turns by age"], [])
    assert Turn.objects.filter(pk=turn.pk).exists(), "the batch is undone as a whole"
    run_maintenance(lambda: False)
    assert not Turn.objects.filter(pk=turn.pk).exists()


def test_a_bug_in_one_walk_ends_no_other(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"

        def step(self, *_args: Any, **_more: Any) -> walk.WalkStep:
            raise ZeroDivisionError

    past_turn(person.session(), 100)
    monkeypatch.setattr(walk, "_walks", {"broken": Broken(), **walk._walks})
    done = run_maintenance(lambda: False)
    assert done.failed == ["broken"]
    assert old_rows() == 0


def test_the_command_reports_counts_or_removals_in_one_line(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    backlog(person.session(), 700)
    for options, said, left in ((["--dry-run"], "would remove", 2100), ([], "removed", 0)):
        call_command("maintain", *options)
        out = capsys.readouterr().out
        assert out.startswith(f"{said} 700 events, 700 journals, 700 turns by age in ")
        assert out.count("\n") == 1
        assert old_rows() == left
