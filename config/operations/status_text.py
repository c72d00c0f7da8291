"""The status as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from config.operations.fleet import Fleet, ProcessNow
from config.operations.status import FleetStatus, LaneNow, WorkerNow
from sessions_app import flags
from sessions_app.models import ProcessKind

MOST_OF_A_KIND = 6  # lines of processes or settings of a kind; JSON has all


def status_lines(status: FleetStatus) -> list[str]:
    """The status as lines of text for a terminal."""
    sessions = ", ".join(f"{count:,} {kind}" for kind, count in status.sessions.items()) or "none"
    unread = status.mailbox
    return [
        *_process_lines(status),
        f"people       {_lane_words(status.people)}",
        f"automations  {_lane_words(status.automations)}",
        f"next job     {_job_words(status)}",
        f"messages     {status.due_messages:,} due",
        f"mailboxes    {unread.waiting:,} waiting, {unread.urgent:,} of them urgent",
        f"deliveries   {_delivery_words(status.deliveries)}",
        f"agents       {status.agents:,}",
        f"sessions     {sessions}",
        *_labelled("flags", flags.changed_flags(status.flags)),
        *_labelled("settings", _some(status.fleet.changed_settings())),
        *_labelled("WARNING", _some(_warnings(status.fleet))),
    ]


def _warnings(fleet: Fleet) -> list[str]:
    """What is not the same in all processes."""
    mixed = [f"several versions run: {fleet.versions_in_words()}"] * (len(fleet.versions) > 1)
    return [*mixed, *map(str, fleet.differences)]


def _labelled(label: str, texts: Iterable[str]) -> list[str]:
    """A line for each text, the label before the first."""
    return [f"{'' if number else label:12} {text}" for number, text in enumerate(texts)]


def _delivery_words(counts: dict[str, int]) -> str:
    waiting = counts["pending"] + counts["sending"]
    return f"{waiting:,} on the way, {counts['failed']:,} given up"


def _process_lines(status: FleetStatus) -> list[str]:
    """Web processes, workers and beats, each with its age and version; silent ones first."""
    return [
        *_labelled("web", _some(_web_words(each) for each in status.fleet.of(ProcessKind.WEB)) or ["none"]),
        *_labelled("workers", _some(_workers_in_words(status)) or ["none"]),
        *_labelled(
            "beats", _some(_life_words(each) for each in status.fleet.of(ProcessKind.BEAT)) or ["none"]
        ),
    ]


def _some(words: Iterable[str]) -> list[str]:
    """The first of them, and how many more there are; none for none."""
    found = list(words)
    more = [f"and {len(found) - MOST_OF_A_KIND:,} more"] * (len(found) > MOST_OF_A_KIND)
    return [*found[:MOST_OF_A_KIND], *more]


def _web_words(process: ProcessNow) -> str:
    return f"{_life_words(process)}{', ' + process.address if process.address else ''}"


def _life_words(process: ProcessNow) -> str:
    return (
        f"{process.host} pid {process.pid}: {_life(process.alive, process.silent_seconds)}, {_since(process)}"
    )


def _life(alive: bool, silent_seconds: float) -> str:
    return "alive" if alive else f"SILENT for {_span(silent_seconds)}"


def _since(process: ProcessNow) -> str:
    return f"{process.version} for {_span(process.age_seconds)}"


def _workers_in_words(status: FleetStatus) -> list[str]:
    known = {each.id: each for each in status.fleet.of(ProcessKind.WORKER)}
    # silent workers first, then those with most turns
    ordered = sorted(status.workers, key=lambda worker: (worker.alive, -len(worker.turns)))
    return [_worker_words(each, known.get(each.id)) for each in ordered]


def _worker_words(worker: WorkerNow, process: ProcessNow | None) -> str:
    life = _life(worker.alive, worker.silent_seconds) + (f", {_since(process)}" if process else "")
    return (
        f"{worker.host} pid {worker.pid}: {life}, running {len(worker.turns)}, reads {_queues(worker.queues)}"
    )


def _queues(queues: list[str]) -> str:
    return f"{len(queues)} queues" if len(queues) > 4 else ", ".join(queues)


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
