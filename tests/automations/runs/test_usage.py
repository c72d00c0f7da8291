"""What a run used is what all its attempts and turns used, and no turn is counted twice (rule 11.1)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now

from automations.models import RunRecord, RunState
from automations.selectors import usage_of_runs
from sessions_app.agents.edit import update_agent
from sessions_app.models import Turn
from sessions_app.reads.usage import SHARED, usage_of
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.turn_kinds.test_heartbeat import DAY, routine
from tests.inside import Inside, call
from tests.sessions_app.spending.test_calls import USED, priced, says

__all__ = ["priced"]
pytestmark = [pytest.mark.rule("11.1"), pytest.mark.usefixtures("priced")]


def test_a_run_used_what_all_its_attempts_used(inside: Inside) -> None:
    job = due_job(inside.person.session(), max_retry=1)
    asks = replace(says(""), calls=(call("current_time"),))
    inside.model.answer_with(asks, ValueError("a bug"), asks, says("Done."))
    inside.beat()
    RunRecord.objects.update(not_before=Now())
    inside.beat()
    [run] = RunRecord.objects.all()
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
    assert run.usage == (replace(USED, micro_usd=130) + USED + replace(USED, micro_usd=260)).to_json()
    assert (usage_of_runs(job.pk).runs, usage_of_runs(job.pk).usd) == (1, "0.000390")


def test_routines_that_share_a_turn_share_what_it_used(inside: Inside) -> None:
    update_agent(inside.person.agent.pk, {"heartbeat": {"enabled": True, "active_hours": DAY}})
    jobs = [routine(inside.person, title) for title in "abc"]
    inside.model.answer_with(says("Done."))
    inside.beat()
    [turn] = Turn.objects.all()
    assert turn.usage["usd"] == "0.000130"
    parts = [usage_of_runs(job.pk) for job in jobs]
    assert {(part.runs, part.input_tokens, part.output_tokens, part.usd) for part in parts} == {
        (1, 23, 10, "0.000043")
    }
    until = datetime.now(UTC) + timedelta(minutes=1)
    [row] = usage_of(inside.person.user, "automation", until - timedelta(days=1), until).results
    assert (row.key, row.calls, row.input_tokens, row.usd) == (SHARED, 1, 70, "0.000130")
