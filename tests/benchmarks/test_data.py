"""The rows of the benchmarks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from automations.models import JobClock
from benchmarks import data

pytestmark = pytest.mark.django_db


def test_no_natural_slot_comes_while_jobs_are_fired() -> None:
    agent = data.person("offline")
    chosen, other = data.jobs(data.sessions(agent, 1), 2)
    JobClock.objects.filter(pk=other).update(next_run_at=timezone.now() + timedelta(seconds=1))
    data.make_due([chosen])
    assert JobClock.objects.filter(pk=chosen, next_run_at__lt=timezone.now()).exists()
    soon = JobClock.objects.filter(next_run_at__lt=timezone.now() + timedelta(minutes=59))
    assert [clock.pk for clock in soon] == [chosen]
