"""JobClock: when a job is next due. Beat writes it, so it is a narrow row of its own."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from automations.models.job import CronJob
from automations.models.times import readable


class JobClock(models.Model):
    """A narrow row that beat writes: when the job is next due, and the last slot that was run or skipped.

    `next_run_at` is the slot plus the job's jitter; null while the job is paused, done or disabled. `last_slot` only
    grows and `runs_started` counts the slots that became runs, so that deleting old runs repeats no slot. A first run
    that was given to a cron schedule is also in `planned_from`.
    """

    job = models.OneToOneField(CronJob, primary_key=True, on_delete=models.CASCADE, related_name="clock")
    inline = models.BooleanField(default=False, help_text="Started by the heartbeat instead of beat.")
    next_run_at = models.DateTimeField(null=True, blank=True)
    last_slot = models.DateTimeField(null=True, blank=True)
    planned_from = models.DateTimeField(
        db_default=Now(),
        help_text="Slots count from here: when the job was created, resumed or given its schedule.",
    )
    runs_started = models.PositiveBigIntegerField(default=0)
    skipped_to = models.DateTimeField(
        null=True, blank=True, help_text="The last slot that a person has skipped; it may be to come."
    )
    paused_until = models.DateTimeField(
        null=True, blank=True, help_text="No slot before this time runs. It may have passed."
    )

    class Meta:
        constraints = [
            readable(
                "jobclock_times_readable",
                *("next_run_at", "last_slot", "planned_from", "skipped_to", "paused_until"),
            ),
            models.CheckConstraint(
                condition=Q(next_run_at__isnull=True)
                | Q(skipped_to__isnull=True)
                | Q(next_run_at__gt=F("skipped_to")),
                name="jobclock_next_is_not_skipped",
            ),
            models.CheckConstraint(
                condition=Q(next_run_at__isnull=True)
                | Q(paused_until__isnull=True)
                | Q(next_run_at__gte=F("paused_until")),
                name="jobclock_next_is_after_the_pause",
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_run_at"],
                condition=Q(next_run_at__isnull=False, inline=False),
                name="jobclock_due",
            ),
            models.Index(
                fields=["next_run_at"],
                condition=Q(next_run_at__isnull=False, inline=True),
                name="jobclock_inline_due",
            ),
        ]

    def __str__(self) -> str:
        return f"clock of {self.job_id}"
