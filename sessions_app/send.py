"""Send: one delivery after the other, head first within a session and channel, at least once (rule 9.3).

Claim, send with no connection held, settle. A sender that dies leaves a claim that runs out; whoever comes next sends
again, and the receiver knows the key already. What cannot be sent ends as a dead letter that people see.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
import structlog
from django.conf import settings
from django.db import Error, connection, transaction

from sessions_app import deliver, events, metrics
from sessions_app.channels import base
from sessions_app.channels.base import Channel, Parcel, Unsent
from sessions_app.metrics import Counted
from sessions_app.models import Delivery, DeliveryState, Event, EventType, Turn
from sessions_app.models.delivery import ON_THE_WAY
from sessions_app.patience import patiently
from sessions_app.signing import secret_of
from sessions_app.sql import Statement, table
from sessions_app.wake import PostLane

log = structlog.get_logger(__name__)

SLACK = 5.0  # seconds for what a sender does beside sending
MOST_KEPT = 10  # times the time of an attempt that a claim is kept for a channel that does not come back
JITTER = 0.2  # of each wait, to both sides: what failed together need not come again together
LONGEST_ERROR = 300  # characters
_delivery = table(Delivery)
_open = _delivery.c.state.in_([sa.literal_column(f"'{state}'") for state in ON_THE_WAY])
_is_due = sa.or_(_delivery.c.next_attempt_at.is_(None), _delivery.c.next_attempt_at <= sa.func.now())


def _head() -> sa.Select[tuple[int]]:
    """The oldest on the way of a session and channel: nothing overtakes it, also while it waits for an attempt."""
    row = _delivery.alias()
    return (
        sa.select(row.c.id)
        .where(
            row.c.session_id == sa.bindparam("session_id", type_=sa.Uuid()),
            row.c.channel == sa.bindparam("channel", type_=sa.Text()),
            row.c.state.in_([sa.literal_column(f"'{state}'") for state in ON_THE_WAY]),
        )
        .order_by(row.c.id)
        .limit(1)
    )


def _another_is_sent() -> Any:
    """A younger one is being sent: its head was a dead letter then, and was taken up again since."""
    other = _delivery.alias()
    return sa.exists().where(
        other.c.session_id == sa.bindparam("session_id", type_=sa.Uuid()),
        other.c.channel == sa.bindparam("channel", type_=sa.Text()),
        other.c.state == sa.literal_column(f"'{DeliveryState.SENDING}'"),
        other.c.id != _delivery.c.id,
        other.c.next_attempt_at > sa.func.now(),
    )


CLAIM = Statement(
    sa.update(_delivery)
    # the state is repeated here: the head may have changed while the subselect waited for its row
    .where(_delivery.c.id == _head().with_for_update().scalar_subquery(), _open, _is_due, ~_another_is_sent())
    .values(
        state=DeliveryState.SENDING.value,
        claim=sa.bindparam("new_claim", type_=sa.Uuid()),
        attempts=_delivery.c.attempts + 1,
        tried_at=sa.func.now(),
        next_attempt_at=sa.func.now() + sa.bindparam("lease", type_=sa.Interval()),
    )
    .returning(_delivery.c.id)
)
PEEK = Statement(
    sa.select(_delivery.c.address).where(_delivery.c.id == _head().scalar_subquery(), _open, _is_due)
)


def place_of(lane: PostLane) -> str | None:
    """Where the lane's next parcel goes, channel and host; None: nothing is to be sent now."""
    row = PEEK.first(session_id=lane.session_id, channel=lane.channel)
    if row is None:
        return None
    channel = base.known().get(lane.channel)
    try:
        return f"{lane.channel}:{channel.place(row.address) if channel else ''}"
    except Exception:  # noqa: BLE001 - an address from before a change; sending it will say what is wrong
        return lane.channel


def send_next(lane: PostLane) -> bool:
    """Send what is next in the lane; False: there is nothing to send now."""
    delivery = _claimed(lane)
    if delivery is None:
        return False
    with _kept(delivery):
        failure = _failure(delivery)
    # a settle that is lost sends again when the lease is over: rather wait for the database
    patiently(lambda: _settle(delivery, failure))
    return True


def _claimed(lane: PostLane) -> Delivery | None:
    row = CLAIM.first(
        session_id=lane.session_id, channel=lane.channel, new_claim=uuid.uuid4(), lease=_lease()
    )
    if row is None:
        return None
    return Delivery.objects.select_related("message__turn", "session__agent").get(pk=row.id)


def _lease() -> timedelta:
    """When it is over, whoever sends it is taken for dead."""
    return timedelta(seconds=2 * settings.RONDO_DELIVERY_SECONDS + SLACK)


@contextmanager
def _kept(delivery: Delivery) -> Iterator[None]:
    """Meanwhile the claim is kept: a channel that keeps time badly is slow, not dead, and nobody sends beside it."""
    done = threading.Event()

    def keep() -> None:
        for _ in range(MOST_KEPT):
            if done.wait(settings.RONDO_DELIVERY_SECONDS):
                return
            try:
                Delivery.objects.keep(delivery, _lease())
            except Error:  # the database is away: the claim may run out, and the key tells them apart
                log.warning("claim_not_kept", delivery=delivery.pk)
            finally:
                connection.close()

    threading.Thread(target=keep, name="rondo-claim", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _failure(delivery: Delivery) -> Unsent | None:
    """Send it; what went wrong."""
    channel = base.known().get(delivery.channel)
    if (
        channel is None
    ):  # another worker may know it: settings and plugins come one after the other to a fleet
        return Unsent(f"nothing here sends to {delivery.channel!r}")
    if delivery.attempts > len(settings.RONDO_DELIVERY_RETRY_SECONDS) + 1:
        return Unsent("whoever sent it died, each time", final=True)
    if delivery.message is None or delivery.session is None:
        return Unsent("its text is gone", final=True)
    try:
        parcel = _parcel(delivery)
    except Unsent as failure:
        return failure
    connection.close()  # back to the pool: nothing is open while the receiver takes its time
    return _refused(channel, parcel)


def _refused(channel: Channel, parcel: Parcel) -> Unsent | None:
    try:
        channel.send(parcel)
    except Unsent as failure:
        return failure
    except Exception as error:  # a plugin's bug must not stop the lane unseen
        log.exception("channel_broke", channel=channel.name)
        return Unsent(f"the channel failed ({type(error).__name__})")
    return None


def _parcel(delivery: Delivery) -> Parcel:
    message, session = delivery.message, delivery.session
    if message is None or session is None:  # deleted since it was claimed
        raise Unsent("its text is gone", final=True)
    return Parcel(
        key=delivery.idempotency_key,
        address=delivery.address,
        text=message.content,
        secret=secret_of(session.agent_id),
        attempt=delivery.attempts,
        created_at=message.created_at,
        session_id=str(session.pk),
        session_key=session.key,
        agent=session.agent.name,
        meta=delivery.meta,
        seconds=settings.RONDO_DELIVERY_SECONDS,
        about={"seq": message.seq, **_of_turn(message.turn), **_source(message.metadata)},
    )


def _of_turn(turn: Turn | None) -> dict[str, object]:
    if turn is None:
        return {}
    return {"turn": turn.pk, "kind": turn.kind, "state": turn.state, "run": turn.origin_run or None}


def _source(metadata: dict[str, object]) -> dict[str, object]:
    return {name: metadata[name] for name in ("source", "late", "late_seconds") if name in metadata}


def _settle(delivery: Delivery, failure: Unsent | None) -> None:
    with transaction.atomic():
        if not _settled(delivery, failure):
            log.warning("delivery_stale", delivery=delivery.pk)  # another sender has it, or it was closed
            return
        _tell(delivery)
        if delivery.state != DeliveryState.PENDING:
            deliver.tell(delivery)
    log.info(
        "delivery_tried", delivery=delivery.pk, channel=delivery.channel, state=delivery.state,
        attempt=delivery.attempts, error=str(failure) if failure else None,
    )  # fmt: skip


def _settled(delivery: Delivery, failure: Unsent | None) -> bool:
    if failure is None:
        return _counted(Counted.DELIVERY_SENT, Delivery.objects.sent(delivery))
    error = str(failure)[:LONGEST_ERROR] or "it failed"
    waits = settings.RONDO_DELIVERY_RETRY_SECONDS
    if failure.final or delivery.attempts > len(waits) or _is_too_old(delivery):
        return _counted(Counted.DELIVERY_FAILED, Delivery.objects.give_up(delivery, error))
    wait = waits[delivery.attempts - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
    return Delivery.objects.try_again(delivery, error, timedelta(seconds=max(wait, failure.wait)))


def _is_too_old(delivery: Delivery) -> bool:
    """Patience is one for all that waits in a lane: who waited as long behind another has one attempt of its own."""
    patience = (1 + JITTER) * sum(settings.RONDO_DELIVERY_RETRY_SECONDS)
    return datetime.now(UTC) - delivery.handed_over_at > timedelta(seconds=patience)


def _counted(name: Counted, done: bool) -> bool:
    if done:
        metrics.count(name)
    return done


def _tell(delivery: Delivery) -> None:
    """The windows of the session: what became of this attempt."""
    session, message = delivery.session, delivery.message
    if session is None or message is None:
        return
    turn = message.turn
    Event.objects.create(
        agent_id=session.agent_id,
        session=session,
        turn_id=message.turn_id,
        source_type=turn.kind if turn else "",
        run_id=turn.origin_run if turn else "",
        type=EventType.DELIVERY,
        content={
            "delivery": delivery.pk,
            "seq": message.seq,
            "channel": delivery.channel,
            "state": delivery.state,
            "attempt": delivery.attempts,
            "error": delivery.last_error if delivery.state != DeliveryState.SENT else None,
        },
    )
    events.announce(session.pk)
