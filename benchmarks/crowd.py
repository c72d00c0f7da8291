"""Up to a million automations of many users, inserted in bulk as copies of rows that the models created."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from django.db.models import Model

from benchmarks import data
from benchmarks.plugin import MODEL

AGENTS = 100
LEAST_SESSIONS = 1_000
JOBS_PER_SESSION = 10
ROWS_AT_ONCE = 20_000
SAY_EVERY = 100_000
FIRST_DUE, LAST_DUE = timedelta(days=1), timedelta(days=30)


class Crowd:
    """Bound automations with a clock and one ended run each, in at least 1,000 sessions of 100 agents.

    Their next slots are spread over the coming month, so none is due.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        from automations.models import JobClock

        self.job_ids: list[str] = []
        self._say = say
        self._random = random.Random(1)  # the same jobs in every run
        self._agents = [data.person(MODEL) for _ in range(AGENTS)]
        # a slot of a system job would be fired beside those that are due
        JobClock.objects.update(next_run_at=None)
        (self._first,) = data.sessions(self._agents[0], 1)
        self._sessions: list[tuple[uuid.UUID, int]] = [(self._first.pk, self._first.agent_id)]

    def grow_to(self, count: int) -> None:
        """Add jobs until there are `count`, then VACUUM ANALYZE."""
        self._grow_sessions(max(LEAST_SESSIONS, count // JOBS_PER_SESSION))
        if not self.job_ids:
            self.job_ids = data.jobs([self._first], 1)
        while (had := len(self.job_ids)) < count:
            self._add(min(ROWS_AT_ONCE, count - had))
            reached = len(self.job_ids) // SAY_EVERY * SAY_EVERY
            if had < reached < count:
                self._say(f"{reached:,} of {count:,} jobs created")
        data.settle()

    def pick(self, count: int) -> list[str]:
        """Ids of `count` random jobs."""
        return self._random.sample(self.job_ids, count)

    def _grow_sessions(self, count: int) -> None:
        from sessions_app.models import Session

        template = Session.objects.get(pk=self._first.pk)
        while (had := len(self._sessions)) < count:
            numbers = range(had, min(had + ROWS_AT_ONCE, count))
            agents = [self._agents[number % AGENTS] for number in numbers]
            ids, agent_ids = [uuid.uuid4() for _ in numbers], [agent.pk for agent in agents]
            keys, owner_ids = [f"web:{each.hex}" for each in ids], [agent.owner_id for agent in agents]
            _copy(template, id=ids, agent_id=agent_ids, owner_id=owner_ids, key=keys)
            self._sessions += zip(ids, agent_ids, strict=True)

    def _add(self, count: int) -> None:
        from automations.models import CronJob, JobClock

        template = CronJob.objects.get(pk=self.job_ids[0])
        had, now = len(self.job_ids), datetime.now(UTC)
        ids = [secrets.token_hex(8) for _ in range(count)]
        places = [self._sessions[(had + number) % len(self._sessions)] for number in range(count)]
        session_ids, agent_ids = [place[0] for place in places], [place[1] for place in places]
        _copy(template, id=ids, session_id=session_ids, agent_id=agent_ids)
        due = [now + FIRST_DUE + self._random.random() * (LAST_DUE - FIRST_DUE) for _ in ids]
        _copy(JobClock.objects.get(pk=template.pk), job_id=ids, next_run_at=due)
        run_ids = [f"past:{job_id}" for job_id in ids]
        _copy(_past_run(template), run_id=run_ids, job_id=ids, session_id=session_ids)
        self.job_ids += ids


def _past_run(job: Any) -> Any:
    from automations.models import RunRecord, RunState

    begin = datetime(2020, 1, 1, tzinfo=UTC)
    return RunRecord.objects.get_or_create(
        run_id=f"past:{job.pk}",
        defaults={
            "job": job,
            "session_id": job.session_id,
            "scheduled_for": begin,
            "state": RunState.SUCCEEDED,
            "snapshot": {"name": job.name, "message": job.message, "revision": job.revision},
            "response_summary": "Done.",
            "started_at": begin,
            "finished_at": begin,
        },
    )[0]


def _copy(template: Model, **own: list[Any]) -> None:
    """Insert copies of a stored row. `own`: values of the columns that differ, by column name."""
    from sessions_app.postgres.statements import Statement, table

    rows = table(type(template))
    columns = [sa.column(name, rows.c[name].type) for name in own]
    arrays = [sa.bindparam(name, type_=sa.ARRAY(rows.c[name].type)) for name in own]
    given = sa.func.unnest(*arrays).table_valued(*columns, name="given").render_derived()
    values = [given.c[column.name] if column.name in own else column for column in rows.c]
    same = rows.c[template._meta.pk.attname] == sa.bindparam("template")
    chosen = sa.select(*values).select_from(sa.join(rows, given, sa.true())).where(same)
    Statement(sa.insert(rows).from_select(list(rows.c), chosen, include_defaults=False)).run(
        template=template.pk, **own
    )
