"""What a run of a recurring job costs does not grow with the runs before it (docs/failures.md, 8)."""

from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now

from agent_core.llm import tokens
from agent_core.llm.protocol import ModelReply
from automations.models import CronJob, JobClock
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.turn_kinds.test_heartbeat import awake, heartbeat_of, inside
from tests.automations.turn_kinds.test_isolated import job_of
from tests.inside import Inside, call, makes
from tests.sessions_app.turns.test_compression import KEPT

__all__ = ["awake", "inside"]  # fixtures
SLOTS, FIRST, MOST = 60, 10, 1.2
LONG = "The weather is fine, and nothing new was said about it. " * 30


def used_in_slot(inside: Inside, job: CronJob, number: int, *, with_tool: bool) -> int:
    """Run one slot with a long answer. Returns the tokens of all its requests, also those for task state."""
    inside.model.calls.clear()
    asks = [makes(call("current_time", str(number)))] if with_tool else []
    inside.model.replies[:] = [*asks, ModelReply(text=f"{number}. {LONG}"), KEPT]
    earlier = F("last_slot") - timedelta(hours=2)
    JobClock.objects.filter(job=job).update(next_run_at=Now(), last_slot=earlier)
    inside.beat()
    asked = inside.model.calls
    entries = sum(tokens.of_entry(entry) for each in asked for entry in each.entries)
    return entries + sum(tokens.of_text(each.system_prompt) for each in asked)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["bound", "bound with a tool", "heartbeat", "isolated"])
def test_a_run_costs_the_same_however_many_there_were_before_it(inside: Inside, kind: str) -> None:
    """Complaint 8."""
    job = {
        "bound": lambda: due_job(inside.person.session()),
        "heartbeat": lambda: heartbeat_of(inside.person),
        "isolated": lambda: job_of(inside.person, "look"),
    }[kind.split(maxsplit=1)[0]]()
    used = [used_in_slot(inside, job, number, with_tool=kind != "bound") for number in range(SLOTS)]
    assert min(used) > 0
    assert sum(used[FIRST:]) / len(used[FIRST:]) <= MOST * max(used[:FIRST]), used


@pytest.mark.rule("3.3")
def test_an_automation_is_shown_what_people_said_and_its_last_runs(inside: Inside) -> None:
    session = inside.person.session()
    job = due_job(session)
    inside.say(session, "My secret colour is mauve.", ModelReply(text="Noted."))
    for number in range(7):
        used_in_slot(inside, job, number, with_tool=True)
    said = str(inside.model.calls[-1].entries)
    assert "My secret colour is mauve." in said
    assert "Noted." in said
    assert [number for number in range(7) if f"{number}. The weather" in said] == [3, 4, 5]
    inside.model.calls.clear()
    inside.model.replies.clear()
    inside.say(session, "What did you find?")
    said = str(inside.model.calls[0].entries)
    assert all(f"{number}. The weather" in said for number in range(7))
