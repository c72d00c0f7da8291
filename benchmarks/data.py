"""Rows to measure with, made in bulk."""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

ROWS_AT_ONCE = 5_000


def person(model: str) -> Any:
    """An agent of a new user."""
    from django.contrib.auth import get_user_model

    from sessions_app.open import create_agent

    user = get_user_model().objects.create_user(f"bench-{secrets.token_hex(4)}")
    return create_agent(user, "bench", model=model)


def sessions(agent: Any, count: int) -> list[Any]:
    """Open sessions of one agent."""
    from sessions_app.models import Session, SessionType

    rows = [
        Session(
            id=uuid.uuid4(),
            agent=agent,
            owner_id=agent.owner_id,
            key=f"web:{secrets.token_hex(8)}",
            type=SessionType.SUB,
            channel="web",
        )
        for _ in range(count)
    ]
    Session.objects.bulk_create(rows, ROWS_AT_ONCE)
    return rows


def queue_messages(targets: list[Any], each: int, text: str = "Hello there") -> None:
    """Queue messages by the one door, each with its hint; the sessions take turns."""
    from sessions_app.models import OnBusy
    from sessions_app.receive import Input, receive

    for number in range(each):
        for session in targets:
            receive(session.id, Input(content=f"{text} {number}", on_busy=OnBusy.ENQUEUE))


def queue_rows(session: Any, count: int) -> None:
    """Queued messages without hints or events."""
    from sessions_app.models import Lane, Turn, TurnKind

    Turn.objects.bulk_create(
        (
            Turn(session=session, kind=TurnKind.MESSAGE, lane=Lane.PEOPLE, content=f"Message {n}")
            for n in range(count)
        ),
        ROWS_AT_ONCE,
    )


def history(session: Any, count: int) -> None:
    """A session's past of `count` messages."""
    from sessions_app.models import Message, Session

    Message.objects.bulk_create(
        (
            Message(
                session=session, seq=n, role="user" if n % 2 else "assistant", content=f"Sentence {n}. " * 8
            )
            for n in range(1, count + 1)
        ),
        ROWS_AT_ONCE,
    )
    Session.objects.filter(pk=session.pk).update(last_seq=count)


def jobs(targets: list[Any], count: int) -> list[str]:
    """Automations due in a month, bound to the sessions in turn; their ids."""
    from automations.models import CronJob, JobClock, ScheduleKind

    now = datetime.now(UTC)
    rows = [
        CronJob(
            agent_id=targets[n % len(targets)].agent_id,
            session=targets[n % len(targets)],
            name=f"job {n}",
            message="check the repo",
            schedule_kind=ScheduleKind.EVERY,
            every_seconds=3600,
            anchor=now,
        )
        for n in range(count)
    ]
    CronJob.objects.bulk_create(rows, ROWS_AT_ONCE)
    JobClock.objects.bulk_create(
        [JobClock(job=row, next_run_at=now + timedelta(days=30)) for row in rows], ROWS_AT_ONCE
    )
    return [row.pk for row in rows]


def make_due(ids: list[str]) -> None:
    """These jobs' next slot is this very minute's past."""
    from automations.models import JobClock

    JobClock.objects.filter(job_id__in=ids).update(next_run_at=datetime.now(UTC) - timedelta(seconds=1))


def settle() -> None:
    """VACUUM ANALYZE: what autovacuum would have done by and by."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def clear() -> None:
    """Empty every table that grows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE sessions_app_session, sessions_app_agent, sessions_app_turn, automations_cronjob CASCADE"
        )
