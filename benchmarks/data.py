"""Rows for the benchmarks, created in bulk."""

from __future__ import annotations

import secrets
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

ROWS_AT_ONCE = 5_000
USERS = 20
SOON, NOT_SOON = timedelta(hours=1), timedelta(days=30)
AHEAD = timedelta(seconds=4)  # until the first of spread slots


def person(model: str, **fields: Any) -> Any:
    """Create a user with an agent; returns the agent."""
    from django.contrib.auth import get_user_model

    from sessions_app.agents.edit import create_agent

    user = get_user_model().objects.create_user(f"bench-{secrets.token_hex(4)}")
    return create_agent(user, "bench", model=model, **fields)


def sessions(agent: Any, count: int) -> list[Any]:
    """Create open sessions of one agent."""
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


def sessions_of_users(model: str, count: int) -> list[Any]:
    """Create open sessions of up to 20 new users with an agent each, the users in turn."""
    people = [person(model) for _ in range(min(USERS, count))]
    own = [sessions(agent, -(-count // len(people))) for agent in people]
    return [session for row in zip(*own, strict=True) for session in row][:count]


def queue_messages(targets: list[Any], each: int, text: str = "Hello there") -> None:
    """Receive messages as the API does, with their hints, round robin over the sessions."""
    from sessions_app.models import OnBusy
    from sessions_app.queue.receive import MessageInput, receive

    for number in range(each):
        for session in targets:
            receive(session.id, MessageInput(content=f"{text} {number}", on_busy=OnBusy.ENQUEUE))


def queue_rows(session: Any, count: int) -> None:
    """Insert queued messages without hints and events."""
    from sessions_app.models import Lane, Turn, TurnKind

    Turn.objects.bulk_create(
        (
            Turn(session=session, kind=TurnKind.MESSAGE, lane=Lane.PEOPLE, content=f"Message {n}")
            for n in range(count)
        ),
        ROWS_AT_ONCE,
    )


def history(session: Any, count: int) -> None:
    """Insert a history of `count` messages."""
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
    """Create automations due in a month, round robin over the sessions; returns their ids."""
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
        [JobClock(job=row, next_run_at=now + NOT_SOON) for row in rows], ROWS_AT_ONCE
    )
    return [row.pk for row in rows]


def make_due(ids: list[str]) -> None:
    """Make these jobs due now, and no others: jobs with a slot of their own within the hour run in a month."""
    from automations.models import JobClock

    soon = JobClock.objects.exclude(job_id__in=ids).filter(next_run_at__lt=datetime.now(UTC) + SOON)
    soon.update(next_run_at=datetime.now(UTC) + NOT_SOON)
    JobClock.objects.filter(job_id__in=ids).update(
        next_run_at=datetime.now(UTC) - timedelta(seconds=1), last_slot=None
    )


def spread(ids: list[str], seconds: float) -> dict[str, datetime]:
    """Spread the next slots of these jobs evenly over the next `seconds`. Returns each job's slot."""
    from automations.jobs.clock import notify_beats
    from automations.models import CronJob, JobClock

    begin = datetime.now(UTC).replace(microsecond=0) + AHEAD
    slots = {
        each: begin + timedelta(milliseconds=int(n * seconds * 1000 / len(ids))) for n, each in enumerate(ids)
    }
    jobs = list(CronJob.objects.filter(pk__in=ids))
    for job in jobs:
        job.anchor = slots[job.pk]
    CronJob.objects.bulk_update(jobs, ["anchor"], batch_size=500)
    clocks = list(JobClock.objects.filter(pk__in=ids))
    for clock in clocks:
        clock.next_run_at, clock.last_slot = slots[clock.pk], None
    JobClock.objects.bulk_update(clocks, ["next_run_at", "last_slot"], batch_size=500)
    notify_beats()
    if datetime.now(UTC) > begin:
        raise RuntimeError("the first slot came before all slots were stored")
    return slots


def check_fired(ids: list[str]) -> None:
    """Check that exactly these jobs have a queued run, each with one queued turn, and that none is due."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT run.job_id, run.session_id = job.session_id AND turn.session_id = job.session_id"
            " FROM automations_runrecord run JOIN automations_cronjob job ON job.id = run.job_id"
            " LEFT JOIN sessions_app_turn turn ON turn.origin_run = run.run_id AND turn.state = 'queued'"
            " WHERE run.state = 'queued'"
        )
        fired = cursor.fetchall()
        cursor.execute("SELECT count(*) FROM automations_jobclock WHERE next_run_at <= now()")
        (still_due,) = cursor.fetchone()
    assert sorted(job_id for job_id, _ in fired) == sorted(ids), "the fired jobs are not those that were due"
    assert all(right for _, right in fired), "a run has no turn in its job's session"
    assert still_due == 0, f"{still_due} jobs are still due"


_END = (
    # the next round may fire the same slots, so these runs move to unique slots in the past
    """UPDATE automations_runrecord SET state = 'succeeded', finished_at = now(), run_id = 'past:' || turn_id,
    scheduled_for = to_timestamp(turn_id) WHERE state = 'queued'""",
    """UPDATE sessions_app_turn SET state = 'succeeded', finished_at = now(), idempotency_key = NULL
    WHERE state = 'queued'""",
)
_TIDY = ("VACUUM ANALYZE automations_runrecord", "VACUUM ANALYZE sessions_app_turn")


def end_fired(*, tidy: bool = True) -> None:
    """End all fired runs and turns, so that the next round finds no open runs; `tidy`: and no dead rows.

    After a VACUUM or ANALYZE PostgreSQL plans all statements again that use these tables.
    """
    with connection.cursor() as cursor:
        for statement in (*_END, *(_TIDY if tidy else ())):
            cursor.execute(statement)


def settle() -> None:
    """VACUUM ANALYZE, as autovacuum would do over time."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def clear() -> None:
    """Empty every table that grows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE sessions_app_session, sessions_app_agent, sessions_app_turn, sessions_app_event,"
            " automations_cronjob CASCADE"
        )


def token(agent: Any) -> str:
    """The API token of the agent's owner."""
    from sessions_app.models import ApiToken
    from sessions_app.tokens.issue import NewToken, make_token

    secret = f"benchmark-{agent.owner_id}"
    if not ApiToken.objects.filter(user_id=agent.owner_id, name=secret).exists():
        make_token(agent.owner, NewToken(name=secret, scopes=["manage"]), secret)
    return secret


def count_succeeded(targets: list[Any]) -> int:
    """How many turns of the sessions have succeeded. Raises RuntimeError if one has failed."""
    from sessions_app.models import Turn, TurnState

    turns = Turn.objects.filter(session__in=targets)
    if broken := turns.filter(state=TurnState.FAILED).first():
        raise RuntimeError(f"a turn failed: {broken.error_code} {broken.error_detail}")
    return turns.filter(state=TurnState.SUCCEEDED).count()
