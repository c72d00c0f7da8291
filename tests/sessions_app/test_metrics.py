"""Counters: with the commit or not at all, from all processes, in nobody's way (rule 10.1)."""

import threading
import uuid
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from agent_core.exceptions import ModelUnavailable
from agent_core.llm.protocol import ModelReply
from agent_core.prices import use_own_prices
from agent_core.spending import Price
from agent_core.types import Usage
from config.operations.metrics import COUNTERS
from sessions_app import metrics
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.metrics import Counted, count
from sessions_app.models import Agent, Counter, Session
from sessions_app.worker.process import WorkerProcess
from tests.automations.jobs.made import at_once
from tests.conftest import Person
from tests.fleet import until
from tests.inside import MODEL, Inside

pytestmark = pytest.mark.rule("10.1")


@pytest.fixture(autouse=True)
def _nothing_gathered(transactional_db: None) -> None:
    """What earlier tests counted in this process is theirs."""
    metrics.flush_counters()
    Counter.objects.all().delete()


def value(name: str, **labels: str) -> int:
    metrics.flush_counters()
    found = Counter.objects.filter(name=name, labels=labels).first()
    return found.value if found else 0


def scraped(line: str) -> float:
    """One figure of /metrics."""
    text = Client().get("/metrics").content.decode()
    return float(next(each.rpartition(" ")[2] for each in text.splitlines() if each.startswith(f"{line} ")))


def test_every_counter_is_shown_from_the_start() -> None:
    histograms = {each for each in Counted if each.endswith(("_bucket", "_sum"))}
    assert set(COUNTERS) | histograms == set(Counted), "each has its words"
    assert scraped("rondo_heartbeat_skipped_due_to_lock_total") == 0
    assert scraped('rondo_lock_wait_ms_bucket{le="+Inf"}') == 0
    count(Counted.HEARTBEAT_SKIPPED)
    count(Counted.HEARTBEAT_SKIPPED, 2)
    metrics.flush_counters()
    assert scraped("rondo_heartbeat_skipped_due_to_lock_total") == 3


def test_what_was_rolled_back_is_not_counted() -> None:
    with transaction.atomic():
        count(Counted.JOB_SESSION_CREATED)
        transaction.set_rollback(True)
    assert value(Counted.JOB_SESSION_CREATED) == 0
    with transaction.atomic():
        count(Counted.JOB_SESSION_CREATED)
        assert not metrics._gathered._sums
    assert value(Counted.JOB_SESSION_CREATED) == 1


def test_a_name_or_a_label_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        count("nonsense")
    with pytest.raises(ValueError, match="labels"):
        count(Counted.TURN_LIMIT)
    with pytest.raises(ValueError, match="labels"):
        count(Counted.MAILBOX_DRAIN, of="me")


def test_processes_that_add_at_once_lose_nothing() -> None:
    def add(number: int) -> None:
        for _ in range(10):
            own = metrics._Gathered()
            for name in (Counted.MAILBOX_DRAIN, Counted.MAILBOX_DEPOSIT)[:: 1 if number % 2 else -1]:
                own._sums[name, ()] += 1
            own.flush()

    at_once(*(partial(add, number) for number in range(8)))
    assert value(Counted.MAILBOX_DRAIN) == value(Counted.MAILBOX_DEPOSIT) == 80


def test_who_flushes_waits_for_what_the_timer_writes() -> None:
    """Hold the timer's write by a lock on its row: a flush beside it returns after it."""
    count(Counted.MAILBOX_DRAIN)
    metrics.flush_counters()
    count(Counted.MAILBOX_DRAIN)
    timer, beside = (threading.Thread(target=metrics.flush_counters) for _ in range(2))
    with transaction.atomic():
        Counter.objects.select_for_update().get(name=Counted.MAILBOX_DRAIN)
        timer.start()
        until(lambda: not metrics._gathered._sums, 10)
        beside.start()
        beside.join(0.2)
        assert beside.is_alive()
    timer.join(10)
    beside.join(10)
    assert value(Counted.MAILBOX_DRAIN) == 2


def test_what_cannot_be_added_is_kept_for_the_next_time(settings: Any) -> None:
    count(Counted.HEARTBEAT_DELIVER)
    settings.DATABASE_LOCK_URL, reachable = "postgresql://nobody@127.0.0.1:1/none", settings.DATABASE_LOCK_URL
    metrics.flush_counters()
    settings.DATABASE_LOCK_URL = reachable
    assert value(Counted.HEARTBEAT_DELIVER) == 1


def test_it_goes_out_by_itself() -> None:
    count(Counted.HEARTBEAT_SUPPRESS)
    until(lambda: Counter.objects.filter(name=Counted.HEARTBEAT_SUPPRESS).exists(), 10)


def test_deposits_count_once_and_not_into_what_is_gone(person: Person) -> None:
    session, mail = person.session(), NewUpdate(event_type="job_completed", summary="done")
    deposit(session.pk, mail)
    deposit(session.pk, mail)
    deposit(uuid.uuid4(), NewUpdate(event_type="job_completed", summary="nobody hears"))
    assert value(Counted.MAILBOX_DEPOSIT) == 1
    assert scraped("rondo_mailbox_waiting") == 1


def test_turns_count_waits_drains_and_limits(inside: Inside, session: Session) -> None:
    deposit(session.pk, NewUpdate(event_type="job_completed", summary="done"))
    reply = ModelReply(text="Hello.", usage=Usage(input_tokens=7))
    priced = {f"rondo:{MODEL}": Price(input=Decimal("0.0001"), output=Decimal(0))}
    use_own_prices(priced)
    inside.say(session, "hello", reply)
    use_own_prices({})
    Agent.objects.update(policy={"max_attempts": 1})
    assert inside.say(session, "hello", ModelUnavailable("503")).error_code == "model_unavailable"
    assert value(Counted.MAILBOX_DRAIN) == 1
    assert value(Counted.TURN_LIMIT, code="model_unavailable") == 1
    for line, expected in {
        'rondo_turn_limit_count_total{code="model_unavailable"}': 1,
        "rondo_lock_wait_ms_count": 2,
        "rondo_turn_wait_seconds_count": 2,
        'rondo_turn_limits_reached_total{limit="model_unavailable"}': 1,
        'rondo_turns_total{lane="turns",outcome="succeeded",reason="none"}': 1,
        'rondo_turns_total{lane="turns",outcome="failed",reason="model_unavailable"}': 1,
        'rondo_turn_duration_seconds_count{lane="turns"}': 2,
        'rondo_tokens_total{type="input"}': 7,
        "rondo_spent_micro_usd_total": 700,
    }.items():
        assert scraped(line) == expected, line
    assert scraped("rondo_lock_wait_ms_sum") >= 0


def test_a_worker_that_stops_leaves_no_count_behind(worker: WorkerProcess) -> None:
    count(Counted.MAILBOX_DRAIN)
    worker.end()
    assert Counter.objects.get(name=Counted.MAILBOX_DRAIN).value == 1
