"""The mailbox of a session: updates from other sessions' work, shown with the next turn (rule 6.2).

Step 0 of a turn's journal lists the updates that were shown, and the turn's commit acknowledges exactly those. A failed
turn acknowledges nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from agent_core.strategies import Update
from sessions_app import metrics
from sessions_app.models import MailboxEvent, Turn
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.single_line import one_line

MOST_EVENTS = 50  # updates shown with one turn
MOST_CHARACTERS = 20_000  # of all updates shown with one turn; the rest waits for the next turn
MOST_ARTIFACTS = 20  # shown of one update
LONGEST_ARTIFACT = 200
STALE_AFTER = timedelta(hours=24)
SUPERSEDED, STALE, SETTLED = "superseded", "stale", "settled"  # why an update was dropped


@dataclass(frozen=True, kw_only=True)
class ShownUpdates:
    """Updates that a turn shows, urgent ones first. `ids` are their rows. `foreign`: one of them is foreign."""

    ids: tuple[int, ...] = ()
    updates: tuple[Update, ...] = ()
    foreign: bool = False


def unread() -> QuerySet[MailboxEvent]:
    """Return the updates that were neither acknowledged nor dropped."""
    return MailboxEvent.objects.filter(acknowledged_at__isnull=True, dropped_at__isnull=True)


def updates_to_show(session_id: uuid.UUID) -> ShownUpdates:
    """Read the unread updates that fit into one turn, and drop stale ones. The rest waits for the next turn.

    The first one is always included, so that no update waits for ever; a text that is too long is cut, with a note.
    """
    _drop_stale(session_id)
    waiting = unread().filter(target_id=session_id).order_by("-priority", "id")[:MOST_EVENTS]
    ids: list[int] = []
    updates: list[Update] = []
    foreign = False
    room = MOST_CHARACTERS
    for event in waiting:
        update = _shown(event)
        room -= len(update.summary) + len(update.detail) + sum(map(len, update.artifacts))
        if updates and room < 0:
            break
        ids.append(event.pk)
        updates.append(update)
        foreign = foreign or event.foreign
    return ShownUpdates(ids=tuple(ids), updates=tuple(updates), foreign=foreign)


def _shown(event: MailboxEvent) -> Update:
    detail, artifacts = event.detail, [_cut(str(each)) for each in event.artifacts]
    if len(detail) > MOST_CHARACTERS:
        detail = (
            f"{detail[:MOST_CHARACTERS]} … ({MOST_CHARACTERS:,} of {len(detail):,} characters;"
            f" the mailbox holds all of update {event.event_id})"
        )
    if len(artifacts) > MOST_ARTIFACTS:
        artifacts[MOST_ARTIFACTS:] = [f"and {len(artifacts) - MOST_ARTIFACTS} more"]
    lost = f" ({event.lost:,} older ones were dropped unread: too many waited)" if event.lost else ""
    return Update(
        event_type=event.event_type, summary=event.summary + lost, detail=detail, artifacts=tuple(artifacts)
    )


def _cut(artifact: str) -> str:
    shown = one_line(artifact, LONGEST_ARTIFACT + 1)
    return shown if len(shown) <= LONGEST_ARTIFACT else f"{shown[:LONGEST_ARTIFACT]}…"


def summaries(ids: tuple[int, ...]) -> tuple[str, ...]:
    """Return the summaries of these updates, in this order."""
    found = dict(MailboxEvent.objects.filter(pk__in=ids).values_list("pk", "summary")) if ids else {}
    return tuple(found[pk] for pk in ids if pk in found)


def acknowledge(turn: Turn, ids: Iterable[int]) -> None:
    """Mark updates as shown by this turn, in its commit. Those dropped meanwhile stay dropped."""
    shown = unread().filter(pk__in=list(ids)).update(acknowledged_at=Now(), acknowledged_by=turn)
    if shown:
        metrics.count(metrics.Counted.MAILBOX_DRAIN, shown)


def drop_settled(event_id: uuid.UUID) -> None:
    """Drop the update about a question that waits no more, unless it was shown."""
    unread().filter(event_id=event_id).update(dropped_at=Now(), reason=SETTLED)


def detach_from_sessions(session_ids: list[uuid.UUID]) -> None:
    """Prepare the sessions' deletion: drop unread updates without keeping their text, and delete the others."""
    unread().filter(target_id__in=session_ids).update(
        target=None, dropped_at=Now(), reason=TARGET_GONE, summary="", detail="", artifacts=[], source_key=""
    )
    MailboxEvent.objects.filter(target_id__in=session_ids).delete()


def _drop_stale(session_id: uuid.UUID) -> None:
    stale = unread().filter(target_id=session_id, suppress_if_stale=True, created_at__lt=Now() - STALE_AFTER)
    stale.update(dropped_at=Now(), reason=STALE)
