"""Which caps keep the coming slots of automations from running: from what is stored, for lists of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from django.db.models import OuterRef, Subquery

from agent_core.exceptions import CapReached
from agent_core.spending import Amount, Budget
from automations.models import CronJob, RunRecord
from automations.runs.describe import cap_in_words, when
from automations.selectors import problems_of
from sessions_app.agents.budgets import budgets_of
from sessions_app.connections.usable import ModelWarnings, Wanted, models_of, settings_of, warnings_of
from sessions_app.models import Spending, UserLimits
from sessions_app.spending.caps import (
    cap_rows,
    cap_text,
    fits_none,
    is_of,
    needed,
    spent_of,
    subject_of,
    used_up,
)

_TOO_LITTLE = "What is left of a cap is too little for a call."


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """A cap lets no slot before `until` run; None: none until caps or settings change. `text`: which cap, whose it is
    and what to do. `scope`: of the cap. `cap`: whose cap, for headings. `cause`: what others have in common that it
    stops. `needs`: the tokens that a call may need.
    """

    until: datetime | None
    text: str
    scope: str = ""
    cap: str = ""
    cause: str = ""
    needs: int = 0

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
                budgets_of(job.agent, {}, {job.pk: job.name}, {job.pk: job.limits}),
                settings_of(job.agent, job.max_output_tokens),
            )
            for job in jobs
        ]
    )


def charged_of(jobs: Sequence[Any], known: Sequence[ModelWarnings]) -> list[list[Budget]]:
    """What `charged` returns for each of these jobs. One query."""
    of_users = UserLimits.objects.in_bulk({job.agent.owner_id for job in jobs})
    return [
        charged(job, of_users.get(job.agent.owner_id), each) for job, each in zip(jobs, known, strict=True)
    ]


def stops_of(
    jobs: Sequence[Any],
    known: Sequence[ModelWarnings] | None = None,
    charged_to: Sequence[Sequence[Budget]] | None = None,
) -> dict[str, Stop]:
    """By their ids, what stops these rows of `selectors.with_runs` at their next slot. `known`: by `model_warnings`.
    `charged_to`: by `charged_of`.
    """
    known = model_warnings(jobs) if known is None else known
    charged_to = charged_of(jobs, known) if charged_to is None else charged_to
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
    firing = job.clock.next_run_at
    if firing is None or not job.enabled or job.task_type:  # a task of a type is done without a model
        return None
    refused = _refused_by(job, budgets, last)
    needs = needed(last.cap) if refused and last and last.cap else None
    if refused and fits_none(last.cap if last else None):
        return _stopped(refused, needs, spent, known, is_for_good=True)
    if known.fits_none:
        return _stopped(known.fits_none, None, spent, known, is_for_good=True)
    until = job.stopped_until
    found = used_up(budgets, firing, is_priced=known.is_priced, refused_until=until, spent=spent)
    if found:
        longest = max(found, key=lambda row: row["ends_at"])
        is_same = refused is not None and refused["key"] == longest["key"]
        return _stopped(longest, needs if is_same else None, spent, known)
    if until is None or until <= firing:
        return None
    return Stop(until=until, text=cap_in_words(last) or _TOO_LITTLE)  # of the fallback model's connection


def _stopped(
    row: Mapping[str, Any],
    needs: Amount | None,
    spent: Mapping[str, Spending],
    known: ModelWarnings,
    *,
    is_for_good: bool = False,
) -> Stop:
    """What this row of `cap_rows` stops. Without `needs` no call is known that it refused: it has room for a reply."""
    used = spent[row["key"]]
    so_far = Amount(tokens=used.spent_tokens, micro_usd=used.spent_micro_usd)
    if not needs and is_for_good:  # in the words of the warning that is shown when it is saved
        text = cap_text(row, known.longest, reply_of=known.model)
    else:
        text = cap_text(row, needs or known.longest, so_far, reply_of="" if needs else known.model)
    return Stop(
        until=None if is_for_good else datetime.fromisoformat(row["ends_at"]),
        text=text,
        scope=row["scope"],
        cap=f"The cap of {subject_of(row)}",
        cause=f"{row['scope']} {row['subject']} {row['period']}",
        needs=(needs or known.longest).tokens,
    )


def _refused_by(job: Any, budgets: Sequence[Budget], last: RunRecord | None) -> Mapping[str, Any] | None:
    """The cap that stopped the last run, if it stands and nothing was changed that a call is made of; else None."""
    if last is None or last.cap is None or last.finished_at is None:
        return None
    ends_at = last.cap["ends_at"]
    is_now = ends_at and datetime.fromisoformat(ends_at) > datetime.now(UTC)
    changed = max(job.updated_at, job.agent.updated_at)
    if job.stopped_until is None if is_now else last.finished_at <= changed:
        return None  # something was changed since
    return standing(last.cap, budgets)


def is_lifted(run: Any, budgets: Sequence[Budget]) -> bool:
    """Whether a cap failed this run that does not stand any more, or has begun anew."""
    if run.reason != CapReached.code or not run.cap:
        return False
    ends_at = run.cap["ends_at"]
    is_over = bool(ends_at) and datetime.fromisoformat(ends_at) <= datetime.now(UTC)
    return is_over or standing(run.cap, budgets) is None


def standing(cap: Mapping[str, Any], budgets: Sequence[Budget]) -> Mapping[str, Any] | None:
    """The row of `cap_rows` of a cap that refused a call, with the same amounts; None: it does not stand any more."""
    return next((row for row in cap_rows(budgets, datetime.now(UTC)) if is_of(cap, row)), None)
