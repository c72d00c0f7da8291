"""What a run of a recurring job costs does not grow with the runs before it (docs/failures.md, 8)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.db.models.functions import Now

from agent_core.llm.protocol import ModelReply
from automations.models import JobClock
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.turn_kinds.test_heartbeat import awake, inside
from tests.inside import Inside, call, makes
from tests.sessions_app.turns.test_compression import KEPT

__all__ = ["awake", "inside"]  # fixtures
LONG = "The weather is fine, and nothing new was said about it. " * 30


@pytest.mark.rule("3.3")
def test_an_automation_is_shown_what_people_said_and_its_last_runs(inside: Inside) -> None:
    session = inside.person.session()
    job = due_job(session)
    inside.say(session, "My secret colour is mauve.", ModelReply(text="Noted."))
    earlier = F("last_slot") - timedelta(hours=2)
    for number in range(7):
        inside.model.calls.clear()
        asks = makes(call("current_time", str(number)))
        inside.model.replies[:] = [asks, ModelReply(text=f"{number}. {LONG}"), KEPT]
        JobClock.objects.filter(job=job).update(next_run_at=Now(), last_slot=earlier)
        inside.beat()
    said = str(inside.model.calls[-1].entries)
    assert "My secret colour is mauve." in said
    assert "Noted." in said
    assert [number for number in range(7) if f"{number}. The weather" in said] == [3, 4, 5]
    inside.model.calls.clear()
    inside.model.replies.clear()
    inside.say(session, "What did you find?")
    said = str(inside.model.calls[0].entries)
    assert all(f"{number}. The weather" in said for number in range(7))
