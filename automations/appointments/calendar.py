"""A user's past and coming slots over all conversations, bounded. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Count, F, Max, Min, OuterRef, Subquery, Sum, Window
from django.db.models.functions import Coalesce, TruncDate

from automations.appointments.jobs import MOST_JOBS, Kind, about_job, can_retry, job_rows
from automations.appointments.messages import About, about_message, message_now, slots_of, with_run
from automations.exceptions import ScheduleError
from automations.jobs.clock import current_plan, database_now, moved_slots
from automations.jobs.explain import RUN_COLUMNS, takes_no_runs
from automations.jobs.stops import Stop, stops_of
from automations.models import CronJob, MessageStatus, RunRecord, RunState, ScheduledMessage
from automations.models.health import SLOW_INTERVAL, health_of
from automations.runs.describe import QueueWait, SlotState, slot_of, slot_state, when
from automations.runs.skips import run_id
from automations.schedules.describe import describe_job
from automations.schedules.plan import JobPlan
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import held_until
from sessions_app.exceptions import BadInput
from sessions_app.tokens.reach import in_sessions

MOST_ENTRIES = 500
MOST_MESSAGES = 200
LISTED = 6  # slots of a job on a day that are listed one by one; more are folded
LONGEST_RANGE = timedelta(days=62)
MOST_COMING = 86_400  # coming slots of a day that are counted: one each second
_STATE = ("state", "reason", "attention")  # of a run
_TICK = timedelta(milliseconds=1)
_JOBS = (Kind.AUTOMATION, Kind.ROUTINE, Kind.HEARTBEAT)
_IN_A_COUNT = {SlotState.ATTENTION: "in need of attention"}
_WORST = (
    SlotState.FAILED,
    SlotState.MISSED,
    SlotState.ATTENTION,
    SlotState.WAITING,
    SlotState.LATE,
    SlotState.SKIPPED,
)


@dataclass(frozen=True, kw_only=True)
class Entry(About):
    """A slot of a day, or a day's slots of one job that has many: then `count` is their number and `until` the last.

    Instants are in the caller's zone. `state`: for several slots the one that needs most attention. `count`: None for a
    single slot, and when there are too many to count. `states`: how many of a day's past slots are in each state.
    `run_id`: of the slot's run, also if that is still to come; empty for many slots, and for a coming message.
    `is_next`: whether it is the next slot of its job. `can_retry`: whether its run can be tried again.
    `moved_to`: of a slot that was moved and can be moved back.
    """

    at: datetime
    until: datetime | None
    state: SlotState
    text: str
    count: int | None = None
    states: Mapping[SlotState, int] = field(default_factory=dict)
    run_id: str = ""
    turn_id: int | None = None
    is_next: bool = False
    can_retry: bool = False
    moved_to: datetime | None = None

    @property
    def slot(self) -> str:
        """The slot of an automation's run as an ISO time; with a delay it runs later."""
        return datetime.fromtimestamp(int(self.run_id.rpartition(":")[2]) / 1000, UTC).isoformat()

    @property
    def is_folded(self) -> bool:
        """Whether the entry is a day's slots of a job that has many."""
        return self.until is not None and not self.run_id


def upcoming(
    user: AbstractBaseUser,
    since: datetime,
    until: datetime,
    *,
    zone: tzinfo = UTC,
    kinds: Iterable[Kind] = _JOBS,
    most: int = MOST_ENTRIES,
) -> list[Entry]:
    """Return the slots from `since` to before `until` in all sessions of the user, past and coming, by time.

    At most `most` entries, of scheduled messages and of 100 jobs of these kinds; the first ones when there are more. A
    job with more than 6 slots on a day of the zone is one entry of that day. BadInput unless the range is positive and
    at most 62 days.
    """
    if not timedelta(0) < until - since <= LONGEST_RANGE:
        raise BadInput(f"the range must be positive and at most {LONGEST_RANGE.days} days", code="bad_range")
    now, jobs = database_now(), {job.pk: job for job in job_rows(user, kinds)[:MOST_JOBS]}
    stops = stops_of([*jobs.values()])
    entries = [*_past(jobs, stops, since, until, now, zone)]
    for job in jobs.values():
        entries += _coming(job, stops.get(job.pk), since, until, now, zone)
    entries += _messages(user, since, until, zone)
    return sorted(entries, key=lambda each: (each.at, each.name, each.id))[:most]


def tally(entries: Iterable[Entry]) -> dict[SlotState, int]:
    """How many slots of these entries are in each state."""
    found: dict[SlotState, int] = defaultdict(int)
    for entry in entries:
        for state, number in (entry.states or {entry.state: entry.count or 1}).items():
            found[state] += number
    return found


def counted(states: Mapping[SlotState, int]) -> str:
    """`16 ran, 1 failed`."""
    parts = (f"{states[each]:,} {_IN_A_COUNT.get(each, each)}" for each in SlotState if each in states)
    return ", ".join(parts)


def _past(
    jobs: Mapping[str, Any],
    stops: Mapping[str, Stop],
    since: datetime,
    until: datetime,
    now: datetime,
    zone: tzinfo,
) -> Iterator[Entry]:
    in_range = RunRecord.objects.filter(job__in=[*jobs], scheduled_for__gte=since, scheduled_for__lt=until)
    runs = in_range.annotate(day=TruncDate("scheduled_for", tzinfo=zone))
    by_state = runs.values("job_id", "day", *_STATE).order_by()
    groups: dict[tuple[str, date], list[Any]] = defaultdict(list)
    for group in by_state.annotate(
        rows=Count("pk"),
        slots=Sum(Coalesce("slots_count", 1)),
        first=Min("scheduled_for"),
        last=Max("scheduled_for"),
    ):
        groups[group["job_id"], group["day"]].append(group)
    few = set()
    for (job_id, _), found in groups.items():
        if sum(each["rows"] for each in found) > LISTED:
            yield _folded(jobs[job_id], found, zone)
        else:
            few.add(job_id)
    of_day = Window(Count("pk"), partition_by=[F("job_id"), F("day")])
    listed = runs.filter(job__in=few).annotate(of_day=of_day).filter(of_day__lte=LISTED)
    for run in (*listed.only(*RUN_COLUMNS), *_gaps_before(jobs, since)):
        job = jobs[str(run.job_id)]
        yield _of_run(job, run, now, zone, is_stopped=job.pk in stops)


def _of_run(job: Any, run: RunRecord, now: datetime, zone: tzinfo, *, is_stopped: bool) -> Entry:
    """`is_stopped`: a cap skips the job's next slot, and stops another attempt, too."""
    slot = slot_of(run, zone, waiting=QueueWait(next_slot=None if is_stopped else job.clock.next_run_at))
    return Entry(
        **about_job(job),
        at=slot.at,
        until=slot.until,
        state=slot.state,
        text=slot.text,
        count=slot.count,
        run_id=slot.run_id,
        turn_id=slot.turn_id,
        can_retry=run.state == RunState.FAILED and can_retry(job) and not is_stopped,
        moved_to=run.moved_to if run.moved_to and min(run.moved_to, run.scheduled_for) > now else None,
    )


def _gaps_before(job_ids: Iterable[str], since: datetime) -> Iterable[RunRecord]:
    """The last run of each job before an instant, if it is a gap that reaches it."""
    before = RunRecord.objects.filter(job=OuterRef("pk"), scheduled_for__lt=since).order_by("-scheduled_for")
    last = CronJob.objects.filter(pk__in=job_ids).annotate(last=Subquery(before.values("pk")[:1]))
    return RunRecord.objects.filter(pk__in=last.values("last"), slots_to__gte=since).only(*RUN_COLUMNS)


def _folded(job: Any, groups: Sequence[Any], zone: tzinfo) -> Entry:
    """A day of a job with many runs: `every minute: 1,438 ran, 2 failed`. `groups`: its runs by state and reason."""
    found: dict[SlotState, int] = defaultdict(int)
    for each in groups:
        run = RunRecord(**{name: each[name] for name in _STATE})
        found[slot_state(run)] += each["rows"]
    return Entry(
        **about_job(job),
        at=min(each["first"] for each in groups).astimezone(zone),
        until=max(each["last"] for each in groups).astimezone(zone),
        state=next((each for each in _WORST if each in found), SlotState.RAN),
        text=f"{_words(job)}: {counted(found)}",
        count=sum(each["slots"] for each in groups),
        states=found,
    )


def _words(job: Any) -> str:
    return describe_job(job, zone_or_utc(job.timezone).key)


def _coming(
    job: Any, stop: Stop | None, since: datetime, until: datetime, now: datetime, zone: tzinfo
) -> Iterator[Entry]:
    firing = job.clock.next_run_at
    if firing is None or not job.enabled or takes_no_runs(job) or (stop and stop.until is None):
        return
    try:
        plan = current_plan(job, job.clock)
        # a due slot is no coming one
        begin = max(since, now + _TICK, firing, held_until(job) or since, (stop and stop.until) or since)
        yield from _planned(job, plan, begin, until, zone)
    except ScheduleError:  # the explanation says so
        return


def _planned(job: Any, plan: JobPlan, since: datetime, until: datetime, zone: tzinfo) -> Iterator[Entry]:
    """The coming slots of each day: one by one, or folded when a day has many."""
    left, words, is_slowed = plan.runs_left, _words(job), health_of(job).is_slowed
    words += ", slowed down to once an hour" if is_slowed else ""
    coming = {**about_job(job), "state": SlotState.NEXT}
    came = {to: slot for slot, to in moved_slots(job.clock).items()}
    while since < until and left != 0:
        tomorrow = since.astimezone(zone).date() + timedelta(days=1)
        end = min(until, datetime.combine(tomorrow, time(), zone).astimezone(UTC))
        found = _slots(plan, since - _TICK, end - _TICK, job.clock.next_run_at)
        number = len(found)
        if number <= LISTED:
            for firing in found[:left]:
                run, is_next = run_id(job.pk, firing - plan.jitter), firing == job.clock.next_run_at
                slot = came.get(firing - plan.jitter)
                text = f"{words}, moved from {when(slot, zone)}" if slot else words
                at = firing.astimezone(zone)
                yield Entry(**coming, at=at, until=None, text=text, run_id=run, is_next=is_next)
        else:
            slots = (since - _TICK - plan.jitter, end - _TICK - plan.jitter)
            known = plan.slots.count(*slots, MOST_COMING)
            number = min(known or MOST_COMING, MOST_COMING if left is None else left)
            if is_slowed:
                known = number = min(number, -(-(end - since) // SLOW_INTERVAL))
            last = plan.slots.last(*slots) or found[-1]
            yield Entry(
                **coming,
                at=found[0].astimezone(zone),
                until=(last + plan.jitter).astimezone(zone),
                text=f"{words}, {number:,} times" if known else f"{words}, more than {MOST_COMING:,} times",
                count=number if known else None,
            )
        left = None if left is None else max(0, left - number)
        since = end


def _slots(plan: JobPlan, after: datetime, until: datetime, first: datetime) -> list[datetime]:
    """The firings in a day, up to one more than are listed. `first`: the next firing of the clock, which may be no
    slot.
    """
    found: list[datetime] = [first] if after < first <= until else []
    slot = plan.slots.next((first if found else after) - plan.jitter)
    while slot is not None and slot + plan.jitter <= until and len(found) <= LISTED:
        found.append(slot + plan.jitter)
        slot = plan.slots.next(slot)
    return found


def _messages(user: AbstractBaseUser, since: datetime, until: datetime, zone: tzinfo) -> Iterator[Entry]:
    rows = ScheduledMessage.objects.filter(
        in_sessions(user), session__owner_id=user.pk, send_at__gte=since, send_at__lt=until
    ).exclude(status=MessageStatus.CANCELLED)
    now = datetime.now(UTC)
    for message in with_run(rows).order_by("send_at", "pk")[:MOST_MESSAGES]:
        slots = slots_of(message, now)
        yield Entry(
            **about_message(message),
            at=message.send_at.astimezone(zone),
            until=None,
            state=slots[0].state if slots else SlotState.NEXT,
            text=message_now(message, now, zone),
            run_id=slots[0].run_id if slots else "",
            turn_id=slots[0].turn_id if slots else None,
        )
