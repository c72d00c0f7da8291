"""Put an update into a session's mailbox (rules 6.1, 6.3). It takes no session lock and changes no history.

Everybody locks the agent before the session, and the session before its mailbox.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import transaction
from django.db.models import F, Model, Q, QuerySet
from django.db.models.functions import Now
from django.db.models.query import RawQuerySet

from sessions_app import events, flags, metrics
from sessions_app.mailbox.updates import SUPERSEDED, unread
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Event,
    EventType,
    MailboxEvent,
    Priority,
    Scope,
    Session,
    SessionState,
    SessionType,
    Turn,
)
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.models.session import WEB
from sessions_app.permits import has_read_in
from sessions_app.postgres.rows import lock_until_commit
from sessions_app.single_line import one_line

MOST_OF_A_SOURCE = 20  # unread updates of one type and source, so that one routine cannot fill the mailbox
MOST_UNREAD = 200  # unread updates in one mailbox
LONGEST_SUMMARY = 200
TOO_MANY = "too_many"

_Row = TypeVar("_Row", bound=Model)
# KEY SHARE does not block a commit of the target session. A delete, or a change of where updates go, waits for the
# deposit or has come first
_AGENT = """
SELECT id, unified_session FROM sessions_app_agent
WHERE id = coalesce((SELECT agent_id FROM sessions_app_session WHERE id = %s), %s) FOR KEY SHARE"""
_TARGET = "SELECT * FROM sessions_app_session WHERE id = %s FOR KEY SHARE"
_PRIMARY = "SELECT * FROM sessions_app_session WHERE agent_id = %s AND key = %s FOR KEY SHARE"


@dataclass(frozen=True, kw_only=True)
class NewUpdate:
    """An update to deposit. `summary` is one sentence; `detail` is the full text. A repeated `event_id` is ignored.

    `dedupe_key`: it replaces an unread update with the same key. `suppress_if_stale`: it is dropped after a day.
    `foreign`: its author had read text from outside (rule 3.5). `of_turn`: the turn that reports; the update is foreign
    if the turn had read such text, or an earlier one of its session.
    """

    event_type: str
    summary: str
    detail: str = ""
    source_key: str = ""
    priority: Priority = Priority.NORMAL
    artifacts: tuple[str, ...] = ()
    suppress_if_stale: bool = False
    dedupe_key: str = ""
    foreign: bool = False
    of_turn: Turn | None = None
    event_id: uuid.UUID = field(default_factory=uuid.uuid4)


def deposit(
    target_id: uuid.UUID | None, update: NewUpdate, *, hint: bool = True, or_primary_of: int | None = None
) -> bool:
    """Put an update into the session's mailbox. False if it was deposited before, or the session is gone.

    The agent's primary session gets it while no turn drains the session's mailbox (rule 6.3). `or_primary_of`: the
    agent whose primary session gets it if there is no target (rule 4.11). `hint`: tell the agent's windows that an
    update waits, without its text; two feature flags limit this to the session's windows, or switch it off.
    """
    with transaction.atomic(savepoint=bool(update.dedupe_key)):
        target = session_for(target_id, or_primary_of)
        if update.dedupe_key and not _supersede_unread(target, update):
            return False
        _, is_new = MailboxEvent.objects.get_or_create(
            event_id=update.event_id, defaults=_columns(update, target)
        )
        if not is_new:
            if update.dedupe_key:
                transaction.set_rollback(True)  # restore the update that this one had replaced
            return False
        if target is None:
            return False
        _drop_excess(target.pk)
        _announce(target, update, hint=hint and flags.hints_at_mail())
        metrics.count(metrics.Counted.MAILBOX_DEPOSIT)
    return True


def session_for(target_id: uuid.UUID | None, or_primary_of: int | None) -> Session | None:
    """The session that gets the update, which stays until the transaction ends. None: there is none.

    A turn drains the target unless it is archived, gone, or a web thread of a unified agent (rule 6.3).
    """
    agent = _first(Agent.objects.raw(_AGENT, [target_id, or_primary_of]))
    if agent is None:
        return None
    target = None if target_id is None else _first(Session.objects.raw(_TARGET, [target_id]))
    is_redirected = target is not None and agent.unified_session and target.is_thread
    if target is not None and target.state != SessionState.ARCHIVED and not is_redirected:
        return target
    if or_primary_of is None and (target is None or target.state == SessionState.DELETING):
        return None
    return _first(Session.objects.raw(_PRIMARY, [agent.pk, PRIMARY_KEY]))


def _first(rows: RawQuerySet[_Row]) -> _Row | None:
    return next(iter(rows), None)


def _columns(update: NewUpdate, target: Session | None) -> dict[str, Any]:
    """The row's values. A detail that only repeats the summary is left out."""
    turn = update.of_turn
    values = {
        "event_type": update.event_type,
        "dedupe_key": update.dedupe_key,
        "priority": update.priority,
        "suppress_if_stale": update.suppress_if_stale,
        "foreign": update.foreign or (turn is not None and has_read_in(turn)),
    }
    if target is None:  # the owner is unknown, so no text is kept
        return values | {"dropped_at": Now(), "reason": TARGET_GONE}
    summary, detail = one_line(update.summary, LONGEST_SUMMARY), update.detail.replace("\x00", "")
    return values | {
        "target": target,
        "summary": summary,
        "detail": "" if detail.strip() == summary else detail,
        "source_key": update.source_key,
        "artifacts": [each.replace("\x00", "") for each in update.artifacts],
    }


def _announce(target: Session, update: NewUpdate, *, hint: bool) -> None:
    """Notify the session's windows; with `hint` also store the event that every window of the agent may be shown."""
    everywhere = flags.tells_every_window()
    if hint:
        Event.objects.create(
            agent_id=target.agent_id,
            session=target,
            scope=Scope.AGENT if everywhere else Scope.SESSION,
            source_type="mailbox",
            type=EventType.STATUS,
            content={"has_unread_background_updates": True, "event_id": str(update.event_id)},
        )
    events.announce(target.pk, target.agent_id if hint and everywhere else None)


def _supersede_unread(target: Session | None, update: NewUpdate) -> bool:
    """Drop the unread update with the same key, one caller at a time. False if this update was deposited before."""
    _lock_keys(None if target is None else target.pk, [update.dedupe_key])
    if MailboxEvent.objects.filter(event_id=update.event_id).exists():
        return False
    if target is not None:
        same = unread().filter(target=target, dedupe_key=update.dedupe_key)
        same.update(dropped_at=Now(), reason=SUPERSEDED)
    return True


def _lock_keys(target_id: uuid.UUID | None, keys: list[str]) -> None:
    """Lock keys of a mailbox until the transaction ends, always in the same order."""
    for key in sorted(keys):
        lock_until_commit(f"rondo:mail:{target_id}:{key}")


def _drop_excess(target_id: uuid.UUID) -> None:
    """Drop unread updates over the limits, the oldest first. The oldest one of their source that stays counts them.

    Locked rows are skipped: a commit that acknowledges them at this moment has shown them.
    """
    rows = unread().filter(target_id=target_id)
    if not rows.order_by()[min(MOST_OF_A_SOURCE, MOST_UNREAD) :].exists():
        return
    waiting = list(rows.order_by("-id").defer("summary", "detail", "artifacts"))
    urgent_first = sorted(waiting, key=lambda row: -row.priority)  # the newest ones of each priority first
    worth = {row.pk for row in urgent_first[:MOST_UNREAD]}
    of_source: Counter[tuple[str, str]] = Counter()
    stays: list[MailboxEvent] = []
    going: list[MailboxEvent] = []
    for row in waiting:
        of_source[_source(row)] += 1
        is_kept = of_source[_source(row)] <= MOST_OF_A_SOURCE and row.pk in worth
        (stays if is_kept else going).append(row)
    oldest: dict[tuple[str, str], int] = {_source(row): row.pk for row in stays}
    dropped = list(_unlocked(row.pk for row in going))
    MailboxEvent.objects.filter(pk__in=[row.pk for row in dropped]).update(dropped_at=Now(), reason=TOO_MANY)
    lost: Counter[int] = Counter()
    for row in dropped:
        # if nothing of a source stays, the newest update of the mailbox counts them
        lost[oldest.get(_source(row), stays[0].pk)] += row.lost + 1
    for row in _unlocked(lost):
        MailboxEvent.objects.filter(pk=row.pk).update(lost=F("lost") + lost[row.pk])


def _source(row: MailboxEvent) -> tuple[str, str]:
    """The kind and id of what reports. All runs of an isolated routine are one source, though each has a session."""
    return row.event_type, re.sub(r":[0-9]+\Z", "", row.source_key)


def _unlocked(ids: Iterable[int]) -> QuerySet[MailboxEvent]:
    rows = unread().filter(pk__in=list(ids)).order_by("pk").defer("summary", "detail", "artifacts")
    return rows.select_for_update(skip_locked=True, no_key=True)


@contextmanager
def moving_undrained(agent_id: int, session_id: uuid.UUID | None = None) -> Iterator[None]:
    """Archive or open a session, or switch an agent's unified mode, in this context (rule 6.3).

    Then unread updates that no turn would show are in the agent's primary session. Of several with one key the newest
    stays. Nothing is moved back.
    """
    changed: QuerySet[Any] = Agent.objects.filter(pk=agent_id)
    sessions = Session.objects.filter(agent_id=agent_id)
    if session_id is not None:
        changed = sessions = sessions.filter(pk=session_id)
    with transaction.atomic():
        # before the change: each deposit has read this row and committed, or waits and then sees the change
        list(changed.select_for_update(of=("self",)).values_list("pk"))
        yield
        _move_undrained(agent_id, sessions)


def _move_undrained(agent_id: int, sessions: QuerySet[Session]) -> None:
    is_thread = Q(type=SessionType.SUB, channel=WEB, agent__unified_session=True)
    undrained = sessions.filter(is_thread | Q(state=SessionState.ARCHIVED)).exclude(key=PRIMARY_KEY)
    stuck = unread().filter(target__in=undrained.values("pk"))
    moved = dict(stuck.select_for_update(of=("self",)).order_by("pk").values_list("pk", "dedupe_key"))
    primary = Session.objects.filter(agent_id=agent_id, key=PRIMARY_KEY).values_list("pk", flat=True).first()
    if not moved or primary is None:
        return
    keys = list({key for key in moved.values() if key})
    _lock_keys(primary, keys)
    alike = unread().filter(Q(pk__in=moved) | Q(target=primary), dedupe_key__in=keys)
    newest = dict(alike.order_by("pk").values_list("dedupe_key", "pk"))
    alike.exclude(pk__in=newest.values()).update(dropped_at=Now(), reason=SUPERSEDED)
    unread().filter(pk__in=moved).update(target=primary)
    _drop_excess(primary)
