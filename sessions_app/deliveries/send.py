"""Send deliveries, each at least once; those of one session and channel in order (rule 9.3).

Claim it, send it with no database connection held, settle it. The claim of a sender that dies expires; another sender
then repeats the delivery with the same key. What cannot be sent ends as a dead letter that people see.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import Exists, F, Q
from django.db.models.functions import Now

from agent_core.telemetry import spans
from agent_core.text.redact import redact
from sessions_app import events, metrics
from sessions_app.channels import base
from sessions_app.channels.base import Needless, Parcel, Unsent
from sessions_app.channels.webhook import secret_of
from sessions_app.deliveries import outbox
from sessions_app.hints import DeliveryLane
from sessions_app.metrics import Counted
from sessions_app.models import Delivery, DeliveryState, Event, EventType, Message
from sessions_app.models.delivery import ON_THE_WAY, DeliveryTransitions
from sessions_app.postgres.retry import retry_while_down
from sessions_app.tracing import delivery_span

log = structlog.get_logger(__name__)

SLACK = 5.0  # seconds for what a sender does beside sending
MOST_RENEWALS = 10  # of a claim whose channel does not return, one after each RONDO_DELIVERY_SECONDS
JITTER = 0.2  # of each wait, up or down: deliveries that failed together are not all repeated together
LONGEST_ERROR = 300  # characters
_COUNTERS = {
    DeliveryState.SENT: Counted.DELIVERY_SENT,
    DeliveryState.FAILED: Counted.DELIVERY_FAILED,
}
# of an inactive owner it waits, and is sent late
_IS_DUE = (Q(next_attempt_at=None) | Q(next_attempt_at__lte=Now())) & Q(session__owner__is_active=True)


def _of(lane: DeliveryLane) -> DeliveryTransitions:
    return Delivery.objects.filter(session_id=lane.session_id, channel=lane.channel)


def _open(lane: DeliveryLane) -> DeliveryTransitions:
    """The open deliveries of a lane. Nothing overtakes the oldest, also while it waits for another attempt."""
    return _of(lane).filter(state__in=ON_THE_WAY).order_by("pk")


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """The destination of a lane's next delivery: `place` is its channel and host, `owner` the id of the user."""

    place: str
    owner: int


def receiver_of(lane: DeliveryLane) -> Receiver | None:
    """Return the receiver of the lane's next delivery, or None if nothing is due."""
    head = Delivery.objects.filter(_IS_DUE, pk__in=_open(lane).values("pk")[:1])
    found = head.values_list("address", "session__owner_id").first()
    if found is None:
        return None
    address, owner = found
    channel = base.sender(lane.channel)
    try:
        place = f"{channel.name}:{channel.place(address)}" if channel else lane.channel
    except Exception:  # noqa: BLE001 - an address from before a change; the attempt to send it reports why
        place = lane.channel
    return Receiver(place=place, owner=owner)


def send_next(lane: DeliveryLane) -> bool:
    """Try the lane's next delivery once. False: nothing is due."""
    # after this time without a renewal the sender counts as dead
    lease = timedelta(seconds=2 * settings.RONDO_DELIVERY_SECONDS + SLACK)
    delivery = _claimed(lane, lease)
    if delivery is None:
        return False
    with _renewed_claim(delivery, lease), delivery_span(delivery) as span:
        failure = _try(delivery)
        if failure is not None and not isinstance(failure, Needless):
            spans.fail(span, "final" if failure.final else "unsent")
    # without the result, the delivery would be repeated when the lease ends: wait for the database instead
    retry_while_down(lambda: _settle(delivery, failure))
    return True


@transaction.atomic
def _claimed(lane: DeliveryLane, lease: timedelta) -> Delivery | None:
    """Claim the oldest open delivery of a lane, unless it is not due. A second sender waits here for the first."""
    head = _open(lane).select_for_update(no_key=True).first()
    if head is None:
        return None
    # a younger one may be sent now, if the head was a dead letter then, and was sent again since
    younger = _of(lane).filter(state=DeliveryState.SENDING, next_attempt_at__gt=Now()).exclude(pk=head.pk)
    is_claimed = Delivery.objects.filter(_IS_DUE, ~Exists(younger), pk=head.pk).update(
        state=DeliveryState.SENDING,
        claim=uuid.uuid4(),
        attempts=F("attempts") + 1,
        tried_at=Now(),
        next_attempt_at=Now() + lease,
    )
    rows = Delivery.objects.select_related("message__turn", "session__agent")
    return rows.get(pk=head.pk) if is_claimed else None


@contextmanager
def _renewed_claim(delivery: Delivery, lease: timedelta) -> Iterator[None]:
    """Renew the claim while the block runs, so that nobody else sends the delivery while a slow channel still tries."""
    done = threading.Event()

    def renew() -> None:
        for _ in range(MOST_RENEWALS):
            if done.wait(settings.RONDO_DELIVERY_SECONDS):
                return
            try:
                Delivery.objects.keep(delivery, lease)
            except Error:  # the database is down: the claim may expire, and the receiver recognizes the key
                log.warning("claim_not_kept", delivery=delivery.pk)
            finally:
                connection.close()

    threading.Thread(target=renew, name="rondo-claim", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _try(delivery: Delivery) -> Unsent | None:
    """Send the delivery; return what went wrong, None if nothing did."""
    channel = base.sender(delivery.channel)
    if channel is None:  # another worker may have it: settings and plugins do not reach all at the same time
        return Unsent(f"the channel {delivery.channel!r} is not set up")
    if delivery.attempts > len(settings.RONDO_DELIVERY_RETRY_SECONDS) + 1:
        return Unsent("the worker died in each attempt", final=True)
    parcel = _parcel(delivery)
    if parcel is None:  # deleted since it was claimed
        return Unsent("its message was deleted", final=True)
    connection.close()  # back to the pool: nothing is open while the receiver works
    try:
        number = channel.send(parcel)
        # a plugin may return anything
        delivery.number_at_channel = number if isinstance(number, int) else None
    except Unsent as failure:
        return failure
    except Exception as error:  # a plugin's bug must not stop the lane unseen
        log.exception("channel_broke", channel=channel.name)
        return Unsent(f"the channel failed ({type(error).__name__})")
    return None


def _parcel(delivery: Delivery) -> Parcel | None:
    """Make the parcel of a delivery; None: its message or session was deleted."""
    session, event, message = delivery.session, delivery.event or {}, delivery.message
    if session is None or not (event or message):
        return None
    return Parcel(
        key=delivery.idempotency_key,
        address=delivery.address,
        text=message.content if message else event.get("text", ""),
        secret=secret_of(session.agent_id),
        attempt=delivery.attempts,
        created_at=message.created_at if message else delivery.created_at,
        session_id=str(session.pk),
        session_key=session.key,
        agent=session.agent.name,
        meta=delivery.meta,
        about=_about(message) if message else event["data"],
        type="message" if message else event["type"],
        seconds=settings.RONDO_DELIVERY_SECONDS,
        user=str(session.agent.owner_id),
    )


def _about(message: Message) -> dict[str, object]:
    turn = message.turn
    about: dict[str, object] = {"seq": message.seq}
    if turn is not None:
        about |= {"turn": turn.pk, "kind": turn.kind, "state": turn.state, "run": turn.origin_run or None}
    told = ("source", "late", "late_seconds", "ended_by")
    return about | {name: message.metadata[name] for name in told if name in message.metadata}


def _settle(delivery: Delivery, failure: Unsent | None) -> None:
    with transaction.atomic():
        if not _store_result(delivery, failure):
            log.warning("delivery_stale", delivery=delivery.pk)  # another sender has it, or it was closed
            return
        if delivery.state in _COUNTERS:
            metrics.count(_COUNTERS[DeliveryState(delivery.state)])
        if failure is not None and not isinstance(failure, Needless):
            metrics.count(Counted.DELIVERY_ATTEMPT_FAILED, channel=delivery.channel.partition(":")[0])
        _add_event(delivery)
        if delivery.state != DeliveryState.PENDING:
            outbox.notify_settled(delivery)
    log.info(
        "delivery_tried", delivery=delivery.pk, channel=delivery.channel, state=delivery.state,
        attempt=delivery.attempts, error=str(failure) if failure else None,
    )  # fmt: skip


def _store_result(delivery: Delivery, failure: Unsent | None) -> bool:
    """Store SENT, another attempt, CLOSED or FAILED; False when the claim was lost."""
    if failure is None:
        return Delivery.objects.sent(delivery)
    error = redact(str(failure))[:LONGEST_ERROR] or "it failed"
    if isinstance(failure, Needless):
        return Delivery.objects.drop(delivery, error)
    waits = settings.RONDO_DELIVERY_RETRY_SECONDS
    # a delivery that waited longer than the whole retry schedule is attempted once
    patience = timedelta(seconds=(1 + JITTER) * sum(waits))
    is_too_old = datetime.now(UTC) - delivery.handed_over_at > patience
    if failure.final or delivery.attempts > len(waits) or is_too_old:
        return Delivery.objects.give_up(delivery, error)
    wait = waits[delivery.attempts - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
    return Delivery.objects.try_again(delivery, error, timedelta(seconds=max(wait, failure.wait)))


def _add_event(delivery: Delivery) -> None:
    """Tell the session's windows the result of this attempt."""
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
