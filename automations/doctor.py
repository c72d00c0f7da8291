"""What can be wrong with jobs and beats, each with its cure (rules 4.6, 10.2). For operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from automations.clocks import database_now
from automations.due import plans_changed
from automations.jobs import schedule_of
from automations.models import CronJob, ExecutionMode, JobClock, RunRecord, ScheduleKind
from automations.plan import FAR_AHEAD, accounted_to, plan_of
from automations.schedule import ScheduleError, next_slot
from automations.selectors import beats_seen, seconds_overdue
from automations.zone_data import used_zones
from automations.zone_files import fingerprint
from sessions_app.doctor import NAMED, Finding, named

LATE = 60.0  # seconds a job or message may be overdue before beat counts as missing
MOST_LOOKED_AT = 20_000  # schedules and jobs that are read one by one


@dataclass(frozen=True, kw_only=True)
class Mended:
    """A clock that was set right."""

    job_id: str
    before: datetime
    after: datetime

    def __str__(self) -> str:
        """One line."""
        return f"last_slot of {self.job_id}: {self.before:%Y-%m-%d %H:%M:%S}Z became {self.after:%Y-%m-%d %H:%M:%S}Z"


def beat() -> Finding:
    """Somebody fires what is due."""
    late = seconds_overdue()
    if late > LATE:
        return Finding(
            ok=False, detail=f"a job or message is {late:.0f} s overdue", cure="start `celery -A config beat`"
        )
    seen = beats_seen()
    if not seen:
        return Finding(
            ok=True,
            detail="nothing is overdue, but no beat is seen",
            cure="start `celery -A config beat`",
            seen=False,
        )
    return Finding(ok=True, detail=f"{seen} listening; nothing is overdue")


def jobs_set_aside() -> Finding:
    """No job was set aside with a fault."""
    return _jobs(
        CronJob.objects.exclude(fault=""),
        "set aside, see their fault in the admin",
        "give each a schedule that can be read, or switch it on again, or delete it",
    )


def time_zones() -> Finding:
    """There are data for each zone that jobs use."""
    gone = [zone for zone in used_zones() if fingerprint(zone) is None]
    if not gone:
        return Finding(ok=True, detail="all known")
    return Finding(
        ok=False,
        detail=f"no data for {named(gone, len(gone))}",
        cure="install current tzdata on every machine (PYTHONTZPATH), or give their jobs another zone",
    )


def schedules() -> Finding:
    """Each enabled cron job has a schedule that can be read, and that fires some day."""
    jobs = CronJob.objects.filter(enabled=True, schedule_kind=ScheduleKind.CRON)
    used = jobs.values_list("expr", "timezone").order_by().distinct()[:MOST_LOOKED_AT]
    bad = [(expr, zone) for expr, zone in used if not _fires(expr, zone)]
    if not bad:
        return Finding(ok=True, detail="all can be read")
    ids = [
        job_id
        for expr, zone in bad[:NAMED]
        for job_id in jobs.filter(expr=expr, timezone=zone).values_list("pk", flat=True)[:NAMED]
    ]
    return Finding(
        ok=False,
        detail=f"{len(bad)} can never fire: {named(ids, len(ids))}",
        cure="give these jobs another schedule, or delete them",
    )


def _fires(expr: str, zone: str) -> bool:
    """A zone that is gone is the business of `time_zones`."""
    try:
        job = CronJob(schedule_kind=ScheduleKind.CRON, expr=expr, timezone=zone)
        return next_slot(schedule_of(job), database_now()) is not None
    except ScheduleError as error:
        return error.code == "unknown_timezone"


def plans() -> Finding:
    """Each enabled job that has slots left has the next one in its clock; a system job always has some."""
    lost = [clock.pk for clock in _idle() if clock.job.system_event or _has_slots(clock)]
    if not lost:
        return Finding(ok=True, detail="complete")
    return Finding(
        ok=False,
        detail=f"enabled without a next slot: {named(lost, len(lost))}",
        cure="switch each off and on again",
    )


def _idle() -> Iterator[JobClock]:
    rows = JobClock.objects.filter(next_run_at__isnull=True, job__enabled=True).select_related("job")
    return rows.order_by("-pk")[:MOST_LOOKED_AT].iterator()


def _has_slots(clock: JobClock) -> bool:
    """After what is accounted for; a job that did all its work has none."""
    last = accounted_to(clock.last_slot, database_now()) or clock.planned_from
    try:
        after = max(last, clock.planned_from)
        return plan_of(clock.job, clock.runs_started).next_firing(after) is not None
    except ScheduleError:
        return False  # `schedules` and `time_zones` tell of it


def routines() -> Finding:
    """Whoever has inline routines has a heartbeat that starts them."""
    with_heartbeat = Q(execution_mode=ExecutionMode.INLINE) | Q(clock__inline=True)
    return _jobs(
        CronJob.objects.filter(with_heartbeat, enabled=True, agent__heartbeat__enabled=False),
        "inline routines of agents without a heartbeat",
        "switch heartbeat.enabled of the agent on, or make them isolated",
    )


def _jobs(rows: QuerySet[CronJob], what: str, cure: str) -> Finding:
    count = rows.count()
    if not count:
        return Finding(ok=True, detail="none")
    return Finding(
        ok=False,
        detail=f"{what}: {named(rows.order_by('pk').values_list('pk', flat=True)[:NAMED], count)}",
        cure=cure,
    )


def last_slots() -> Finding:
    """No clock accounts for slots that lie far ahead."""
    rows = _far_ahead()
    count = rows.count()
    if not count:
        return Finding(ok=True, detail="none is ahead of the clock")
    ids = rows.order_by("pk").values_list("pk", flat=True)[:NAMED]
    return Finding(
        ok=False,
        detail=f"last_slot is more than a day ahead: {named(ids, count)}",
        cure="manage.py doctor --mend",
    )


def _far_ahead() -> QuerySet[JobClock]:
    return JobClock.objects.filter(last_slot__gt=Now() + FAR_AHEAD)


def mend_last_slots(tell: Callable[[Mended], None]) -> None:
    """Set each such clock to the latest slot of its runs, or to now: one short transaction for each."""
    for job_id in _far_ahead().order_by("pk").values_list("pk", flat=True):
        mended = _mend(job_id)
        if mended is not None:
            tell(mended)


def _mend(job_id: str) -> Mended | None:
    with transaction.atomic():
        # the clock first, as everybody locks: beat and edits wait, or were faster
        clock = _far_ahead().select_for_update(no_key=True, of=("self",)).filter(pk=job_id).first()
        if clock is None or clock.last_slot is None:
            return None
        now, before = database_now(), clock.last_slot
        slots = RunRecord.objects.filter(job_id=job_id).annotate(
            slot=Coalesce(F("slots_to"), F("scheduled_for"))
        )
        latest = slots.filter(slot__lte=now + FAR_AHEAD).aggregate(latest=Max("slot"))["latest"]
        clock.last_slot = latest or now
        clock.save(update_fields=["last_slot"])
        transaction.on_commit(plans_changed, robust=True)
    return Mended(job_id=job_id, before=before, after=clock.last_slot)
