"""`manage.py status`: the current state of all processes, turns, jobs and mailboxes, read from the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Exists, F, Min, OuterRef, Q
from django.db.models.functions import Now

from automations.models import JobClock, ScheduledMessage
from sessions_app import flags
from sessions_app.limits import running_turns
from sessions_app.models import Agent, Lane, Process, ProcessKind, Session, Turn, TurnState, Worker
from sessions_app.operations.figures import Unread, open_deliveries, unread_mail

MOST_OF_A_KIND = 6  # lines of processes of a kind; JSON has all


@dataclass(frozen=True, kw_only=True)
class Reporter:
    """A process that reports itself. `silent_seconds`: since its last report."""

    id: str
    host: str
    pid: int
    alive: bool
    silent_seconds: float


@dataclass(frozen=True, kw_only=True)
class ProcessNow(Reporter):
    """A web process, worker or beat. `age_seconds`: since it started."""

    kind: str
    address: str
    version: str
    age_seconds: float

    def __str__(self) -> str:
        """`web app1:71`."""
        return f"{self.kind} {self.host}:{self.pid}"


@dataclass(frozen=True, kw_only=True)
class WorkerNow(Reporter):
    """A worker process, with the turns that it runs."""

    queues: list[str]
    turns: list[int]


@dataclass(frozen=True, kw_only=True)
class LaneNow:
    """Turns of one lane. `waiting` includes turns of inactive accounts (`inactive`) and of users who have
    RONDO_TURNS_PER_USER turns running (`refused`).
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
class Status:
    """The state of the server. `sessions`: counts by type; `deliveries`: counts by state."""

    processes: list[ProcessNow]
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
        if self.next_job is not None:
            shown["next_job"]["at"] = self.next_job.at.isoformat()
        return shown


def read_status() -> Status:
    """Read the current state from the database."""
    by_type = Session.objects.values_list("type").annotate(count=Count("pk")).order_by("type")
    return Status(
        processes=read_processes(),
        workers=_workers(),
        people=lane_now(Lane.PEOPLE),
        automations=lane_now(Lane.AUTO),
        agents=Agent.objects.count(),
        sessions=dict(by_type),
        next_job=_next_job(),
        due_jobs=JobClock.objects.filter(next_run_at__lte=Now(), inline=False).count(),
        due_messages=ScheduledMessage.objects.waiting().filter(send_at__lte=Now()).count(),
        mailbox=unread_mail(),
        deliveries=open_deliveries(),
        flags=flags.flag_values(),
    )


def read_processes() -> list[ProcessNow]:
    """Return all processes that run, and silent ones that no other process on their machine has replaced since."""
    lost_after = timedelta(seconds=settings.RONDO_WORKER_LOST_SECONDS)
    newer = Process.objects.filter(
        kind=OuterRef("kind"), host=OuterRef("host"), started_at__gt=OuterRef("seen_at")
    )
    shown = Process.objects.filter(Q(seen_at__gte=Now() - lost_after) | ~Exists(newer))
    rows: Any = shown.annotate(silent=Now() - F("seen_at"), age=Now() - F("started_at"))
    return [
        ProcessNow(
            **_report(row),
            kind=row.kind,
            address=row.address,
            version=row.version,
            age_seconds=_seconds(row.age),
        )
        for row in rows.order_by("host", "kind", "started_at", "pk")
    ]


def _workers() -> list[WorkerNow]:
    runs: dict[Any, list[int]] = {}
    running = Turn.objects.filter(state=TurnState.RUNNING, claim__isnull=False).order_by("pk")
    for worker, turn in running.values_list("worker", "pk"):
        runs.setdefault(worker, []).append(turn)
    rows: Any = Worker.objects.annotate(silent=Now() - F("heartbeat_at")).order_by("host", "pid", "pk")
    return [WorkerNow(**_report(row), queues=row.shards, turns=runs.get(row.pk, [])) for row in rows]


def _report(row: Any) -> dict[str, Any]:
    silent = _seconds(row.silent)
    alive = silent <= settings.RONDO_WORKER_LOST_SECONDS
    return {"id": str(row.pk), "host": row.host, "pid": row.pid, "alive": alive, "silent_seconds": silent}


def _seconds(span: timedelta) -> float:
    return round(max(0.0, span.total_seconds()), 1)


def lane_now(lane: Lane) -> LaneNow:
    """Count the open turns of a lane."""
    turns = Turn.objects.filter(lane=lane)
    queued = turns.filter(state=TurnState.QUEUED).aggregate(
        count=Count("pk"),
        inactive=Count("pk", filter=Q(session__owner__is_active=False)),
        refused=Count("pk", filter=running_turns.waits_for_own_turns()),
        age=Now() - Min("queued_at", default=Now()),
    )
    return LaneNow(
        waiting=queued["count"],
        inactive=queued["inactive"],
        refused=queued["refused"],
        running=turns.filter(state=TurnState.RUNNING).count(),
        oldest_seconds=_seconds(queued["age"]),
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


def status_lines(status: Status) -> list[str]:
    """The status as lines of text for a terminal."""
    sessions = ", ".join(f"{count:,} {kind}" for kind, count in status.sessions.items()) or "none"
    unread, deliveries = status.mailbox, status.deliveries
    on_the_way = deliveries["pending"] + deliveries["sending"]
    return [
        *_some("web", (_process_words(each) for each in _of(status, ProcessKind.WEB))),
        *_some("workers", _workers_in_words(status)),
        *_some("beats", (_process_words(each) for each in _of(status, ProcessKind.BEAT))),
        f"people       {_lane_words(status.people)}",
        f"automations  {_lane_words(status.automations)}",
        f"next job     {_job_words(status)}",
        f"messages     {status.due_messages:,} due",
        f"mailboxes    {unread.waiting:,} waiting, {unread.urgent:,} of them urgent",
        f"deliveries   {on_the_way:,} on the way, {deliveries['failed']:,} given up",
        f"agents       {status.agents:,}",
        f"sessions     {sessions}",
        *(f"flags        {each}" for each in flags.changed_flags()),
    ]


def _some(label: str, words: Iterable[str]) -> list[str]:
    """A line for each of the first processes, and how many more there are; the label before the first line."""
    found = list(words)
    shown = found[:MOST_OF_A_KIND] or ["none"]
    if len(found) > MOST_OF_A_KIND:
        shown.append(f"and {len(found) - MOST_OF_A_KIND:,} more")
    return [f"{'' if number else label:12} {text}" for number, text in enumerate(shown)]


def _of(status: Status, kind: ProcessKind) -> list[ProcessNow]:
    """The processes of a kind, silent ones first."""
    return sorted((each for each in status.processes if each.kind == kind), key=lambda each: each.alive)


def _process_words(process: ProcessNow) -> str:
    words = f"{process.host} pid {process.pid}: {_life(process)}, {_since(process)}"
    return f"{words}, {process.address}" if process.address else words


def _life(process: Reporter) -> str:
    return "alive" if process.alive else f"SILENT for {_span(process.silent_seconds)}"


def _since(process: ProcessNow) -> str:
    return f"{process.version} for {_span(process.age_seconds)}"


def _workers_in_words(status: Status) -> Iterable[str]:
    """The workers: silent ones first, then those with most turns."""
    known = {each.id: each for each in _of(status, ProcessKind.WORKER)}
    for each in sorted(status.workers, key=lambda worker: (worker.alive, -len(worker.turns))):
        life = _life(each) + (f", {_since(known[each.id])}" if each.id in known else "")
        queues = f"{len(each.queues)} queues" if len(each.queues) > 4 else ", ".join(each.queues)
        yield f"{each.host} pid {each.pid}: {life}, running {len(each.turns)}, reads {queues}"


def _lane_words(lane: LaneNow) -> str:
    oldest = f", the oldest for {_span(lane.oldest_seconds)}" if lane.waiting else ""
    why = f", {lane.inactive:,} of inactive accounts" if lane.inactive else ""
    why += f", {lane.refused:,} behind other turns of their users" if lane.refused else ""
    return f"{lane.waiting:,} waiting{oldest}{why}; {lane.running:,} running"


def _job_words(status: Status) -> str:
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
