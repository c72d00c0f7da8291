"""Routines among the jobs of the admin: seen with their category and home, paused and resumed, deleted, not edited."""

from __future__ import annotations

from django.test import Client

from automations.models import CronJob
from automations.routines.edit import NewRoutine, add_routine
from sessions_app.models import Agent
from tests.admin.conftest import url
from tests.conftest import Person


def test_routines_are_listed_paused_and_resumed_within_the_agents_limit(
    staff: Client, person: Person
) -> None:
    home = person.session()
    job = add_routine(
        NewRoutine(
            agent_id=person.agent.pk, title="Water", schedule="1h", session_id=home.pk, description="Drink."
        )
    )
    listed = staff.get(url(job, "changelist")).content.decode()
    assert "Water" in listed
    assert "routine" in listed
    page = staff.get(url(job, "change")).content.decode()
    assert str(home) in page
    assert "Drink." in page
    assert 'name="message"' not in page  # nothing to edit here
    pause = {"action": "pause", "_selected_action": [job.pk]}
    staff.post(url(job, "changelist"), pause)
    assert not CronJob.objects.get(pk=job.pk).enabled
    Agent.objects.filter(pk=person.agent.pk).update(routine_limit=0)
    resume = {"action": "resume", "_selected_action": [job.pk]}
    said = staff.post(url(job, "changelist"), resume, follow=True).content.decode()
    assert "the agent may have at most 0 enabled routines" in said
    assert not CronJob.objects.get(pk=job.pk).enabled
    Agent.objects.filter(pk=person.agent.pk).update(routine_limit=1)
    staff.post(url(job, "changelist"), resume)
    assert CronJob.objects.get(pk=job.pk).enabled
