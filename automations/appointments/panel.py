"""The appointments of a conversation, and why each is as it is. Reads only, each limited to the user who asks."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.auth.models import AbstractBaseUser

from automations.appointments import messages
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
from automations.appointments.slots import Slot, slot_of
from automations.exceptions import JobNotFound, MessageNotFound, RoutineNotFound
from automations.jobs.clock import database_now
from automations.jobs.explain import (
    ExplainedRun,
    Explanation,
    coming_firings,
    described_runs,
    explain_facts,
    now_of,
    undeliverable,
    warnings_of,
)
from automations.jobs.facts import JobFacts
from automations.models import MessageStatus, ScheduledMessage
from automations.schedules.describe import describe_job
from automations.schedules.schedule import AtSchedule
from automations.schedules.zone_files import zone_or_utc
from automations.selectors import paused_until
from sessions_app.reads.selectors import shown_id
from sessions_app.tokens.limits import in_sessions

NEXT = 3  # coming slots of an appointment
_STATES = {MessageStatus.PENDING: "scheduled", MessageStatus.SENT: "done"}
_FAR = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Appointment:
    """An automation, routine, heartbeat or scheduled message of a conversation.

    `words`: the schedule. Instants are in `zone`. `state`: scheduled, running, paused, done, failed or cancelled.
    `session_id`: the conversation that it lives in. `editable`: whether people change it by itself; a heartbeat is
    changed with its agent, and a message is only cancelled. `last`: oldest first, at most 20. `next`: at most 3.
    `now`: one sentence.
    """

    kind: str
    id: str
    name: str
    words: str
    zone: str
    state: str
    is_failing: bool
    session_id: uuid.UUID | None
    enabled: bool
    paused_until: datetime | None
    editable: bool
    last: tuple[Slot, ...]
    next: tuple[datetime, ...]
    now: str
    warnings: tuple[str, ...]

    @property
    def is_on(self) -> bool:
        """Whether it is neither paused nor paused until a time."""
        return self.enabled and self.paused_until is None


def appointments_of(user: AbstractBaseUser, session_id: uuid.UUID) -> list[Appointment]:
    """The appointments of a session, and of the primary session that it shows: failing first, then by time. NotFound.

    The number of statements does not depend on the number of appointments.
    """
    sessions = {session_id, shown_id(user, session_id)}
    found = [_of_job(each) for each in job_facts(jobs_of_sessions(user, sessions))]
    now = database_now()
    texts = ScheduledMessage.objects.filter(session__owner_id=user.pk, session_id__in=sessions)
    found += [_of_message(each, now) for each in messages.shown_messages(texts, now)]
    return sorted(found, key=lambda each: (not each.is_failing, each.next[0] if each.next else _FAR, each.id))


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
        message = messages.with_run(rows).first()
        if message is None:
            raise MessageNotFound
        return _explain_message(message, database_now())
    missing = RoutineNotFound if kind == Kind.ROUTINE else JobNotFound
    if kind not in set(Kind):
        raise missing
    job = job_rows(user, [Kind(kind)]).filter(pk=appointment_id).first()
    if job is None:
        raise missing
    [facts] = job_facts([job])
    return explain_facts(facts)


def _of_job(facts: JobFacts) -> Appointment:
    job, zone, kind = facts.job, zone_or_utc(facts.job.timezone), appointment_kind(facts.job)
    coming, until = coming_firings(job, facts.now), paused_until(job)
    runs = list(described_runs(facts.runs, zone, facts.waiting))
    return Appointment(
        kind=kind.value,
        id=job.pk,
        name=job.name,
        words=describe_job(job, zone.key),
        zone=zone.key,
        state=appointment_state(job),
        is_failing=is_failing(job),
        session_id=job.lives_in,
        enabled=job.enabled,
        paused_until=until and until.astimezone(zone),
        editable=kind is not Kind.HEARTBEAT,
        last=tuple(slot_of(run, text, zone) for run, text in reversed(runs)),
        next=tuple(firing.astimezone(zone) for firing in coming[:NEXT]),
        now=now_of(facts, zone),
        warnings=tuple(warnings_of(facts, coming)),
    )


def _of_message(message: ScheduledMessage, now: datetime) -> Appointment:
    name = messages.zone_name(message)
    zone = zone_or_utc(name)
    coming = messages.is_to_come(message)
    return Appointment(
        kind=Kind.MESSAGE.value,
        id=message.pk,
        name=messages.name_of(message),
        words=AtSchedule(at=message.send_at).in_words(name),
        zone=name,
        state=_STATES.get(MessageStatus(message.status), message.status),
        is_failing=message.status == MessageStatus.FAILED,
        session_id=message.session_id,
        enabled=coming,
        paused_until=None,
        editable=False,
        last=messages.slots_of(message, now),
        next=(message.send_at.astimezone(zone),) if coming and message.send_at > now else (),
        now=messages.message_now(message, now),
        warnings=tuple(undeliverable(message.session)) if coming else (),
    )


def _explain_message(message: ScheduledMessage, now: datetime) -> Explanation:
    shown, run = _of_message(message, now), messages.run_of(message)
    return Explanation(
        name=shown.name,
        words=shown.words,
        timezone=shown.zone,
        state=shown.state,
        now=shown.now,
        next=shown.next,
        last=() if run is None else (ExplainedRun.of(run, shown.last[0].text, zone_or_utc(shown.zone)),),
        warnings=shown.warnings,
    )
