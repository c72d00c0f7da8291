"""Checks of jobs and beats for operators, each with its cure (rules 4.6, 10.2)."""

from __future__ import annotations

from collections.abc import Iterator

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
from config.operations.findings import NAMED, Finding, failed, failed_if_any, passed, unknown
from sessions_app.channels.base import why_unserved

LATE = 60.0  # seconds a job or message may be overdue before beat counts as missing
MOST_LOOKED_AT = 20_000  # schedules and jobs read one by one


def beat() -> Finding:
    """A beat is running and nothing is overdue."""
    late = seconds_overdue()
    start = "start `python -m config.beat`"
    if late > LATE:
        return failed(f"a job or message is {late:.0f} s overdue", start)
    seen = beats_seen()
    if not seen:
        return unknown("nothing is overdue, but no beat is seen", start)
    return passed(f"{seen} listening; nothing is overdue")


def jobs_set_aside() -> Finding:
    """No job was disabled because of a fault."""
    jobs = figures.set_aside_jobs()
    return failed_if_any(
        "disabled after an error, see their fault in the admin",
        jobs.order_by("pk").values_list("pk", flat=True)[:NAMED],
        jobs.count(),
        "give each a valid schedule, enable it again, or delete it",
    )


def time_zones() -> Finding:
    """The time-zone data of all jobs are installed."""
    missing = [zone for zone in used_zones() if fingerprint(zone) is None]
    cure = "install current tzdata on every machine (PYTHONTZPATH), or give their jobs another zone"
    return failed_if_any("no data for these time zones", missing, len(missing), cure)


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
    cure = "give these jobs another schedule, or delete them"
    return failed_if_any(f"{len(bad)} can never fire", ids, len(ids), cure)


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
    return failed_if_any(
        "enabled without a next slot", lost, len(lost), "disable and enable each of them again"
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
    cure = "configure the channel (docs/channels.md), or disable these jobs in the admin"
    return failed_if_any("answers of legacy jobs cannot be delivered", lost, len(lost), cure)


def last_slots() -> Finding:
    """No clock's last slot is more than a day in the future."""
    rows = _far_ahead().order_by("pk")
    ids, cure = rows.values_list("pk", flat=True)[:NAMED], f"{settings.RONDO_COMMAND} doctor --mend"
    return failed_if_any("last_slot is more than a day ahead", ids, rows.count(), cure)


def _far_ahead() -> QuerySet[JobClock]:
    return JobClock.objects.filter(last_slot__gt=Now() + FAR_AHEAD)


def mend_last_slots() -> Iterator[str]:
    """Set the `last_slot` of each such clock to the latest slot of its runs, or to now. Yields a line for each."""
    for job_id in _far_ahead().order_by("pk").values_list("pk", flat=True):
        if line := _mend(job_id):
            yield line


def _mend(job_id: str) -> str:
    with transaction.atomic():
        # the clock first, as everywhere; beat or an edit may have changed it before
        clock = _far_ahead().select_for_update(no_key=True, of=("self",)).filter(pk=job_id).first()
        if clock is None or clock.last_slot is None:
            return ""
        now, before = database_now(), clock.last_slot
        slots = RunRecord.objects.filter(job_id=job_id).annotate(
            slot=Coalesce(F("slots_to"), F("scheduled_for"))
        )
        latest = slots.filter(slot__lte=now + FAR_AHEAD).aggregate(latest=Max("slot"))["latest"]
        clock.last_slot = latest or now
        clock.save(update_fields=["last_slot"])
        transaction.on_commit(notify_beats, robust=True)
    return f"last_slot of {job_id}: {before:%Y-%m-%d %H:%M:%S}Z became {clock.last_slot:%Y-%m-%d %H:%M:%S}Z"
