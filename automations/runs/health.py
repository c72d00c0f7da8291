"""How a job's runs go: count what failed in a row, slow the job down, and tell its owner once (rules 11.2, 11.3).

The count is made anew from the runs whenever one of them ends badly, under the lock of the job's health, which comes
last in the lock order. A run that ends well costs no statement more, unless the job was failing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from agent_core.exceptions import CapReached
from agent_core.text.formats import says_something
from automations.models import Attention, CronJob, JobHealth, RunRecord, RunState, ToldCause
from automations.models.health import FAILING_AFTER, PAUSED_AFTER, Told
from automations.models.job import is_of_people
from automations.runs.describe import ENDS_SLOWING, NEEDS_LOOK
from automations.runs.report import report_job
from automations.runs.told import cause_of_run, causes_of, tell_once
from sessions_app.connections.usable import CURES
from sessions_app.deliveries.system_events import send_notice
from sessions_app.models import Delivery, DeliveryState, Message, Priority
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.models.message import ENDED_KEY
from sessions_app.spending.accounts import stopped_until

LOOKED_AT = 2 * PAUSED_AFTER  # runs, among them those that a person cancelled
_PAUSES: list[Callable[[str], None]] = []


def on_hopeless(pause: Callable[[str], None]) -> None:
    """Call `pause` with the id of a job that keeps failing, after the commit that says so."""
    _PAUSES.append(pause)


def count_failure(run: RunRecord) -> bool:
    """Count the failures of a run's job, as the run has ended badly. Returns whether its text is news to its owner.

    Only those of people's jobs are counted: heartbeats have a backoff of their own, and legacy jobs have no owner to
    tell. It is not news if the job failed before, or if the owner is told more than the text says. A job that the
    server has paused stays as it is until a person resumes it.
    """
    job = run.job
    if job is None or not is_of_people(job):
        return True
    before = JobHealth.objects.lock(job.pk)
    if before.paused_reason:
        return False
    after = _recount(before)
    if after.is_hopeless:
        pause_after_commit(job.pk)
    told = _tell_failure(job, run, after)
    return not told and before.failures_in_a_row == 0


def _recount(health: JobHealth) -> JobHealth:
    """Count a job's failures anew, back to the last run that was done. Its row is locked; returns it as it is now.

    Runs that only need attention count from the third of them on. A run whose answer is on its way counts neither as
    done nor as failed.
    """
    since = {"scheduled_for__gte": health.counts_from} if health.counts_from else {}
    on_its_way = Delivery.objects.filter(message__turn=OuterRef("turn"), state__in=ON_THE_WAY)
    columns = ("finished_at", "scheduled_for", "state", "attention", Exists(on_its_way))
    rows = RunRecord.objects.ended_by_itself().filter(job=health.pk, **since).order_by("-scheduled_for")
    failed: list[datetime] = []
    doubtful: list[datetime] = []
    newest = sorted(rows.values_list(*columns)[:LOOKED_AT], reverse=True)
    for _, slot, state, attention, is_on_its_way in newest:
        if state != RunState.SUCCEEDED:
            failed.append(slot)
        elif attention != Attention.NONE:
            doubtful.append(slot)
        elif not is_on_its_way:
            break
    failed += doubtful if len(doubtful) >= FAILING_AFTER else []
    JobHealth.objects.set_failures(health.pk, failed)
    return JobHealth.objects.get(pk=health.pk)


def pause_after_commit(job_id: str) -> None:
    """Pause the job after the commit, in a transaction of its own: the current one may hold locks that come after a
    job's.
    """
    for pause in _PAUSES:
        transaction.on_commit(partial(pause, job_id), robust=True)


def count_done(job_ids: Iterable[str]) -> None:
    """A run of these failing jobs was done. Jobs that are well by it are told so to owners who heard of the failures.

    A job that the server has paused stays paused: a person resumes it.
    """
    for job in CronJob.objects.select_related("agent").filter(pk__in=job_ids).order_by("pk"):
        before = JobHealth.objects.lock(job.pk)
        if before.paused_reason or _recount(before).failures_in_a_row:
            continue
        JobHealth.objects.set_well(job.pk)
        is_mended = ToldCause.objects.mended(job.agent.owner_id, causes_of(job))
        if before.told in (Told.NOTHING, Told.REFUSED) and not is_mended:
            continue
        past = before.failed_text if before.failures_in_a_row else "its runs failed until it was resumed"
        text = f'"{job.name}" works again. Before, {past}.'
        tell(job, "works_again", text, priority=Priority.NORMAL)


def _tell_failure(job: CronJob, run: RunRecord, health: JobHealth) -> bool:
    """Tell the owner that the job is slowed down or, at a first refusal, what to do. Returns whether the owner was
    told.
    """
    cure, cause = CURES.get(run.reason, ""), cause_of_run(job, run.reason)
    stops = tell_once(job, cause) if cause else ""
    if stops is None and health.told == Told.NOTHING:
        return True  # of another job that it stops
    why = run.error.rstrip(".") or NEEDS_LOOK.get(Attention(run.attention), "it was given up")
    if health.is_slowed and JobHealth.objects.tell(job.pk, Told.SLOWED):
        text = f'"{job.name}": {health.failed_text}, the last one because: {why}.'
        text += f" It runs at most once an hour until a run succeeds. {cure or ENDS_SLOWING}"
        tell(job, "failing", text)
        return True
    if cure and JobHealth.objects.tell(job.pk, Told.REFUSED):
        tell(job, "failing", f'"{job.name}" cannot run: {why}. {cure}{stops or ""}')
        return True
    return False


def was_stopped_before(run: RunRecord) -> bool:
    """Whether a cap stopped the last run before this one that asked for a model."""
    ended = Q(state__in=[RunState.SUCCEEDED, RunState.FAILED]) | Q(
        state=RunState.SKIPPED, reason=CapReached.code, started_at__isnull=False
    )
    before = RunRecord.objects.filter(ended, job=run.job_id, scheduled_for__lt=run.scheduled_for)
    return before.order_by("-scheduled_for").values_list("state", flat=True).first() == RunState.SKIPPED


def tell_stopped(run: RunRecord, why: str) -> bool:
    """Tell the owner that a cap stopped the run before its first model call, unless it stopped the previous run, too.

    That a cap of a day or a month is reached was told already. Returns whether the turn's text is news.
    """
    job = run.job
    if job is None or not is_of_people(job):
        return True
    if was_stopped_before(run):
        return False
    if stopped_until(job.agent_id, job.pk) is not None:
        return True
    tell(job, "failing", f'"{job.name}" was not run: {why} Further slots that it stops are not told.')
    return False


def tell(job: CronJob, event_type: str, text: str, priority: Priority = Priority.HIGH) -> None:
    """Tell a job's owner by the mailbox and the channel of its conversation. Newer news replace unread ones."""
    event_id = report_job(job, event_type, text, key=f"failing:{job.pk}", priority=priority)
    if home := job.session_id or job.home_id:
        send_notice(home, text, about={"automation": job.pk, "automation_name": job.name}, key=str(event_id))


def apply_answer(run_id: str, *, is_allowed: bool) -> None:
    """A person has answered what the run asked. If they allowed it, its job begins afresh."""
    RunRecord.objects.answered(run_id)
    job_id = RunRecord.objects.filter(pk=run_id).values_list("job_id", flat=True).first()
    if is_allowed and job_id is not None:
        JobHealth.objects.begin_afresh(job_id, datetime.now(UTC))


def _lacks(answer: Message | None) -> Attention:
    """What a stored answer lacks besides its delivery."""
    if answer is None:
        return Attention.NONE
    if "closure" in answer.metadata or not says_something(answer.content):
        return Attention.EMPTY
    return Attention.CUT_SHORT if ENDED_KEY in answer.metadata else Attention.NONE


def apply_delivery_result(delivery: Delivery) -> None:
    """Mark the run whose answer did not leave the server, in the transaction that gives the delivery up.

    If the delivery is sent after all, because a person sent it again, the mark is removed. A failing job is well again
    when an answer of it is sent: while its channel is dead, answers alone do not mend it.
    """
    turn = delivery.message.turn if delivery.message is not None else None
    if turn is None or not turn.origin_run:
        return
    runs = RunRecord.objects.filter(turn=turn).select_related("job")
    if delivery.state == DeliveryState.FAILED:
        if RunRecord.objects.undelivered(turn.pk):
            for run in runs:
                count_failure(run)
        return
    if delivery.handed_over_at > delivery.created_at:
        RunRecord.objects.delivered(turn.pk, _lacks(delivery.message))
    is_unwell = Q(job__health__failures_in_a_row__gt=0) | Q(job__health__told=Told.RESUMED)
    done = runs.filter(is_unwell, state=RunState.SUCCEEDED)
    count_done([str(run.job_id) for run in done.select_for_update(no_key=True, of=("self",))])
