"""The appointments of a conversation, and why each is as it is.

Reads only, each limited to the user who asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from django.contrib.auth.models import AbstractBaseUser

from automations.appointments.jobs import (
    Kind,
    appointment_kind,
    appointment_state,
    is_failing,
    job_facts,
    job_rows,
    jobs_of_sessions,
    lives_in_sessions,
)
from automations.appointments.messages import (
    is_to_come,
    message_now,
    name_of,
    shown_messages,
    slots_of,
    with_run,
    zone_name,
)
from automations.exceptions import JobNotFound, MessageNotFound, RoutineNotFound
from automations.jobs.causes import JobFacts, failed_before, is_past, last_not_skipped, mended_run
from automations.jobs.clock import database_now
from automations.jobs.explain import (
    Explanation,
    explain_facts,
    undeliverable,
)
from automations.jobs.stops import is_lifted, known_problems
from automations.models import MessageStatus, RunState, ScheduledMessage
from automations.models.health import FAILING_AFTER, health_of
from automations.runs.describe import (
    Slot,
    SlotState,
)
from automations.schedules.schedule import AtSchedule
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import coming_pause, paused_until
from sessions_app.connections.usable import CURES
from sessions_app.reads.selectors import shown_id
from sessions_app.tokens.reach import in_sessions

NEXT = 3  # coming slots of an appointment
MOST_MADE = 100  # appointments of each kind that turns made
_STATES = {MessageStatus.PENDING: "scheduled", MessageStatus.SENT: "done"}
_FAR = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Appointment(Explanation):
    """An automation, routine, heartbeat or scheduled message of a conversation.

    Instants are in `zone`. `state`: scheduled, running, paused, off, done, failed or cancelled. `session_id`: the
    conversation that shows it. `editable`: whether it has a form; a heartbeat is changed on its agent's page, and a
    message can only be cancelled. `last`: its last slots, oldest first (in an Explanation the newest is first).
    `next`: its coming slots, at most 3. `is_slowed`: to one run an hour. `will_pause`: later.
    `trouble_text`: what `trouble` says that `now` does not; then `warnings` do not say it either.
    """

    kind: str
    id: str
    zone: str
    is_failing: bool
    is_slowed: bool = False
    trouble_text: str = ""
    session_id: uuid.UUID | None
    enabled: bool
    paused_until: datetime | None
    will_pause: bool = False
    editable: bool

    @property
    def is_on(self) -> bool:
        """Whether the appointment is not paused, neither for good nor until a time."""
        return self.enabled and self.paused_until is None

    @property
    def can_switch(self) -> bool:
        """Whether it can be paused or resumed: it is neither done, nor changed elsewhere."""
        return self.editable and not (self.enabled and self.state in ("done", "failed"))

    @property
    def trouble(self) -> Slot | None:
        """The last slot that was not skipped, if it failed or needs attention."""
        last = next((each for each in reversed(self.last) if each.run_state != RunState.SKIPPED), None)
        return last if last and last.state in (SlotState.FAILED, SlotState.ATTENTION) else None


def appointments_of(user: AbstractBaseUser, session_id: uuid.UUID) -> list[Appointment]:
    """The appointments of a session, and of the primary one that a unified thread shows: failing ones first, then by
    their next slot. NotFound.

    The number of statements does not depend on the number of appointments.
    """
    sessions = {session_id, shown_id(user, session_id)}
    found = [_of_job(each) for each in job_facts(jobs_of_sessions(user, sessions))]
    now = database_now()
    texts = ScheduledMessage.objects.filter(session__owner_id=user.pk, session_id__in=sessions)
    found += [_of_message(each, now) for each in shown_messages(texts, now)]
    return sorted(found, key=lambda each: (not each.is_failing, each.next[0] if each.next else _FAR, each.id))


def appointments_made(user: AbstractBaseUser, turns: Collection[int]) -> dict[int, list[Appointment]]:
    """By turn: the user's appointments that it made and that still exist, the oldest first.

    These are stored facts: what a turn promises in words is no appointment (rule 11.8).
    """
    found: dict[int, list[Appointment]] = {}
    jobs = list(job_rows(user).filter(created_by_turn__in=turns).order_by("created_at", "pk")[:MOST_MADE])
    for facts in job_facts(jobs) if jobs else ():
        found.setdefault(facts.job.created_by_turn_id, []).append(_of_job(facts))
    rows = ScheduledMessage.objects.filter(session__owner_id=user.pk, created_by_turn__in=turns)
    rows = rows.exclude(status=MessageStatus.CANCELLED).order_by("created_at", "pk")
    texts = list(with_run(rows)[:MOST_MADE])
    if texts:
        now = database_now()
        for message in texts:
            found.setdefault(message.created_by_turn_id or 0, []).append(_of_message(message, now))
    return found


def is_of_session(user: AbstractBaseUser, session_id: uuid.UUID, kind: str, appointment_id: str) -> bool:
    """Whether the session, or the primary session that it shows, has this appointment. NotFound for the session."""
    sessions = {session_id, shown_id(user, session_id)}
    if kind == Kind.MESSAGE:
        return ScheduledMessage.objects.filter(pk=appointment_id, session_id__in=sessions).exists()
    return lives_in_sessions(user, appointment_id, sessions)


def why(user: AbstractBaseUser, kind: str, appointment_id: str) -> Explanation:
    """Explain an appointment of the user. JobNotFound, RoutineNotFound, MessageNotFound."""
    if kind == Kind.MESSAGE:
        rows = ScheduledMessage.objects.filter(
            in_sessions(user), session__owner_id=user.pk, pk=appointment_id
        )
        message = with_run(rows).first()
        if message is None:
            raise MessageNotFound
        return _of_message(message, database_now())
    missing = RoutineNotFound if kind == Kind.ROUTINE else JobNotFound
    if kind not in set(Kind):
        raise missing
    job = job_rows(user, [Kind(kind)]).filter(pk=appointment_id).first()
    if job is None:
        raise missing
    [facts] = job_facts([job])
    return explain_facts(facts)


def _of_job(facts: JobFacts) -> Appointment:
    job, until = facts.job, paused_until(facts.job)
    zone, kind = zone_or_utc(job.timezone), appointment_kind(job)
    found = vars(explain_facts(facts))
    shown = {"state": appointment_state(job), "last": found["last"][::-1], "next": found["next"][:NEXT]}
    appointment = Appointment(
        **found | shown,
        kind=kind.value,
        id=job.pk,
        zone=zone.key,
        is_failing=_is_failing(facts),
        is_slowed=job.enabled and until is None and health_of(job).is_slowed,
        session_id=job.lives_in,
        enabled=job.enabled,
        paused_until=until and until.astimezone(zone),
        will_pause=coming_pause(job) is not None,
        editable=kind is not Kind.HEARTBEAT,
    )
    return _each_cause_once(appointment, facts)


def _is_failing(facts: JobFacts) -> bool:
    """Whether something is known to stop it: no failure at a connection that works now."""
    job, known = facts.job, facts.of_models
    holding = [
        each for each in known_problems(job, facts.stop) if not is_past(job, each, known) or known.failed
    ]
    few = health_of(job).failures_in_a_row < FAILING_AFTER
    is_calm = few and job.enabled and mended_run(facts) is not None and job.clock.next_run_at is not None
    has_failed = is_failing(job) and not (job.enabled and _is_said_before(facts))
    return bool(holding) or (has_failed and not is_calm)


def _each_cause_once(shown: Appointment, facts: JobFacts) -> Appointment:
    """The last trouble with its cure, unless a newer failure or what is known of the model says it."""
    slot, run = shown.trouble, facts.open_run
    if slot is None or (run is not None and run.not_before) or _is_said_before(facts):
        return shown
    if mended := mended_run(facts):
        return replace(shown, trouble_text=failed_before(mended, zone_or_utc(shown.zone)))
    if any(slot.text in each for each in shown.before):
        return shown
    cure = CURES.get(slot.reason, "")
    if not cure:
        return replace(shown, trouble_text=slot.text)
    if cure in shown.now:
        return shown
    others = tuple(each for each in shown.warnings if cure not in each)
    said = slot.text if others == shown.warnings else f"{slot.text} {cure}"
    return replace(shown, trouble_text=said, warnings=others)


def _is_said_before(facts: JobFacts) -> bool:
    """Whether its last failure stands in `before`: a cap stops it since, or stands no more that failed it."""
    last = last_not_skipped(facts)
    has_failed_last = last is not None and last.state == RunState.FAILED
    return has_failed_last and (facts.stop is not None or is_lifted(last, facts.budgets))


def _of_message(message: ScheduledMessage, now: datetime) -> Appointment:
    name, coming = zone_name(message), is_to_come(message)
    return Appointment(
        kind=Kind.MESSAGE.value,
        id=message.pk,
        name=name_of(message),
        words=AtSchedule(at=message.send_at).in_words(name),
        timezone=name,
        zone=name,
        state=_STATES.get(MessageStatus(message.status), message.status),
        is_failing=message.status == MessageStatus.FAILED,
        session_id=message.session_id,
        enabled=coming,
        paused_until=None,
        editable=False,
        last=slots_of(message, now),
        next=(message.send_at.astimezone(zone_or_utc(name)),) if coming and message.send_at > now else (),
        now=message_now(message, now),
        warnings=tuple(undeliverable(message.session)) if coming else (),
    )
