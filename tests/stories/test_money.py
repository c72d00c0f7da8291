"""A cap on money over a fleet whose workers die (docs/failures.md, 7)."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from automations.models import CronJob, RunRecord, RunState
from sessions_app.agents.edit import update_agent
from sessions_app.models import MailboxEvent, Reservation, Spending, Turn
from sessions_app.queue.receive import MessageInput, receive
from tests.automations.jobs.made import EVERY_SECOND, new
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer

pytestmark = [pytest.mark.full, pytest.mark.rule("11.1")]

CAP = 1_000_000  # micro-dollars


def test_automations_that_always_succeed_stop_at_the_cap(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    """7. Four automations run each second, and a worker is killed in the middle of a call."""
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"openai-chat:*": {"input": "10", "output": "30"}}))
    fleet.environ["RONDO_PRICES"] = str(prices)
    update_agent(person_with_server.agent.pk, {"limits": {"day": {"usd": "1.00"}}})
    for _ in range(4):
        new(person_with_server.session(), message="hello", schedule=EVERY_SECOND)
    fleet.beat()
    worker = fleet.worker()
    until(lambda: RunRecord.objects.filter(state=RunState.SUCCEEDED).exists())
    receive(person_with_server.session().pk, MessageInput(content="[[pause:p]] hello"))
    until(lambda: model_server.held.get("p"), what="the model thinks")
    worker.kill()
    left = sum(Reservation.objects.values_list("micro_usd", flat=True))
    assert left > 0
    model_server.release("p")
    fleet.worker()
    stopped = RunRecord.objects.filter(reason="budget").values("job").distinct()
    until(lambda: stopped.count() == CronJob.objects.count(), 60, "every automation is stopped")
    until(lambda: not Reservation.objects.exists(), 60, "nothing is left reserved")
    spending = Spending.objects.get()
    used = sum(Decimal(turn.usage.get("usd", "0")) for turn in Turn.objects.all())
    assert used * 1_000_000 + left <= spending.spent_micro_usd <= CAP
    assert used > 0
    assert MailboxEvent.objects.filter(event_type="budget_reached").count() == 1
