"""Preflight: find what will stop an automation before its slot, without a model call (rule 11.5).

A chore of maintenance. It checks automations that were saved, those with a slot in the coming hour, and those with a
problem, each at most once an hour. A problem is told once, in the transaction that stores it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from agent_core import tools
from agent_core.connections import connection_of
from agent_core.text.formats import utc_text
from automations.gates.registry import gate_of
from automations.jobs.explain import undeliverable
from automations.jobs.stops import charged, last_runs, model_warnings
from automations.models import CronJob, ExecutionMode, JobPreflight, ToldCause
from automations.models.job import ON_WALL_TIME
from automations.runs.describe import when
from automations.runs.report import NAMESPACE, report_job
from automations.runs.told import cause_of, causes_of, tell_once
from automations.schedules.zone_files import fingerprint, unknown_zone, zone_or_utc
from automations.selectors import MODEL_CODES
from sessions_app import flags
from sessions_app.connections.listing import ModelLists
from sessions_app.connections.usable import (
    begin_of_uncallable,
    models_of,
    uncallable,
    usable_connections,
)
from sessions_app.models import UserLimits
from sessions_app.spending.accounts import stopped_until
from sessions_app.spending.caps import cap_text, is_of, needed, used_up

log = structlog.get_logger(__name__)

AHEAD = timedelta(hours=1)
AGAIN = timedelta(minutes=50)  # after a check, until the next one
BATCH = 100  # automations of one round
SECONDS = 60.0  # for a round; the rest is left to the next one


class Problem(NamedTuple):
    """`code`: what it is about, one of docs/errors.md. `text`: for the owner. `is_old`: it was found before, and cannot
    be looked at now. `cause`: what it has in common with those of others who use the connection.
    """

    code: str
    text: str
    is_old: bool = False
    cause: str = ""


Check = Callable[[CronJob, ModelLists], Iterable[Problem]]  # the lists are shared by all checks of a round


def _models(job: CronJob, lists: ModelLists) -> Iterable[Problem]:
    owner_id, models = job.agent.owner_id, models_of(job.agent, job.model, job.fallback_model)
    usables = usable_connections(owner_id, filter(None, models))
    connection.close()  # back to the pool: the providers may be slow
    for code, model in zip(MODEL_CODES, models, strict=True):
        if not model:
            continue
        why = lists.trouble(owner_id, model, usables)
        if why:
            text = uncallable(model, why)
            yield Problem(code, text, cause=cause_of(model, code, text))
        elif why is None:
            through, _ = connection_of(model, usables)
            yield from _found_before(job, code, model, through.well_since if through else None)


def _found_before(job: CronJob, code: str, model: str, well_since: datetime | None) -> Iterable[Problem]:
    """A stored problem of which the provider says nothing now. It is neither gone nor told again after an outage, but
    gone if its connection works, or was changed, since then.
    """
    begin = begin_of_uncallable(model)
    for problems in JobPreflight.objects.filter(pk=job.pk).values_list("problems", flat=True):
        yield from (
            Problem(code, each["text"], is_old=True, cause=each.get("cause", ""))
            for each in problems
            if each["code"] == code
            and each["text"].startswith(begin)
            and not (well_since and well_since > datetime.fromisoformat(each["since"]))
        )


def _means(job: CronJob, _lists: ModelLists) -> Iterable[Problem]:
    """Its channel, zone, tools and gate. A schedule on wall time without its zone is set aside by `ZoneWalk`."""
    for text in undeliverable(job.session):
        yield Problem("bad_channel", text)
    if job.schedule_kind not in ON_WALL_TIME and fingerprint(job.timezone) is None:
        yield Problem("unknown_timezone", str(unknown_zone(job.timezone)))
    known = {tool.name for tool in tools.all()} | set(job.agent.mcp_servers)
    missing = [each for each in job.allow_tools or () if each.partition(tools.SEPARATOR)[0] not in known]
    if missing:
        yield Problem("bad_allow_tools", f"Its tools do not exist any more: {', '.join(missing)}.")
    if job.gate and gate_of(job.gate) is None:
        yield Problem("bad_gate", f"This server has no gate of the kind {job.gate['kind']!r}.")


def _budget(job: CronJob, _lists: ModelLists) -> Iterable[Problem]:
    """A cap that is used up until after the next slot. A text without what is left, so that it is told once."""
    agent, firing = job.agent, job.clock.next_run_at
    if firing is None or job.task_type:
        return
    [known], last = model_warnings([job]), last_runs([job.pk]).get(job.pk)
    charged_to = charged(job, UserLimits.objects.filter(pk=agent.owner_id).first(), known)
    until = stopped_until(agent.pk, job.pk)
    for each in used_up(charged_to, firing, is_priced=known.is_priced, refused_until=until):
        refused = last.cap if last and last.cap and is_of(last.cap, each) else None
        yield Problem("budget", cap_text(each, needed(refused) if refused else None))


# Further checks join here. None may cost money; a slow one gives the database connection back.
CHECKS: list[Check] = [_models, _means, _budget]


def run_preflight(stop: Callable[[], bool]) -> bool:
    """Check the automations that are to be checked now. Returns whether there may be more."""
    if not flags.PREFLIGHT.value:
        return False
    until, lists, ids = time.monotonic() + SECONDS, ModelLists(), _to_check()
    for job_id in ids:
        if stop() or time.monotonic() > until:
            break
        try:
            if job := _claim(job_id):
                _store(job, [found for check in CHECKS for found in check(job, lists)])
        except (OperationalError, InterfaceError):
            raise
        except Exception:  # a bug in one check must not end the others
            log.exception("preflight_failed", job=job_id)
        finally:
            connection.close()
    return len(ids) == BATCH and not stop()


_ACTIVE = Q(agent__owner__is_active=True)  # nothing runs for others, so nothing is asked for them
_AGAIN = Q(preflight=None) | Q(preflight__checked_at=None) | Q(preflight__checked_at__lt=Now() - AGAIN)


def _to_check() -> list[str]:
    """The next automations to check: those that were saved, then by their next slot."""
    of_people = Q(session__isnull=False) | ~Q(execution_mode=ExecutionMode.SESSION)  # also routines
    jobs = CronJob.objects.filter(_ACTIVE, of_people, enabled=True, clock__next_run_at__isnull=False)
    coming = Q(clock__next_run_at__range=(Now(), Now() + AHEAD)) & _AGAIN
    troubled = ~Q(preflight__problems=[]) & Q(preflight__checked_at__lt=Now() - AGAIN)
    found: dict[str, None] = {}
    for which in (Q(preflight__requested=True), coming, troubled):
        rows = jobs.filter(which).order_by("clock__next_run_at", "pk").values_list("pk", flat=True)
        found |= dict.fromkeys(rows[:BATCH])
    return list(found)[:BATCH]


def _claim(job_id: str) -> CronJob | None:
    """Mark an automation as checked now, and return it; None: another process has it, or it is being changed."""
    with transaction.atomic():
        job = _locked(job_id, skip_locked=True)
        if job is None:
            return None
        JobPreflight.objects.bulk_create([JobPreflight(job=job)], ignore_conflicts=True)
        due = Q(requested=True) | Q(checked_at=None) | Q(checked_at__lt=Now() - AGAIN)
        marked = JobPreflight.objects.filter(due, job=job).update(requested=False, checked_at=Now())
    return job if marked else None


def _locked(job_id: str, *, skip_locked: bool = False) -> CronJob | None:
    """An enabled automation of an active owner, with agent, session and clock. The job is locked: it comes before its
    session.
    """
    rows = CronJob.objects.select_for_update(no_key=True, of=("self",), skip_locked=skip_locked)
    return rows.select_related("agent", "session", "clock").filter(_ACTIVE, pk=job_id, enabled=True).first()


def _store(checked: CronJob, found: Sequence[Problem]) -> None:
    """Store the problems, and tell the owner the new ones. A job that was changed meanwhile is left: it is checked
    again.
    """
    with transaction.atomic():
        job = _locked(checked.pk)
        row = JobPreflight.objects.filter(pk=checked.pk).first()
        if job is None or row is None or job.revision != checked.revision:
            return
        since = {(each["code"], each["text"]): each["since"] for each in row.problems}
        now = utc_text(row.checked_at or datetime.now(UTC))  # what is mended since then is looked at again
        gone = {each.get("cause", "") for each in row.problems} - {each.cause for each in found} - {""}
        if ToldCause.objects.mended(job.agent.owner_id, sorted(gone.intersection(causes_of(job)))):
            report_job(
                job,
                "works_again",
                f'"{job.name}" can run again: its model can be called.',
                key=f"failing:{job.pk}",
            )
        row.problems = [each._asdict() | {"since": since.get((each.code, each.text), now)} for each in found]
        row.save(update_fields=["problems"])
        for each in found:
            if (each.code, each.text) not in since:
                log.info("preflight_problem", job=job.pk, code=each.code)
                _tell(job, each)


def _tell(job: CronJob, found: Problem) -> None:
    """Deposit a mail. It replaces an unread one about the same problem of another automation. Of a cause that others
    share the owner is told once.
    """
    stops = tell_once(job, found.cause) if found.cause else ""
    if stops is None:
        return
    text = found.text + (stops or _concerns(job, found.text))
    report_job(
        job, "preflight", text, key=f"preflight:{uuid.uuid5(NAMESPACE, f'{job.agent_id} {found.text}')}"
    )


def _concerns(job: CronJob, problem: str) -> str:
    same = CronJob.objects.filter(agent=job.agent, preflight__problems__contains=[{"text": problem}])
    more = same.exclude(pk=job.pk).count()
    others = f" and {more} more" if more else ""
    text = f' This concerns the automation "{job.name}" ({job.pk}){others}.'
    if firing := job.clock.next_run_at:
        text += f" Its next run: {when(firing, zone_or_utc(job.timezone))} ({job.timezone})."
    return text
