"""What an hour of many agents' heartbeats costs: beat, database, lateness at the real rate, a turn beside a chat turn.

Firing is measured in compressed time: what an hour brings is made due second by second, and each second is one round
of ticks. Lateness is measured in real time, for as long as `heartbeat_seconds`, with a beat and a worker of their own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks import data, fleet
from benchmarks.cost import MILLISECONDS, Cost, measured
from benchmarks.plugin import MODEL
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes
from benchmarks.statements import QUIET, Log, chat, fire, logged, of_turns, publish_once, wait_for_turns

if TYPE_CHECKING:
    from benchmarks.beat import Beat

HOUR = 3_600  # seconds
SETTINGS = {"enabled": True, "interval_seconds": HOUR, "active_hours": [0, 24], "ack_max_chars": 300}
FAR = timedelta(days=30)
AHEAD = timedelta(seconds=2)  # until the first heartbeat of the real rate
PATIENCE = 120.0  # seconds after the last
SAY_EVERY = 2_000


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """All at once, second by second, at the real rate, and turn by turn."""
    from benchmarks.beat import Beat

    ids = _agents(sizes.heartbeats, say)
    beat = Beat()
    _fired(beat, ids[: sizes.heartbeats // 10 or 1])  # imports, connections and plans of this process
    data.end_fired()
    at_once = _fired(beat, ids)
    data.end_fired()
    say(f"{len(ids):,} due at once: {at_once.wall / MILLISECONDS:.1f} s")
    ticks = _hour(beat, ids, sizes.heartbeat_ticks)
    data.end_fired()
    fleet.purge()
    figures = [*_of_firing(at_once, ticks, len(ids)), *_late(servers, sizes, ids, say)]
    data.end_fired()
    return [*figures, *_turns(servers, sizes, ids, say)]


def _agents(count: int, say: Callable[[str], None]) -> list[str]:
    """Agents of as many people, each with its heartbeat's session; the ids of the heartbeats, none of them due."""
    from automations.models import CronJob, JobClock
    from automations.slot_turn import heartbeat_session
    from automations.system import HEARTBEAT

    for number in range(1, count + 1):
        heartbeat_session(data.person(MODEL, heartbeat=SETTINGS))  # whatever the hour is
        if number % SAY_EVERY == 0:
            say(f"{number:,} of {count:,} agents are there")
    JobClock.objects.update(next_run_at=datetime.now(UTC) + FAR)  # the dreams, too
    # no slot of their own comes due while others are made due: it would find its session busy
    CronJob.objects.filter(system_event=HEARTBEAT).update(
        anchor=datetime.now(UTC) + timedelta(seconds=HOUR / 2)
    )
    data.settle()
    return list(CronJob.objects.filter(system_event=HEARTBEAT).order_by("pk").values_list("pk", flat=True))


def _fired(beat: Beat, ids: list[str]) -> Cost:
    """Tick until these are fired; each must have its run and turn. Their next slots lie far ahead then."""
    from automations.models import JobClock, RunRecord, RunState
    from sessions_app import wake

    data.make_due(ids)
    with measured() as cost:
        beat.tick_all()
    wake.flush(60.0)
    runs = RunRecord.objects.filter(job_id__in=ids, state=RunState.QUEUED, turn__state="queued").count()
    assert runs == len(ids), f"{runs} of {len(ids)} heartbeats were fired"
    JobClock.objects.filter(pk__in=ids).update(next_run_at=datetime.now(UTC) + FAR)
    return cost


def _hour(beat: Beat, ids: list[str], ticks: int) -> list[Cost]:
    """What each of so many equal parts of an hour costs that brings anything."""
    parts = [ids[len(ids) * n // ticks : len(ids) * (n + 1) // ticks] for n in range(ticks)]
    return [_fired(beat, part) for part in parts if part]


def _of_firing(at_once: Cost, ticks: list[Cost], count: int) -> list[Figure]:
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


def _late(servers: Servers, sizes: Sizes, ids: list[str], say: Callable[[str], None]) -> list[Figure]:
    """Lateness at the rate of an hour: from the slot until the turn starts, and until it has ended."""
    rate = len(ids) / HOUR
    chosen = ids[: max(2, int(rate * sizes.heartbeat_seconds))]
    with fleet.workers(servers.folder, sizes.workers, sizes.concurrency), fleet.beat(servers.folder):
        _spread(chosen, sizes.heartbeat_seconds)
        time.sleep(sizes.heartbeat_seconds)
        try:
            fleet.until(
                lambda: _ended(chosen) >= len(chosen), "the heartbeats have ended", PATIENCE, every=0.2
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {_states(chosen)}") from None
    started, ended = _lateness(chosen)
    say(f"{len(chosen)} heartbeats, a median of {statistics.median(started):.0f} ms late")
    setting = f"{len(chosen) / sizes.heartbeat_seconds:.1f}/s for {sizes.heartbeat_seconds:.0f} s"
    name = f"heartbeat's turn late, among {len(ids):,}"
    return [
        Figure(name=name, value=statistics.median(started), unit="ms", note=f"median; {setting}"),
        Figure(name=f"{name}, p99", value=_p99(started), unit="ms", note=f"the latest {max(started):.0f} ms"),
        Figure(name="heartbeat's turn ended, p99", value=_p99(ended), unit="ms", note="after its slot"),
    ]


def _spread(ids: list[str], seconds: float) -> None:
    """Their slots lie at equal distances within so many seconds from now."""
    from automations.due import plans_changed
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
    plans_changed()


def _ended(ids: list[str]) -> int:
    return int(_real_runs(ids).filter(finished_at__isnull=False).count())


def _real_runs(ids: list[str]) -> Any:
    from automations.models import RunRecord

    return RunRecord.objects.filter(job_id__in=ids).exclude(run_id__startswith="past:")


def _states(ids: list[str]) -> str:
    """What became of the slots that did not succeed: for whoever looks for the cause."""
    rows = _real_runs(ids).exclude(state="succeeded")
    odd = [f"{row.run_id} {row.state} {row.reason} {row.error_detail}; {_turns_of(row.job)}" for row in rows]
    return "; ".join([f"{_real_runs(ids).count()} runs of {len(ids)}", *odd])


def _turns_of(job: Any) -> str:
    """The last turns of its heartbeat's session."""
    from automations.jobs import heartbeat_key
    from sessions_app.models import Turn

    rows = Turn.objects.filter(session__agent_id=job.agent_id, session__key=heartbeat_key(job.agent))
    names = ("id", "kind", "state", "due_at", "queued_at", "started_at", "finished_at")
    return str([[str(value) for value in row] for row in rows.order_by("-id").values_list(*names)[:4]])


def _lateness(ids: list[str]) -> tuple[list[float], list[float]]:
    """Milliseconds from the slot to the beginning, and to the end."""
    rows = _real_runs(ids).values_list("state", "scheduled_for", "started_at", "finished_at")
    assert all(state == "succeeded" for state, *_ in rows), f"a heartbeat did not succeed: {_states(ids)}"
    return (
        [(started - slot).total_seconds() * MILLISECONDS for _, slot, started, _ in rows],
        [(ended - slot).total_seconds() * MILLISECONDS for _, slot, _, ended in rows],
    )


def _p99(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def _turns(servers: Servers, sizes: Sizes, ids: list[str], say: Callable[[str], None]) -> list[Figure]:
    """Heartbeats and plain chat turns, one at a time in one worker: statements and milliseconds."""
    if servers.postgres_log is None:
        say("statements are not counted: this needs the embedded PostgreSQL, whose log is read")
        return []
    (session,) = data.sessions(data.person(MODEL), 1)
    count = sizes.counted_turns
    with psycopg.connect(servers.database_url, autocommit=True, application_name="watch") as watch, logged():
        publish_once(session)
        log = Log(servers.postgres_log, watch)
        with fleet.worker(servers.folder, "counted", 4, **QUIET):
            wait_for_turns(watch)
            log.read()
            for _ in range(count):
                chat(session, watch)
            chats = log.read()
            for heartbeat in ids[-count:]:
                fire([heartbeat])
                wait_for_turns(watch)
            beats = log.read()
    plain, beat = _milliseconds("message", count), _milliseconds("heartbeat", count)
    return [
        *of_turns("heartbeat's turn", beats, min(count, len(ids)), None),
        *of_turns("chat turn beside it", chats, count, None),
        Figure(name="heartbeat's turn", value=beat, unit="ms", note=f"median; a chat turn {plain:.1f} ms"),
        Figure(name="heartbeat's turn to chat turn", value=beat / plain, note="both from claim to commit"),
    ]


def _milliseconds(kind: str, count: int) -> float:
    """The median of the last turns of this kind, from claim to commit."""
    from sessions_app.models import Turn

    rows: Any = Turn.objects.filter(kind=kind, started_at__isnull=False).order_by("-id")[:count]
    took: list[float] = [(row.finished_at - row.started_at).total_seconds() * MILLISECONDS for row in rows]
    return statistics.median(took)
