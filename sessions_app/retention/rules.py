"""How long events, journals, turns, executions, mailbox events, deliveries, sign-in links and keys are kept.

Messages are kept for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from django.conf import settings
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce, Now

from agent_core.execution import ENDED
from sessions_app.models import (
    Delivery,
    Event,
    ExecutionState,
    IdempotencyKey,
    Invitation,
    MailboxEvent,
    Pruning,
    Session,
    SessionState,
    SessionType,
    SignInLink,
    Spending,
    StreamTicket,
    Turn,
    TurnStep,
)
from sessions_app.models.access import IDEMPOTENCY_KEPT
from sessions_app.models.process import EVENTS
from sessions_app.models.turn import ENDED_STATES
from sessions_app.postgres.statements import table
from sessions_app.retention.walk import (
    HOUR,
    SESSIONS,
    AgeWalk,
    OwnerWalk,
    Walk,
    WalkStep,
    load_rules,
    of_owners,
    old,
    register_walk,
    remove_unlocked,
)
from sessions_app.sessions.delete import remove_archived

JOB_SESSIONS_AT_ONCE = 20  # sessions of one batch; each is removed with its turns, messages and events
JOBS_AT_ONCE = 100  # jobs that one batch looks at
SPENDING_DAYS = 40  # after its period began
KEPT_PER_JOB = 50  # newest sessions of one job; the rest is removed whatever its age

_turn, _execution = table(Turn), table(ExecutionState)
_HAS_ENDED = Q(state__in=ENDED_STATES)


def _remove_events(ids: Iterable[int]) -> set[int]:
    """Delete events, and advance the horizon by which returning windows learn that they missed some."""
    xids = dict(Event.objects.filter(pk__in=ids).values_list("pk", "xid"))
    removed = remove_unlocked(Event.objects.all())(ids)
    if removed:
        xid, last = max((int(xids[each]), each) for each in removed)
        before = Q(horizon_xid__lt=xid) | Q(horizon_xid=xid, horizon_id__lt=last)
        Pruning.objects.filter(before, pk=EVENTS).update(horizon_xid=xid, horizon_id=last)
    return removed


def _remove_journals(ids: Iterable[int]) -> set[int]:
    """Delete the whole journals that these steps belong to."""
    turns = set(TurnStep.objects.filter(pk__in=ids).values_list("turn", flat=True))
    steps = TurnStep.objects.filter(turn__in=turns)
    return remove_unlocked(steps)(set(steps.values_list("pk", flat=True)))


_needing: list[QuerySet[Any]] = []


def keep_turns_of(rows: QuerySet[Any]) -> None:
    """Register rows of an app above whose `turn` must be kept."""
    _needing.append(rows)


def remove_turns(ids: Iterable[int]) -> set[int]:
    """Remove ended turns that are not guests; returns the removed ids, guests included.

    Turns that are locked or still needed are kept, with their guests and host.
    """
    load_rules()  # they say which rows of the apps above still need their turns
    families: dict[int, set[int]] = {turn: {turn} for turn in ids}
    for guest, host in Turn.objects.filter(host__in=families).values_list("pk", "host_id"):
        families[host].add(guest)
    members = [turn for family in families.values() for turn in family]
    unlocked = Turn.objects.filter(_HAS_ENDED, pk__in=members).order_by("pk")
    free = set(unlocked.select_for_update(skip_locked=True).values_list("pk", flat=True))
    for rows in _needing:
        free -= set(rows.filter(turn__in=members).values_list("turn", flat=True))
    going = {turn for family in families.values() if family <= free for turn in family}
    Turn.objects.filter(
        pk__in=going
    ).delete()  # with their journals; all other references to them become null
    return going


def _beyond_count(session: Any) -> Any:
    """Select a session's turns older than its newest `:keep`. Those that ended lately stay: a client may wait."""
    newer = _turn.alias()
    last = (
        sa.select(newer.c.id)
        .where(newer.c.session_id == session.c.id)
        .order_by(newer.c.id.desc())
        .offset(sa.bindparam("keep", type_=sa.BigInteger()))
        .limit(1)
        .correlate(session)
        .scalar_subquery()
    )
    return (
        sa.select(_turn.c.id)
        .where(
            _turn.c.session_id == session.c.id,
            _turn.c.id <= last,
            _turn.c.host_id.is_(None),
            _turn.c.state.in_([sa.literal_column(f"'{state}'") for state in ENDED_STATES]),
            _turn.c.finished_at < sa.func.now() - HOUR,
        )
        .order_by(_turn.c.id)
    )


def _old_executions(session: Any) -> Any:
    has_ended: Any = _execution.c.status.in_([sa.literal_column(f"'{status}'") for status in ENDED])
    return (
        sa.select(_execution.c.id)
        .where(_execution.c.session_id == session.c.id, has_ended, old(_execution.c.updated_at))
        .order_by(_execution.c.created_at)
    )


@dataclass(frozen=True, kw_only=True)
class JobSessionsWalk:
    """Removes archived sessions of background jobs, by age and by the number that one job has (rule 6.3)."""

    name: str = "job sessions"

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> WalkStep:
        """Handle the next jobs, as far as the sessions fit in one batch. `position`: the last job that is done."""
        room, removed, done = min(limit, JOB_SESSIONS_AT_ONCE), 0, position
        for _ in range(JOBS_AT_ONCE):
            job = _next_job(done.get("agent", 0), done.get("job", ""))
            if job is None:
                return WalkStep(removed=removed)
            found = _job_sessions_to_remove(job, None if dry else room - removed + 1)
            going = found if dry else found[: room - removed]
            gone = len(going) if dry or not going else remove_archived(going)
            removed += gone
            if len(going) < len(found) and (gone or not going):
                break  # the next batch begins with this job
            done = {"agent": job[0], "job": job[1]}
        return WalkStep(removed=removed, position=done, more=True)


def _archived() -> QuerySet[Session]:
    return Session.objects.filter(type=SessionType.JOB, state=SessionState.ARCHIVED)


def _next_job(agent: int, job: str) -> tuple[int, str] | None:
    """Return agent and id of the first job after this one that has archived sessions."""
    jobs = _archived().order_by("agent_id", "chat_id").values_list("agent_id", "chat_id")
    return jobs.filter(agent=agent, chat_id__gt=job).first() or jobs.filter(agent__gt=agent).first()


def _job_sessions_to_remove(job: tuple[int, str], most: int | None) -> list[Any]:
    """Return the ids of at most so many archived sessions of the job that are too many or too old."""
    rows = _archived().filter(agent=job[0], chat_id=job[1]).values_list("pk", flat=True)
    going = ~Q(pk__in=list(rows.order_by("-created_at")[:KEPT_PER_JOB]))
    if days := settings.RONDO_KEEP_JOB_SESSIONS_DAYS:
        going |= Q(updated_at__lt=Now() - timedelta(days=days))
    return list(rows.filter(going)[:most])


@dataclass(frozen=True, kw_only=True)
class SpendingWalk:
    """Removes what was spent in periods that have ended: none is longer than a month, and no run lasts that long."""

    name: str = "spending"

    def step(self, position: dict[str, Any], limit: int, *, dry: bool) -> WalkStep:
        """Handle the oldest rows. `position` is not needed."""
        old = Spending.objects.filter(
            created_at__lt=Now() - timedelta(days=SPENDING_DAYS), reserved_tokens=0, reserved_micro_usd=0
        )
        found = list(old.order_by("created_at").values_list("pk", flat=True)[:limit])
        gone = found if dry else remove_unlocked(old)(found)
        return WalkStep(
            removed=len(gone), position=position, more=not dry and len(found) == limit and bool(gone)
        )


_WALKS: tuple[Walk, ...] = (
    AgeWalk(
        name=EVENTS,
        days=lambda: settings.RONDO_KEEP_EVENTS_DAYS,
        rows=Event.objects.all(),
        ended_at="created_at",
        remove=_remove_events,
    ),
    AgeWalk(
        name="journals",
        days=lambda: settings.RONDO_KEEP_JOURNALS_DAYS,
        rows=TurnStep.objects.all(),
        may_go=Q(turn__state__in=ENDED_STATES),
        ended_at="turn__finished_at",
        remove=_remove_journals,
    ),
    AgeWalk(
        name="turns by age",
        days=lambda: settings.RONDO_KEEP_TURNS_DAYS,
        rows=Turn.objects.all(),
        born="queued_at",
        may_go=_HAS_ENDED & Q(host__isnull=True),
        ended_at="finished_at",
        remove=remove_turns,
    ),
    OwnerWalk(
        name="turns by count",
        params=lambda: _if_set("keep", settings.RONDO_KEEP_TURNS_PER_SESSION),
        owners=SESSIONS,
        over=of_owners(table(Session).c.id, _beyond_count),
        remove=remove_turns,
    ),
    OwnerWalk(  # session by session, because the ids of executions have no order
        name="executions",
        params=lambda: _if_set("days", settings.RONDO_KEEP_TURNS_DAYS),
        owners=SESSIONS,
        over=of_owners(table(Session).c.id, _old_executions),
        # the status is checked again, since an execution may be resumed meanwhile
        remove=remove_unlocked(ExecutionState.objects.filter(status__in=ENDED)),
    ),
    AgeWalk(
        name="mailbox events",
        days=lambda: settings.RONDO_KEEP_MAILBOX_DAYS,
        rows=MailboxEvent.objects.all(),
        ended_at=Coalesce("acknowledged_at", "dropped_at"),
    ),
    AgeWalk(  # a dead letter has not ended: it is kept until somebody resends or closes it
        name="deliveries",
        days=lambda: settings.RONDO_KEEP_DELIVERIES_DAYS,
        rows=Delivery.objects.all(),
        ended_at="ended_at",
    ),
    AgeWalk(
        name="idempotency keys",
        days=lambda: IDEMPOTENCY_KEPT.days,
        rows=IdempotencyKey.objects.all(),
        ended_at="created_at",
    ),
    # a day after it was made a link or a ticket has long expired
    AgeWalk(name="invitations", days=lambda: 30, rows=Invitation.objects.all(), ended_at="expires_at"),
    AgeWalk(name="sign-in links", days=lambda: 1, rows=SignInLink.objects.all(), ended_at="expires_at"),
    AgeWalk(name="stream tickets", days=lambda: 1, rows=StreamTicket.objects.all(), ended_at="expires_at"),
    JobSessionsWalk(),
    SpendingWalk(),
)


def _if_set(name: str, value: int) -> dict[str, Any] | None:
    return {name: value} if value else None


def register_walks() -> None:
    """Register the walks of this app."""
    for walk in _WALKS:
        register_walk(walk)
