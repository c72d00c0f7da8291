"""`manage.py status`: the current state of all processes, turns, jobs and mailboxes, read from the database."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Min, Q
from django.db.models.functions import Now

from automations.models import JobClock, ScheduledMessage
from config.operations.fleet import Fleet, read_fleet
from sessions_app import flags
from sessions_app.models import Agent, Lane, Session, Turn, TurnState, Worker
from sessions_app.operations.figures import Unread, open_deliveries, unread_mail


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

    fleet: Fleet
    workers: list[WorkerNow]
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
        del shown["fleet"]
        shown["processes"] = [asdict(each) for each in self.fleet.processes]
        for process in shown["processes"]:
            process["started_at"] = process["started_at"].isoformat()
        shown["differences"] = [str(each) for each in self.fleet.differences]
        if self.next_job is not None:
            shown["next_job"]["at"] = self.next_job.at.isoformat()
        return shown


def read_status() -> FleetStatus:
    """Read the current state from the database."""
    fleet = read_fleet()
    by_type = Session.objects.values_list("type").annotate(count=Count("pk")).order_by("type")
    return FleetStatus(
        fleet=fleet,
        workers=_workers(fleet),
        people=lane_now(Lane.PEOPLE),
        automations=lane_now(Lane.AUTO),
        agents=Agent.objects.count(),
        sessions=dict(by_type),
        next_job=_next_job(),
        due_jobs=JobClock.objects.filter(next_run_at__lte=Now(), inline=False).count(),
        due_messages=ScheduledMessage.objects.waiting().filter(send_at__lte=Now()).count(),
        mailbox=unread_mail(),
        deliveries=open_deliveries(),
        flags=dict(flags.flag_values(fleet.alive[0].settings if fleet.alive else None)),
    )


def _workers(fleet: Fleet) -> list[WorkerNow]:
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
            alive=row.silent.total_seconds() <= fleet.lost_after,
            silent_seconds=round(max(0.0, row.silent.total_seconds()), 1),
            queues=row.shards,
            turns=runs.get(row.pk, []),
        )
        for row in rows
    ]


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
