"""RunRecord: one slot of one job, or the sending of one scheduled message, and what came of it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from automations.models.job import CronJob
from automations.models.scheduled_message import ScheduledMessage
from automations.models.times import readable
from sessions_app.models import Session, Turn


class RunState(models.TextChoices):
    """Where a run stands; RUN_ARROWS lists every way on."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


RUN_ARROWS: dict[RunState, tuple[RunState, ...]] = {
    RunState.QUEUED: (RunState.RUNNING, RunState.CANCELLED),
    # back to queued: another attempt of the same run
    RunState.RUNNING: (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.QUEUED),
    **dict.fromkeys((RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED), ()),
}


class RunRecord(models.Model):
    """One slot of one job and its real outcome. A skipped gap of slots is one row: from, to, count.

    The sending of a scheduled message is a run, too, without a job; its slot is `send_at`.
    """

    run_id = models.CharField(primary_key=True, max_length=64)
    job = models.ForeignKey(
        CronJob, null=True, blank=True, on_delete=models.CASCADE, related_name="runs", db_index=False
    )
    scheduled_message = models.ForeignKey(
        ScheduledMessage,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="runs",
        db_index=False,
    )
    session = models.ForeignKey(Session, null=True, on_delete=models.SET_NULL, related_name="+")
    session_key = models.CharField(max_length=200, blank=True)
    scheduled_for = models.DateTimeField()
    state = models.CharField(max_length=16, choices=RunState, default=RunState.QUEUED)
    reason = models.CharField(max_length=64, blank=True)
    slots_from = models.DateTimeField(null=True, blank=True)
    slots_to = models.DateTimeField(null=True, blank=True)
    slots_count = models.PositiveIntegerField(
        null=True, blank=True, help_text="Null: more than were counted."
    )
    attempt = models.PositiveSmallIntegerField(default=1)
    not_before = models.DateTimeField(null=True, blank=True)
    turn = models.ForeignKey(Turn, null=True, blank=True, on_delete=models.SET_NULL, related_name="runs")
    snapshot = models.JSONField(default=dict, help_text="What was run: name, message, schedule, revision.")
    prompt_ref = models.JSONField(null=True, blank=True)
    prompt_variables = models.JSONField(null=True, blank=True)
    rendered_prompt = models.TextField(blank=True)
    error = models.CharField(max_length=300, blank=True)
    error_detail = models.TextField(blank=True)
    response_summary = models.CharField(max_length=300, blank=True)
    lag_ms = models.BigIntegerField(null=True, blank=True)
    duration_ms = models.BigIntegerField(null=True, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "run"
        constraints = [
            models.UniqueConstraint(fields=["job", "scheduled_for"], name="run_once_per_slot"),
            models.UniqueConstraint(  # partial: the run of a job's slot does not write it
                fields=["scheduled_message"],
                condition=Q(scheduled_message__isnull=False),
                name="run_once_per_message",
            ),
            models.CheckConstraint(
                condition=Q(job__isnull=False, scheduled_message__isnull=True)
                | Q(job__isnull=True, scheduled_message__isnull=False),
                name="run_of_a_job_or_a_message",
            ),
            models.CheckConstraint(condition=Q(state__in=RunState.values), name="run_state_known"),
            models.CheckConstraint(
                condition=~Q(state="skipped") | ~Q(reason=""), name="run_skipped_with_reason"
            ),
            readable(
                "run_times_readable",
                *("scheduled_for", "slots_from", "slots_to", "not_before"),
                *("created_at", "started_at", "finished_at"),
            ),
            models.CheckConstraint(
                condition=Q(not_before__isnull=True) | Q(state="queued"), name="run_retry_waits_queued"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running"], finished_at__isnull=True)
                | Q(state__in=["succeeded", "failed", "cancelled", "skipped"], finished_at__isnull=False),
                name="run_finished_iff_ended",
            ),
        ]
        indexes = [
            models.Index(
                fields=["job"], condition=Q(state__in=["queued", "running"]), name="run_open_of_job"
            ),
            models.Index(fields=["not_before"], condition=Q(not_before__isnull=False), name="run_retry_due"),
        ]

    def __str__(self) -> str:
        return self.run_id

    @property
    def of_job(self) -> CronJob:
        """The job whose slot it is. TypeError for a scheduled message's: it goes none of the ways of jobs."""
        if self.job is None:
            raise TypeError(f"{self.run_id} is not a job's")
        return self.job
