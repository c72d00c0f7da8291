"""The cost of one hour of heartbeats of many agents: beat, database, lateness, and a turn compared to a chat turn.

Firing is measured in compressed time: the heartbeats of each second are made due, and beat ticks until none is left.
Lateness is measured in real time for `heartbeat_seconds`, with separate beat and worker processes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import data, fleet
from benchmarks.cost import MILLISECONDS, Cost, measured, p99
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from benchmarks.statements import (
    QUIET,
    Executed,
    Log,
    chat,
    fire,
    print_statements,
    publish_once,
    statements_logged,
    turn_figures,
    wait_for_turns,
)

if TYPE_CHECKING:
    from benchmarks.beat import Beat

HOUR = 3_600  # seconds
SETTINGS = {"enabled": True, "interval_seconds": HOUR, "active_hours": [0, 24], "ack_max_chars": 300}
NOT_DUE = timedelta(days=30)
PATIENCE = 120.0  # seconds after the last heartbeat
SAY_EVERY = 2_000


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Fire all at once, then second by second, then in real time; then run single turns."""
    from benchmarks.beat import Beat

    ids = _create_agents(sizes.heartbeats, say)
    beat = Beat()
    _fire(beat, ids[: sizes.heartbeats // 10 or 1])  # imports, connections and plans of this process
    data.end_fired()
    at_once = _fire(beat, ids)
    data.end_fired()
    say(f"{len(ids):,} due at once: {at_once.wall / MILLISECONDS:.1f} s")
    ticks = _fire_hour(beat, ids, sizes.heartbeat_ticks)
    data.end_fired()
    fleet.purge()
    figures = [*_firing_figures(at_once, ticks, len(ids)), *_measure_lateness(servers, sizes, ids, say)]
    data.end_fired()
    return [*figures, *_measure_turns(servers, sizes, ids, say)]


def _create_agents(count: int, say: Callable[[str], None]) -> list[str]:
    """Create agents of different users with heartbeat sessions; returns the ids of the heartbeats. None is due."""
    from automations.firing.placement import heartbeat_session
    from automations.jobs.system import HEARTBEAT
    from automations.models import CronJob, JobClock

    for number in range(1, count + 1):
        heartbeat_session(data.person(MODEL, heartbeat=SETTINGS))
        if number % SAY_EVERY == 0:
            say(f"{number:,} of {count:,} agents created")
    JobClock.objects.update(next_run_at=datetime.now(UTC) + NOT_DUE)  # those of dreams, too
    # keep their own slots away from now: such a slot would find its session busy
    CronJob.objects.filter(system_event=HEARTBEAT).update(
        anchor=datetime.now(UTC) + timedelta(seconds=HOUR / 2)
    )
    data.settle()
    return list(CronJob.objects.filter(system_event=HEARTBEAT).order_by("pk").values_list("pk", flat=True))


def _fire(beat: Beat, ids: list[str]) -> Cost:
    """Fire these, and check that each has a run and a turn. Their next slots are then far in the future."""
    from automations.models import JobClock, RunRecord, RunState
    from sessions_app import hints

    data.make_due(ids)
    with measured() as cost:
        beat.tick_all()
    hints.flush_hints(60.0)
    runs = RunRecord.objects.filter(job_id__in=ids, state=RunState.QUEUED, turn__state="queued").count()
    assert runs == len(ids), f"{runs} of {len(ids)} heartbeats were fired"
    JobClock.objects.filter(pk__in=ids).update(next_run_at=datetime.now(UTC) + NOT_DUE)
    return cost


def _fire_hour(beat: Beat, ids: list[str], ticks: int) -> list[Cost]:
    """The cost of each of `ticks` equal parts of an hour in which heartbeats are due."""
    parts = [ids[len(ids) * n // ticks : len(ids) * (n + 1) // ticks] for n in range(ticks)]
    return [_fire(beat, part) for part in parts if part]


def _firing_figures(at_once: Cost, ticks: list[Cost], count: int) -> list[Figure]:
    walls = sorted(cost.wall for cost in ticks)
    wall, database, cpu = (
        sum(getattr(cost, name) for cost in ticks) / MILLISECONDS for name in ("wall", "database", "cpu")
    )
    return [
        Figure(
            name=f"beat's time for an hour of {count:,} heartbeats",
            value=wall,
            unit="s",
            note=f"{wall / HOUR:.2%} of the hour; {database:.1f} s in the database, {cpu:.1f} s of processor; a round"
            f" of ticks {statistics.median(walls):.1f} ms, the longest {walls[-1]:.1f} ms",
        ),
        Figure(
            name=f"fire {count:,} heartbeats due at once",
            value=at_once.wall / MILLISECONDS,
            unit="s",
            note=f"{at_once.database / MILLISECONDS:.1f} s in the database",
        ),
    ]


def _measure_lateness(
    servers: Servers, sizes: Sizes, ids: list[str], say: Callable[[str], None]
) -> list[Figure]:
    """Lateness in real time: from the slot until the turn starts, and until it ends."""
    rate = len(ids) / HOUR
    chosen = ids[: max(2, int(rate * sizes.heartbeat_seconds))]
    with fleet.workers(servers.folder, sizes.workers[0], sizes.concurrency), fleet.beat(servers.folder):
        data.spread(chosen, sizes.heartbeat_seconds)
        time.sleep(sizes.heartbeat_seconds)
        try:
            fleet.until(
                lambda: _count_ended(chosen) >= len(chosen), "the heartbeats have ended", PATIENCE, every=0.2
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {_states(chosen)}") from None
    started, ended = _lateness(chosen)
    say(f"{len(chosen)} heartbeats, a median of {statistics.median(started):.0f} ms late")
    setting = f"{len(chosen) / sizes.heartbeat_seconds:.1f}/s for {sizes.heartbeat_seconds:.0f} s"
    name = f"heartbeat's turn late, among {len(ids):,}"
    return [
        Figure(name=name, value=statistics.median(started), unit="ms", note=f"median; {setting}"),
        Figure(name=f"{name}, p99", value=p99(started), unit="ms", note=f"the latest {max(started):.0f} ms"),
        Figure(name="heartbeat's turn ended, p99", value=p99(ended), unit="ms", note="after its slot"),
    ]


def _count_ended(ids: list[str]) -> int:
    return int(_real_runs(ids).filter(finished_at__isnull=False).count())


def _real_runs(ids: list[str]) -> Any:
    from automations.models import RunRecord

    return RunRecord.objects.filter(job_id__in=ids).exclude(run_id__startswith="past:")


def _states(ids: list[str]) -> str:
    """The runs that did not succeed, for error messages."""
    rows = _real_runs(ids).exclude(state="succeeded")
    odd = [f"{row.run_id} {row.state} {row.reason} {row.error_detail}; {_turns_of(row.job)}" for row in rows]
    return "; ".join([f"{_real_runs(ids).count()} runs of {len(ids)}", *odd])


def _turns_of(job: Any) -> str:
    """The last turns of the job's heartbeat session."""
    from automations.models.job import heartbeat_key
    from sessions_app.models import Turn

    rows = Turn.objects.filter(session__agent_id=job.agent_id, session__key=heartbeat_key(job.agent.name))
    names = ("id", "kind", "state", "due_at", "queued_at", "started_at", "finished_at")
    return str([[str(value) for value in row] for row in rows.order_by("-id").values_list(*names)[:4]])


def _lateness(ids: list[str]) -> tuple[list[float], list[float]]:
    """Milliseconds from the slot to the start and to the end."""
    rows = _real_runs(ids).values_list("state", "scheduled_for", "started_at", "finished_at")
    assert all(state == "succeeded" for state, *_ in rows), f"a heartbeat did not succeed: {_states(ids)}"
    return (
        [(started - slot).total_seconds() * MILLISECONDS for _, slot, started, _ in rows],
        [(ended - slot).total_seconds() * MILLISECONDS for _, slot, _, ended in rows],
    )


def _measure_turns(
    servers: Servers, sizes: Sizes, ids: list[str], say: Callable[[str], None]
) -> list[Figure]:
    """Statements and milliseconds of heartbeats and chat turns, one at a time in one worker."""
    if servers.postgres_log is None:
        say("statements are not counted: this needs the embedded PostgreSQL, whose log is read")
        return []
    (session,) = data.sessions(data.person(MODEL), 1)
    count = min(sizes.counted_turns, len(ids))
    with (
        psycopg.connect(servers.database_url, autocommit=True, application_name="watch") as watch,
        statements_logged(),
    ):
        publish_once(session)
        log = Log(servers.postgres_log, watch)
        with fleet.worker(servers.folder, "counted", 4, **QUIET):
            wait_for_turns(watch)
            log.read()
            chats, beats = list[Executed](), list[Executed]()
            for heartbeat in ids[-count:]:
                chat(session, watch)
                chats += log.read()
                fire([heartbeat])
                wait_for_turns(watch)
                beats += log.read()
    print_statements("heartbeat's", beats, count, say)
    plain, beat = _milliseconds("message", count), _milliseconds("heartbeat", count)
    return [
        *turn_figures("heartbeat's turn", beats, count),
        *turn_figures("chat turn beside it", chats, count),
        Figure(name="heartbeat's turn", value=beat, unit="ms", note=f"median; a chat turn {plain:.1f} ms"),
        Figure(name="heartbeat's turn to chat turn", value=beat / plain, note="both from claim to commit"),
    ]


def _milliseconds(kind: str, count: int) -> float:
    """The median of the last turns of this kind, from claim to commit."""
    from sessions_app.models import Turn

    rows: Any = Turn.objects.filter(kind=kind, started_at__isnull=False).order_by("-id")[:count]
    took: list[float] = [(row.finished_at - row.started_at).total_seconds() * MILLISECONDS for row in rows]
    return statistics.median(took)
