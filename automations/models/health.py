"""How many runs of a job failed in a row, what preflight found, and what its owner was told of both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Now

from automations.models.job import CronJob, known, readable

FAILING_AFTER = 3  # runs in a row that need attention, and the fewest for which a job is paused
SLOWED_AFTER = 5  # failed runs in a row
PAUSED_AFTER = 20
LONGEST_FAILING = timedelta(days=3)  # from the slot of the first failed run to that of the last one
TOLD_AGAIN = timedelta(days=7)  # after its last failure a cause is news
SLOW_INTERVAL = timedelta(hours=1)  # between the slots of a job that is slowed down


class Told(models.TextChoices):
    """The last thing that the owner was told of a row of failed runs. Each is told once.

    RESUMED: a person has resumed a job of whose failures the owner was told, and no run was done since.
    """

    NOTHING = ""
    RESUMED = "resumed"
    REFUSED = "refused"
    SLOWED = "slowed"
    PAUSED = "paused"


class PausedReason(models.TextChoices):
    """Why the server has paused a job."""

    NONE = ""
    FAILING = "failing"


class HealthChanges(models.QuerySet["JobHealth"]):
    """The changes. The row is locked last: after the clock, the job, the session and the run."""

    def lock(self, job_id: str) -> JobHealth:
        """The job's row, locked; it is made if there is none. A run of the job, or its clock, is locked already."""
        self.bulk_create([self.model(job_id=job_id)], ignore_conflicts=True)
        return self.select_for_update(no_key=True).get(pk=job_id)

    def set_failures(self, job_id: str, failed: Sequence[datetime]) -> int:
        """Any number of failures → these, by their slots. Without failures nothing was told since a resume."""
        told: dict[str, Any] = {}
        if not failed:
            resumed = Case(When(told=Told.RESUMED, then="told"), default=Value(Told.NOTHING))
            told = {"told": resumed, "paused_reason": PausedReason.NONE}
        slots = {"failing_since": min(failed, default=None), "failed_last": max(failed, default=None)}
        return self.filter(pk=job_id).update(failures_in_a_row=len(failed), **slots, **told)

    def set_well(self, job_id: str) -> int:
        """A run was done, and the owner is told so if need be."""
        return self.filter(pk=job_id).update(told=Told.NOTHING)

    def tell(self, job_id: str, what: Told, **changes: Any) -> bool:
        """The owner is told this. False: it was told this already, or something that includes it."""
        later = Told.values[Told.values.index(what) :]
        rows = self.filter(pk=job_id, failures_in_a_row__gt=0).exclude(told__in=later)
        return bool(rows.update(told=what, **changes))

    def restart(self, job_id: str, now: datetime) -> None:
        """A person resumes the job: runs that were due before now do not count any more. An owner who heard of
        failures is told when a run is done.
        """
        heard = self.filter(pk=job_id).exclude(told=Told.NOTHING)
        self.filter(pk=job_id).update(counts_from=now)
        resumed = heard.exists()
        self.set_failures(job_id, ())
        if resumed:
            self.filter(pk=job_id).update(told=Told.RESUMED)

    def slowed(self) -> HealthChanges:
        """Jobs that run at most once an hour."""
        return self.filter(failures_in_a_row__gte=SLOWED_AFTER, paused_reason="")

    def free(self, job_ids: Sequence[str]) -> int:
        """As `restart`, for jobs whose cause is mended."""
        told = Case(When(told=Told.NOTHING, then=Value(Told.NOTHING)), default=Value(Told.RESUMED))
        none = {"failures_in_a_row": 0, "failing_since": None, "failed_last": None}
        return self.slowed().filter(pk__in=job_ids).update(told=told, counts_from=Now(), **none)

    def begin_afresh(self, job_id: str, now: datetime) -> None:
        """A person did what may remove the cause of a job's failures: it begins afresh, as after a resume."""
        if self.filter(pk=job_id, failures_in_a_row__gte=FAILING_AFTER, paused_reason="").exists():
            self.restart(job_id, now)


class JobHealth(models.Model):
    """A job that has failed lately. A job without a row, or with no failures in its row, is well; of one that was
    resumed its owner is told so when a run is done.

    `failures_in_a_row` is counted from the runs whenever one ends badly, so that nothing is counted twice.
    """

    # no constraint: a commit would have to lock the job for it, which a delete of the session locks before the session.
    # Whoever makes a row has locked a run of the job, and a delete removes the runs before the job
    job = models.OneToOneField(
        CronJob, primary_key=True, on_delete=models.CASCADE, related_name="health", db_constraint=False
    )
    failures_in_a_row = models.PositiveIntegerField(default=0, db_default=0)
    failing_since = models.DateTimeField(
        null=True, blank=True, help_text="The slot of the first of these runs."
    )
    failed_last = models.DateTimeField(null=True, blank=True, help_text="The slot of the last of them.")
    told = models.CharField(
        max_length=16, choices=Told, blank=True, default=Told.NOTHING, db_default=Told.NOTHING.value
    )
    paused_reason = models.CharField(
        max_length=16,
        choices=PausedReason,
        blank=True,
        default=PausedReason.NONE,
        db_default=PausedReason.NONE.value,
    )
    counts_from = models.DateTimeField(
        null=True, blank=True, help_text="Runs before this slot do not count: a person has resumed the job."
    )

    objects = HealthChanges.as_manager()

    class Meta:
        verbose_name_plural = "job health"
        constraints = [
            known("jobhealth_told_known", "told", Told),
            known("jobhealth_paused_reason_known", "paused_reason", PausedReason),
            models.CheckConstraint(
                condition=Q(
                    failures_in_a_row=0,
                    failing_since__isnull=True,
                    failed_last__isnull=True,
                    told__in=[Told.NOTHING, Told.RESUMED],
                    paused_reason="",
                )
                | Q(failures_in_a_row__gt=0, failing_since__isnull=False, failed_last__isnull=False),
                name="jobhealth_failing_since_its_failures",
            ),
            readable("jobhealth_times_readable", "failing_since", "failed_last", "counts_from"),
        ]

    def __str__(self) -> str:
        return f"health of {self.job_id}"

    @property
    def failed_text(self) -> str:
        """How many runs failed, or succeeded without doing their job."""
        return f"{self.failures_in_a_row} runs in a row failed or brought no whole answer"

    @property
    def is_slowed(self) -> bool:
        """Whether the job runs at most once an hour."""
        return self.failures_in_a_row >= SLOWED_AFTER

    @property
    def backoff_until(self) -> datetime | None:
        """No slot before this time is run; None: the job is not slowed down."""
        return self.failed_last + SLOW_INTERVAL if self.is_slowed and self.failed_last else None

    @property
    def is_hopeless(self) -> bool:
        """Whether the job is to be paused: 20 failed runs in a row, or at least 3 over three days."""
        if self.failures_in_a_row >= PAUSED_AFTER:
            return True
        if self.failures_in_a_row < FAILING_AFTER or not (self.failing_since and self.failed_last):
            return False
        return self.failed_last - self.failing_since >= LONGEST_FAILING


class ToldCauses(models.QuerySet["ToldCause"]):
    """The changes. A row is written last, after the health of a job."""

    def tell(self, owner_id: int, cause: str) -> bool:
        """The owner is told of this cause. False: they were, and it was there lately."""
        mine = self.filter(owner_id=owner_id)
        mine.filter(seen_at__lt=Now() - TOLD_AGAIN).delete()
        _row, is_new = mine.get_or_create(owner_id=owner_id, cause=cause)
        mine.filter(cause=cause).update(seen_at=Now())
        return is_new

    def mended(self, owner_id: int, causes: Sequence[str]) -> bool:
        """These causes are gone. False: the owner heard of none."""
        return bool(self.filter(owner_id=owner_id, cause__in=causes).delete()[0])


class ToldCause(models.Model):
    """A refusal of a connection or a model that the owner of all agents that use it was told of."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    cause = models.CharField(max_length=250)
    seen_at = models.DateTimeField(db_default=Now())

    objects = ToldCauses.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "cause"], name="toldcause_once")]

    def __str__(self) -> str:
        return self.cause


WELL = JobHealth()  # of a job without a row


def health_of(job: Any) -> JobHealth:
    """The health of a job that was read with `select_related("health")`."""
    found: JobHealth = getattr(job, "health", WELL)
    return found


class JobPreflight(models.Model):
    """The problems of an automation that preflight found: they will stop its next run (rule 11.5).

    A problem is told when it is added here, so it is told once.
    """

    job = models.OneToOneField(CronJob, primary_key=True, on_delete=models.CASCADE, related_name="preflight")
    requested = models.BooleanField(default=False, help_text="The automation was saved: check it soon.")
    checked_at = models.DateTimeField(null=True, blank=True)
    problems = models.JSONField(
        default=list, db_default=[], help_text="What was found, each `{code, text, since}`."
    )

    class Meta:
        constraints = [readable("jobpreflight_times_readable", "checked_at")]
        indexes = [
            models.Index(fields=["job"], condition=Q(requested=True), name="preflight_requested"),
            models.Index(fields=["checked_at"], condition=~Q(problems=[]), name="preflight_problems"),
        ]

    def __str__(self) -> str:
        return f"preflight of {self.job_id}"
