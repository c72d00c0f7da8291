"""What is dangerous needs a person's plain yes to just that call; where nobody is, the home is told (rule 3.5)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_core.models import ModelReply
from agent_core.testing import ModelServer
from agent_core.types import ToolCall
from automations.fire import fire_due
from automations.models import CronJob, JobClock
from sessions_app.models import MailboxEvent
from tests import plugins
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.planner.plans import says
from tests.talk import say

pytestmark = pytest.mark.django_db(transaction=True)


def erase(name: str) -> ModelReply:
    return ModelReply(text="", calls=(ToolCall(id="1", name="erase", arguments={"name": name}),))


def test_a_plain_yes_lets_just_that_call_happen(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    fleet.worker()
    session = person_with_server.session()
    model_server.answer_with(erase("disk"), says("May I erase the disk?"))
    say(session, "Tidy up.")
    assert plugins.calls(tmp_path, "disk") == 0
    told = model_server.requests[-1].body["messages"][-1]["content"]
    assert "consent" in told
    model_server.answer_with(erase("tape"), erase("disk"), says("Erased."))
    turn = say(session, "Yes!")
    assert turn.state == "succeeded"
    assert (plugins.calls(tmp_path, "disk"), plugins.calls(tmp_path, "tape")) == (1, 0)


@pytest.mark.parametrize("reply", ["yes, but only the old files", "no", "what would be gone?"])
def test_anything_but_a_plain_yes_is_none(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path, reply: str
) -> None:
    fleet.worker()
    session = person_with_server.session()
    model_server.answer_with(erase("disk"), says("May I?"), erase("disk"), says("I must not."))
    say(session, "Tidy up.")
    say(session, reply)
    assert plugins.calls(tmp_path, "disk") == 0


def test_a_yes_counts_for_the_turn_before_and_not_for_ever(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    fleet.worker()
    session = person_with_server.session()
    model_server.answer_with(erase("disk"), says("May I?"), says("Let us talk of cats."))
    say(session, "Tidy up.")
    say(session, "Cats?")
    model_server.answer_with(erase("disk"), says("I must not."))
    say(session, "yes")
    assert plugins.calls(tmp_path, "disk") == 0


def test_where_nobody_is_the_home_is_told_what_is_asked_for(
    fleet: Fleet, model_server: ModelServer, person_with_server: Person, tmp_path: Path
) -> None:
    fleet.worker()
    home, now = person_with_server.session(), datetime.now(UTC).replace(microsecond=0)
    job = CronJob.objects.create(
        agent=person_with_server.agent,
        name="tidy",
        description="tidy up",
        execution_mode="isolated",
        home=home,
        schedule_kind="every",
        every_seconds=3600,
        anchor=now,
    )
    JobClock.objects.create(job=job, next_run_at=now, planned_from=now)
    model_server.answer_with(erase("disk"), says("Nothing was erased."))
    fire_due()
    until(lambda: MailboxEvent.objects.filter(event_type="job_completed").first())
    assert plugins.calls(tmp_path, "disk") == 0
    asked = MailboxEvent.objects.get(event_type="consent_needed")
    assert asked.target_id == home.pk
    assert "erase" in asked.detail
    assert "disk" in asked.detail
