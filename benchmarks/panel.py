"""The panel of appointments of a conversation with many automations: reading them, and the response that shows them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks import data
from benchmarks.cost import Cost, measured
from benchmarks.report import Figure

JOBS, SLOTS = 50, 20
ROUNDS = 25
TARGET = 50.0  # ms of processor time
_ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC")
_DAY = timedelta(days=1)


def run(agent: Any) -> list[Figure]:
    """Read 50 automations with 20 slots each, and show them."""
    [session] = data.sessions(agent, 1)
    _fill(session)
    data.settle()
    from automations.appointments.panel import appointments_of

    user = agent.owner
    assert len(appointments_of(user, session.pk)) == JOBS
    return [
        *_figures("appointments of a conversation", lambda: appointments_of(user, session.pk), TARGET),
        *_figures("response with these appointments", _response(user, session)),
    ]


def _response(user: Any, session: Any) -> Callable[[], object]:
    """Asks for the panel as the page does, through all of the server's layers but HTTP."""
    from django.test import Client

    client = Client(headers={"HX-Request": "true"}, SERVER_NAME="localhost")
    client.force_login(user)
    address = f"/sessions/{session.pk}/appointments/"
    answer = client.get(address)
    assert answer.status_code == 200, answer.content[:300]
    assert answer.content.count(b'class="strip"') == JOBS
    return lambda: client.get(address)


def _fill(session: Any) -> None:
    """Crons in four zones, each with a run on each of the last days."""
    from automations.models import CronJob, JobClock, RunRecord, RunState

    now = datetime.now(UTC).replace(microsecond=0)
    jobs = [
        CronJob(
            agent_id=session.agent_id,
            session=session,
            name=f"Automation {n}",
            message="check the repo",
            schedule_kind="cron",
            expr=f"{n} {n % 24} * * {'1-5' if n % 2 else '*'}",
            timezone=_ZONES[n % len(_ZONES)],
        )
        for n in range(JOBS)
    ]
    CronJob.objects.bulk_create(jobs)
    JobClock.objects.bulk_create(JobClock(job=job, next_run_at=now + _DAY) for job in jobs)
    RunRecord.objects.bulk_create(
        RunRecord(
            run_id=f"{job.pk}:{n}",
            job=job,
            session=session,
            scheduled_for=now - n * _DAY,
            state=RunState.SUCCEEDED,
            started_at=now - n * _DAY,
            finished_at=now - n * _DAY,
            lag_ms=20,
            duration_ms=1_500,
        )
        for job in jobs
        for n in range(1, SLOTS + 1)
    )


def _figures(name: str, work: Callable[[], object], target: float | None = None) -> Iterator[Figure]:
    costs: list[Cost] = []
    for _ in range(ROUNDS + 1):
        with measured() as cost:
            work()
        costs.append(cost)
    del costs[0]  # it warms up
    cpu, wall = [each.cpu for each in costs], [each.wall for each in costs]
    note = f"median of {ROUNDS}, {JOBS} automations with {SLOTS} slots; the best {{:.0f}} ms"
    yield Figure(
        name=f"{name}, processor",
        value=statistics.median(cpu),
        unit="ms",
        at_most=target,
        note=note.format(min(cpu)),
    )
    yield Figure(name=name, value=statistics.median(wall), unit="ms", note=note.format(min(wall)))
