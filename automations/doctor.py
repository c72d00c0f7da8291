"""Checks of jobs and beats for operators, each with its cure (rules 4.6, 10.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, QuerySet
from django.db.models.functions import Coalesce, Now

from automations.jobs.clock import counted_to, database_now, notify_beats
from automations.models import CronJob, JobClock, RunRecord, ScheduleKind
from automations.retention.zones import used_zones
from automations.runs import figures
from automations.schedules.plan import FAR_AHEAD, plan_of, schedule_of
from automations.schedules.schedule import ScheduleError
from automations.schedules.zone_files import fingerprint
from automations.selectors import beats_seen, seconds_overdue
from sessions_app.channels.base import why_unserved
from sessions_app.operations.doctor import NAMED, Finding, some_named

LATE = 60.0  # seconds a job or message may be overdue before beat counts as missing
MOST_LOOKED_AT = 20_000  # schedules and jobs read one by one


@dataclass(frozen=True, kw_only=True)
class Mended:
    """A clock whose `last_slot` was corrected."""

    job_id: str
    before: datetime
    after: datetime

    def __str__(self) -> str:
        """One line."""
        return f"last_slot of {self.job_id}: {self.before:%Y-%m-%d %H:%M:%S}Z became {self.after:%Y-%m-%d %H:%M:%S}Z"


def beat() -> Finding:
    """A beat is running and nothing is overdue."""
    late = seconds_overdue()
    start = "start `python -m config.beat`"
    if late > LATE:
        return Finding(ok=False, detail=f"a job or message is {late:.0f} s overdue", cure=start)
    seen = beats_seen()
    if not seen:
        return Finding(ok=True, detail="nothing is overdue, but no beat is seen", cure=start, seen=False)
    return Finding(ok=True, detail=f"{seen} listening; nothing is overdue")


def jobs_set_aside() -> Finding:
    """No job was disabled because of a fault."""
    return _finding_of_jobs(
        figures.set_aside_jobs(),
        problem="disabled after an error, see their fault in the admin",
        cure="give each a valid schedule, enable it again, or delete it",
    )


def time_zones() -> Finding:
    """The time-zone data of all jobs are installed."""
    missing = [zone for zone in used_zones() if fingerprint(zone) is None]
    return _finding(
        missing,
        len(missing),
        problem="no data for these time zones",
        cure="install current tzdata on every machine (PYTHONTZPATH), or give their jobs another zone",
    )


def schedules() -> Finding:
    """Every enabled cron job has a valid schedule that fires again."""
    jobs = CronJob.objects.filter(enabled=True, schedule_kind=ScheduleKind.CRON)
    used = jobs.values_list("expr", "timezone").order_by().distinct()[:MOST_LOOKED_AT]
    bad = [(expr, zone) for expr, zone in used if not _fires(expr, zone)]
    ids = [
        job_id
        for expr, zone in bad[:NAMED]
        for job_id in jobs.filter(expr=expr, timezone=zone).values_list("pk", flat=True)[:NAMED]
    ]
    return _finding(
        ids,
        len(ids),
        problem=f"{len(bad)} can never fire",
        cure="give these jobs another schedule, or delete them",
    )


def _fires(expr: str, zone: str) -> bool:
    """Whether the schedule fires again; an unknown zone is reported by `time_zones`."""
    try:
        job = CronJob(schedule_kind=ScheduleKind.CRON, expr=expr, timezone=zone)
        return schedule_of(job).next(database_now()) is not None
    except ScheduleError as error:
        return error.code == "unknown_timezone"


def plans() -> Finding:
    """Every enabled job with slots left has its next slot in its clock; a system job always has slots left."""
    lost = [clock.pk for clock in _idle() if clock.job.system_event or _has_slots(clock)]
    return _finding(
        lost, len(lost), problem="enabled without a next slot", cure="disable and enable each of them again"
    )


def _idle() -> Iterator[JobClock]:
    rows = JobClock.objects.filter(next_run_at__isnull=True, job__enabled=True).select_related("job")
    return rows.order_by("-pk")[:MOST_LOOKED_AT].iterator()


def _has_slots(clock: JobClock) -> bool:
    """Whether the job has slots after the last recorded one."""
    last = counted_to(clock, database_now()) or clock.planned_from
    try:
        after = max(last, clock.planned_from)
        return plan_of(clock.job, clock.runs_started).next_firing(after) is not None
    except ScheduleError:
        return False  # reported by `schedules` and `time_zones`


def legacy_channels() -> Finding:
    """This server can send to the channel and address of every legacy job that delivers its answers."""
    rows = CronJob.objects.filter(enabled=True, deliver=True, session=None).exclude(channel="").exclude(to="")
    looked_at = rows.order_by("-created_at").only("channel", "to")[:MOST_LOOKED_AT]
    reasons = ((job.pk, why_unserved({"channel": job.channel, "chat_id": job.to})) for job in looked_at)
    lost = [f"{job_id}: {reason}" for job_id, reason in reasons if reason]
    return _finding(
        lost,
        len(lost),
        problem="answers of legacy jobs cannot be delivered",
        cure="configure the channel (docs/channels.md), or disable these jobs in the admin",
    )


def last_slots() -> Finding:
    """No clock's last slot is more than a day in the future."""
    rows = _far_ahead().order_by("pk")
    return _finding(
        rows.values_list("pk", flat=True)[:NAMED],
        rows.count(),
        problem="last_slot is more than a day ahead",
        cure=f"{settings.RONDO_COMMAND} doctor --mend",
    )


def _finding_of_jobs(jobs: QuerySet[CronJob], *, problem: str, cure: str) -> Finding:
    return _finding(
        jobs.order_by("pk").values_list("pk", flat=True)[:NAMED], jobs.count(), problem=problem, cure=cure
    )


def _finding(named: Iterable[str], count: int, *, problem: str, cure: str) -> Finding:
    """Well when there are none; otherwise the problem with the first of them by name."""
    if not count:
        return Finding(ok=True, detail="no problems found")
    return Finding(ok=False, detail=f"{problem}: {some_named(named, count)}", cure=cure)


def _far_ahead() -> QuerySet[JobClock]:
    return JobClock.objects.filter(last_slot__gt=Now() + FAR_AHEAD)


def mend_last_slots(tell: Callable[[Mended], None]) -> None:
    """Set the `last_slot` of each such clock to the latest slot of its runs, or to now, one transaction for each."""
    for job_id in _far_ahead().order_by("pk").values_list("pk", flat=True):
        mended = _mend(job_id)
        if mended is not None:
            tell(mended)


def _mend(job_id: str) -> Mended | None:
    with transaction.atomic():
        # the clock first, as everywhere; beat or an edit may have changed it before
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
        transaction.on_commit(notify_beats, robust=True)
    return Mended(job_id=job_id, before=before, after=clock.last_slot)
