"""What needs a person: failing appointments, questions that wait, answers that could not be delivered. Reads only."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import F, Q

from agent_core.execution import WAITING
from automations.appointments.jobs import MOST_JOBS, appointment_kind, has_failed, job_rows
from automations.appointments.messages import RECENT, message_now, name_of, with_run
from automations.jobs.clock import database_now
from automations.jobs.explain import fault_in_words, undeliverable
from automations.models import MessageStatus, RunRecord, ScheduledMessage
from automations.runs.describe import describe_run
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import ConsentQuestion, ConsentState, Delivery, ExecutionState, Session
from sessions_app.models.delivery import DeliveryState
from sessions_app.single_line import one_line

MOST = 20  # notices of each kind
SEARCHED = 200  # the latest conversations whose questions and deliveries are read
ENDED_FOR = timedelta(days=7)  # how long the failure of a job that runs no more is reported
LONGEST_TEXT = 200  # characters of a question
_ORDER = ("question", "disabled", "failing", "undeliverable")


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that needs a person. `what`: question, disabled, failing or undeliverable.

    `kind`, `id`, `name`: the appointment; empty for a question and for deliveries. `at`: since when, if known.
    """

    what: str
    text: str
    at: datetime | None
    session_id: uuid.UUID | None
    title: str
    agent: str
    kind: str = ""
    id: str = ""
    name: str = ""


def attention(user: AbstractBaseUser) -> list[Notice]:
    """What needs the user: questions first, then disabled and failing appointments, then undelivered answers.

    At most 20 of each. The number of statements does not depend on how many there are.
    """
    now = database_now()
    latest = _latest(user)
    found = [*_of_jobs(user, now), *_of_messages(user, now), *_questions(latest), *_undelivered(latest)]
    by_what = {what: [each for each in found if each.what == what] for what in _ORDER}
    return [notice for what in _ORDER for notice in by_what[what][:MOST]]


def _of_jobs(user: AbstractBaseUser, now: datetime) -> Iterator[Notice]:
    troubled = Q(enabled=True) | ~Q(fault="")
    jobs: list[Any] = list(job_rows(user).filter(troubled)[:MOST_JOBS])
    failed = [job.ended_run for job in jobs if has_failed(job)]
    runs = RunRecord.objects.defer("snapshot", "rendered_prompt", "prompt_variables").in_bulk(failed)
    for job in jobs:
        if job.fault:
            yield _of_job(job, "disabled", fault_in_words(job, now), job.updated_at)
            continue
        run = runs.get(job.ended_run) if has_failed(job) else None
        if run is not None and _is_current(job, run, now):
            text = describe_run(run, zone_or_utc(job.timezone))
            yield _of_job(job, "failing", text, run.finished_at)
        if job.clock.next_run_at is not None:
            for text in undeliverable(job.session):
                yield _of_job(job, "undeliverable", text, None)


def _is_current(job: Any, run: RunRecord, now: datetime) -> bool:
    """Whether the job will run again, or ended a short time ago."""
    ended = run.finished_at
    return job.clock.next_run_at is not None or (ended is not None and ended > now - ENDED_FOR)


def _of_job(job: Any, what: str, text: str, at: datetime | None) -> Notice:
    return Notice(
        what=what,
        text=text,
        at=at,
        session_id=job.lives_in,
        title=job.lives_title or "",
        agent=job.agent.name,
        kind=appointment_kind(job).value,
        id=job.pk,
        name=job.name,
    )


def _of_messages(user: AbstractBaseUser, now: datetime) -> Iterator[Notice]:
    rows = ScheduledMessage.objects.filter(
        session__owner_id=user.pk, status=MessageStatus.FAILED, updated_at__gt=now - RECENT
    )
    for message in with_run(rows).order_by("-updated_at", "pk")[:MOST]:
        yield Notice(
            what="undeliverable",
            text=message_now(message, now),
            at=message.updated_at,
            session_id=message.session_id,
            title=message.session.title,
            agent=message.session.agent.name,
            kind="message",
            id=message.pk,
            name=name_of(message),
        )


def _latest(user: AbstractBaseUser) -> list[uuid.UUID]:
    rows = Session.objects.filter(owner_id=user.pk).order_by("-updated_at", "-pk")
    return list(rows.values_list("pk", flat=True)[:SEARCHED])


def _questions(sessions: list[uuid.UUID]) -> Iterator[Notice]:
    mine = Q(session__in=sessions)
    shown = {"title": F("session__title"), "agent": F("session__agent__name")}
    plans = ExecutionState.objects.filter(mine, status__in=WAITING).annotate(text=F("question"), **shown)
    chats = ConsentQuestion.objects.filter(mine, execution="", state=ConsentState.OPEN).annotate(**shown)
    for rows in (plans, chats):
        fields = ("text", "asked_at", "session_id", "title", "agent")
        for text, at, session_id, title, agent in rows.order_by("-asked_at").values_list(*fields)[:MOST]:
            words = one_line(text, LONGEST_TEXT)
            yield Notice(what="question", text=words, at=at, session_id=session_id, title=title, agent=agent)


def _undelivered(sessions: list[uuid.UUID]) -> Iterator[Notice]:
    rows = Delivery.objects.filter(session__in=sessions, state=DeliveryState.FAILED)
    rows = rows.select_related("session__agent").order_by("-pk")
    seen = set()
    for each in rows[:MOST]:
        if each.session is None or (each.session_id, each.channel) in seen:
            continue
        seen.add((each.session_id, each.channel))
        yield Notice(
            what="undeliverable",
            text=f"An answer could not be delivered by {each.channel}: {each.last_error.rstrip('.')}.",
            at=each.tried_at,
            session_id=each.session_id,
            title=each.session.title,
            agent=each.session.agent.name,
        )
