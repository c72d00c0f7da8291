"""Which caps keep the coming slots of automations from running: from what is stored, for lists of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from django.db.models import OuterRef, Subquery

from agent_core.spending import Budget
from automations.models import CronJob, RunRecord
from automations.runs.describe import cap_in_words, when
from automations.selectors import problems_of
from sessions_app.agents.budgets import budgets_of, subject_of
from sessions_app.connections.usable import ModelWarnings, Wanted, models_of, settings_of, warnings_of
from sessions_app.models import Spending, UserLimits
from sessions_app.spending.caps import GO_ON, WORDS, anew, cap_rows, fits_none, is_of, spent_of, used_up

_TOO_LITTLE = "What is left of a cap is too little for a call."


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A cap lets no slot before `until` run; None: none until caps or settings change. `text`: which cap."""

    until: datetime | None
    text: str

    def in_words(self, zone: tzinfo) -> str:
        """Until when the automation is stopped, and by which cap, in sentences."""
        begin = "Stopped until" if self.until is None else f"Stopped until {when(self.until, zone)}, or until"
        return f"{begin} caps or settings change. {self.text}"


def model_warnings(jobs: Sequence[Any]) -> list[ModelWarnings]:
    """What is known of the models of these rows of `selectors.with_runs` and of their caps, in their order."""
    return warnings_of(
        [
            Wanted(
                job.agent.owner_id,
                models_of(job.agent, job.model, job.fallback_model),
                [job.agent.limits, job.limits],
                settings_of(job.agent, job.max_output_tokens),
            )
            for job in jobs
        ]
    )


def stops_of(jobs: Sequence[Any], known: Sequence[ModelWarnings] | None = None) -> dict[str, Stop]:
    """By their ids, what stops these rows of `selectors.with_runs` at their next slot. `known`: by `model_warnings`."""
    known = model_warnings(jobs) if known is None else known
    of_users = UserLimits.objects.in_bulk({job.agent.owner_id for job in jobs})
    charged_to = [
        charged(job, of_users.get(job.agent.owner_id), each) for job, each in zip(jobs, known, strict=True)
    ]
    spent = spent_of(budget for budgets in charged_to for budget in budgets)
    last = last_runs([job.pk for job, budgets in zip(jobs, charged_to, strict=True) if budgets])
    found = {}
    for job, budgets, each in zip(jobs, charged_to, known, strict=True):
        if stop := _stop(job, budgets, each, spent, last.get(job.pk)):
            found[job.pk] = stop
    return found


def charged(job: Any, of_user: UserLimits | None, known: ModelWarnings) -> list[Budget]:
    """The budgets with caps to which the first model's calls are charged."""
    of_job = budgets_of(
        job.agent, of_user.limits if of_user else {}, {job.pk: job.name}, {job.pk: job.limits}
    )
    all_of_them = (*of_job, *([known.budget] if known.budget else ()))
    return [each for each in all_of_them if each.limits]


def last_runs(job_ids: Sequence[str]) -> dict[str, RunRecord]:
    """The last run of each job that has ended."""
    ended = RunRecord.objects.filter(job=OuterRef("pk"), finished_at__isnull=False, moved_to=None).order_by(
        "-scheduled_for"
    )
    last = CronJob.objects.filter(pk__in=job_ids).annotate(last=Subquery(ended.values("pk")[:1]))
    columns = ("job_id", "state", "reason", "error", "cap", "finished_at")
    return {
        str(run.job_id): run for run in RunRecord.objects.filter(pk__in=last.values("last")).only(*columns)
    }


def known_problems(job: Any, stop: Stop | None) -> list[dict[str, str]]:
    """What preflight found that will stop the next run, without a cap of which `stop` says more."""
    return [each for each in problems_of(job) if not (stop and each["code"] == "budget")]


def _stop(
    job: Any,
    budgets: Sequence[Budget],
    known: ModelWarnings,
    spent: Mapping[str, Spending],
    last: RunRecord | None,
) -> Stop | None:
    firing, refused = job.clock.next_run_at, cap_in_words(last)
    if firing is None or not job.enabled or job.task_type:  # a task of a type is done without a model
        return None
    if last is not None and refused and fits_none(last.cap) and _holds(job, budgets, last):
        return Stop(until=None, text=refused)
    if known.fits_none:
        return Stop(until=None, text=known.fits_none)
    until = job.stopped_until
    if until is not None and until > firing:
        return Stop(until=until, text=refused or _TOO_LITTLE)
    rows = [
        row for row in used_up(budgets, firing, is_priced=known.is_priced, spent=spent) if row["is_spent"]
    ]
    if not rows:
        return None
    longest = max(rows, key=lambda row: row["ends_at"])
    text = (
        f"The cap of {subject_of(longest)} for {WORDS[longest['period']]} is used up. {anew(longest)} {GO_ON}"
    )
    return Stop(until=datetime.fromisoformat(longest["ends_at"]), text=text)


def _holds(job: Any, budgets: Sequence[Budget], last: RunRecord) -> bool:
    """Whether the cap that stopped the last run stands, and nothing was changed that a call is made of."""
    assert last.cap is not None and last.finished_at is not None  # noqa: S101, PT018 - a run that a cap stopped
    ends_at = last.cap["ends_at"]
    if ends_at and datetime.fromisoformat(ends_at) > datetime.now(UTC):
        return job.stopped_until is not None  # else something was changed since
    changed = max(job.updated_at, job.agent.updated_at)
    rows = cap_rows(budgets, last.finished_at)
    return last.finished_at > changed and any(is_of(last.cap, row) for row in rows)
