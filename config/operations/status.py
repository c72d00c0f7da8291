"""`manage.py status`: the current state of workers, beats, turns, jobs and mailboxes, read from the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, F, Min, Q
from django.db.models.functions import Now

from automations.models import JobClock, ScheduledMessage
from sessions_app import flags
from sessions_app.models import Agent, Lane, Session, Turn, TurnState, Worker
from sessions_app.operations.figures import Unread, open_deliveries, unread_mail
from sessions_app.postgres.notify import JOBS

MOST_WORKERS = 12  # shown to a person; JSON has all


@dataclass(frozen=True, kw_only=True)
class WorkerNow:
    """A worker process. `silent_seconds`: since it last reported; `turns`: those it runs."""

    id: str
    host: str
    pid: int
    alive: bool
    silent_seconds: float
    queues: list[str]
    turns: list[int]


@dataclass(frozen=True, kw_only=True)
class BeatNow:
    """A beat process, found by its LISTEN connection: client address and age of the connection."""

    address: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LaneNow:
    """Turns of one lane. Waiting turns of inactive accounts (`inactive`) and of users at RONDO_TURNS_PER_USER
    (`refused`) are counted in `waiting`, too.
    """

    waiting: int
    inactive: int
    refused: int
    running: int
    oldest_seconds: float


@dataclass(frozen=True, kw_only=True)
class NextJob:
    """The job that is due next; negative `seconds`: it is overdue."""

    id: str
    name: str
    at: datetime
    seconds: float


@dataclass(frozen=True, kw_only=True)
class FleetStatus:
    """The state of a fleet. `sessions`: counts by type; `deliveries`: counts by state."""

    workers: list[WorkerNow]
    beats: list[BeatNow]
    people: LaneNow
    automations: LaneNow
    agents: int
    sessions: dict[str, int]
    next_job: NextJob | None
    due_jobs: int
    due_messages: int
    mailbox: Unread
    deliveries: dict[str, int]
    flags: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """A JSON object; times in ISO format."""
        shown = asdict(self)
        if self.next_job is not None:
            shown["next_job"]["at"] = self.next_job.at.isoformat()
        return shown


def read_status() -> FleetStatus:
    """Read the current state from the database."""
    by_type = Session.objects.values_list("type").annotate(count=Count("pk")).order_by("type")
    return FleetStatus(
        workers=_workers(),
        beats=_beats(),
        people=lane_now(Lane.PEOPLE),
        automations=lane_now(Lane.AUTO),
        agents=Agent.objects.count(),
        sessions=dict(by_type),
        next_job=_next_job(),
        due_jobs=JobClock.objects.filter(next_run_at__lte=Now(), inline=False).count(),
        due_messages=ScheduledMessage.objects.waiting().filter(send_at__lte=Now()).count(),
        mailbox=unread_mail(),
        deliveries=open_deliveries(),
        flags=dict(flags.flag_values()),
    )


def _workers() -> list[WorkerNow]:
    runs: dict[Any, list[int]] = {}
    running = Turn.objects.filter(state=TurnState.RUNNING, claim__isnull=False).order_by("pk")
    for worker, turn in running.values_list("worker", "pk"):
        runs.setdefault(worker, []).append(turn)
    rows: Any = Worker.objects.annotate(silent=Now() - F("heartbeat_at")).order_by("host", "pid", "pk")
    return [
        WorkerNow(
            id=str(row.pk),
            host=row.host,
            pid=row.pid,
            alive=row.silent.total_seconds() <= settings.RONDO_WORKER_LOST_SECONDS,
            silent_seconds=round(max(0.0, row.silent.total_seconds()), 1),
            queues=row.shards,
            turns=runs.get(row.pk, []),
        )
        for row in rows
    ]


def _beats() -> list[BeatNow]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(host(client_addr), 'local'),"
            " extract(epoch FROM clock_timestamp() - backend_start)::float8 FROM pg_stat_activity"
            " WHERE datname = current_database() AND query = %s ORDER BY backend_start",
            [f'LISTEN "{JOBS}"'],
        )
        return [BeatNow(address=address, seconds=round(age, 1)) for address, age in cursor.fetchall()]


def lane_now(lane: Lane) -> LaneNow:
    """Count the open turns of a lane."""
    turns = Turn.objects.filter(lane=lane)
    queued = turns.filter(state=TurnState.QUEUED).aggregate(
        count=Count("pk"),
        inactive=Count("pk", filter=Q(session__owner__is_active=False)),
        refused=Count("pk", filter=Q(share_of__isnull=False)),
        age=Now() - Min("queued_at", default=Now()),
    )
    return LaneNow(
        waiting=queued["count"],
        inactive=queued["inactive"],
        refused=queued["refused"],
        running=turns.filter(state=TurnState.RUNNING).count(),
        oldest_seconds=round(max(0.0, queued["age"].total_seconds()), 1),
    )


def _next_job() -> NextJob | None:
    due = JobClock.objects.filter(next_run_at__isnull=False, inline=False)
    clock: Any = (
        due.select_related("job").annotate(left=F("next_run_at") - Now()).order_by("next_run_at").first()
    )
    if clock is None:
        return None
    return NextJob(
        id=clock.pk, name=clock.job.name, at=clock.next_run_at, seconds=round(clock.left.total_seconds(), 1)
    )


def status_lines(status: FleetStatus) -> list[str]:
    """The status as lines of text for a terminal."""
    sessions = ", ".join(f"{count:,} {kind}" for kind, count in status.sessions.items()) or "none"
    unread = status.mailbox
    return [
        *_worker_lines(status.workers),
        f"beats        {_beat_words(status.beats)}",
        f"people       {_lane_words(status.people)}",
        f"automations  {_lane_words(status.automations)}",
        f"next job     {_job_words(status)}",
        f"messages     {status.due_messages:,} due",
        f"mailboxes    {unread.waiting:,} waiting, {unread.urgent:,} of them urgent",
        f"deliveries   {_delivery_words(status.deliveries)}",
        f"agents       {status.agents:,}",
        f"sessions     {sessions}",
        *_labelled("flags", flags.changed_flags()),
    ]


def _labelled(label: str, texts: Iterable[str]) -> list[str]:
    """A line for each text, the label before the first."""
    return [f"{'' if number else label:12} {text}" for number, text in enumerate(texts)]


def _delivery_words(counts: dict[str, int]) -> str:
    waiting = counts["pending"] + counts["sending"]
    return f"{waiting:,} on the way, {counts['failed']:,} given up"


def _worker_lines(workers: list[WorkerNow]) -> list[str]:
    if not workers:
        return ["workers      none"]
    # silent workers first, then those with most turns
    ordered = sorted(workers, key=lambda worker: (worker.alive, -len(worker.turns)))
    words = [_worker_words(worker) for worker in ordered[:MOST_WORKERS]]
    if (more := len(workers) - MOST_WORKERS) > 0:
        words.append(f"and {more:,} more")
    return _labelled("workers", words)


def _worker_words(worker: WorkerNow) -> str:
    life = "alive" if worker.alive else f"SILENT for {_span(worker.silent_seconds)}"
    return (
        f"{worker.host} pid {worker.pid}: {life}, running {len(worker.turns)}, reads {_queues(worker.queues)}"
    )


def _queues(queues: list[str]) -> str:
    return f"{len(queues)} queues" if len(queues) > 4 else ", ".join(queues)


def _beat_words(beats: list[BeatNow]) -> str:
    if not beats:
        return "none seen"
    return ", ".join(f"{beat.address} for {_span(beat.seconds)}" for beat in beats)


def _lane_words(lane: LaneNow) -> str:
    oldest = f", the oldest for {_span(lane.oldest_seconds)}" if lane.waiting else ""
    why = f", {lane.inactive:,} of inactive accounts" if lane.inactive else ""
    why += f", {lane.refused:,} behind other turns of their users" if lane.refused else ""
    return f"{lane.waiting:,} waiting{oldest}{why}; {lane.running:,} running"


def _job_words(status: FleetStatus) -> str:
    job = status.next_job
    if job is None:
        return "none"
    when = f"in {_span(job.seconds)}" if job.seconds >= 0 else f"overdue for {_span(-job.seconds)}"
    due = f"; {status.due_jobs:,} due" if status.due_jobs else ""
    return f"{job.name} ({job.id}) {when}, {job.at:%Y-%m-%d %H:%M:%S}Z{due}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
