"""Inbound webhooks: a post to a hook becomes a turn; with `as_person` it counts as a person's message.

Senders may repeat a post: the same message id gives the same turn as long as that is kept, at least an hour after its
end. A message whose timestamp differs by more than MOST_SKEW is refused.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Subquery
from django.db.models.functions import Coalesce, Now

from sessions_app.channels.chats import chat_type_of
from sessions_app.channels.webhook import sign
from sessions_app.exceptions import BadInput, BadSignature, IdempotencyMismatch, StaleRequest, UnknownHook
from sessions_app.hooks import edit
from sessions_app.models import PRIMARY_KEY, ChatType, Hook, HookSender, OnBusy, Session, Turn, TurnInput
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.single_line import check_line

MOST_SKEW = 300  # seconds between a message's timestamp and the database's clock
LONGEST_ID = 200  # characters of a message's id
LONGEST_KEY = 200  # of a turn's idempotency key
LONGEST_SENDER = 200
USE_NOTED = timedelta(minutes=1)  # a busy hook's row is not written for each message
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The credentials of a request: its headers, empty when missing, and the bytes of its body."""

    token: str = field(repr=False)
    message_id: str
    timestamp: str
    signature: str = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """An authenticated sender. `session_id` is the session that gets the messages, `now` the database's time."""

    hook: Hook
    session_id: uuid.UUID
    now: datetime
    is_signed: bool
    proof: Proof


def authenticate(hook_id: str, proof: Proof) -> Caller:
    """Authenticate by the token or a signature made with it. UnknownHook, which does not tell what was wrong.

    Hooks of an inactive account count as disabled.
    """
    found: Any = _hooks().filter(pk=hook_id, enabled=True, agent__owner__is_active=True).first()
    # no token matches the new one; an unknown hook must take as long as a known one
    hook: Any = found or Hook(pk=hook_id)
    token = proof.token or edit.token_of(hook)
    known = edit.is_token_of(hook, token)
    signature = sign(token.encode(), proof.message_id, proof.timestamp, proof.body)
    is_signed = edit.is_signed(proof.signature, signature)
    if not known or not (proof.token or is_signed):
        raise UnknownHook
    return Caller(hook=hook, session_id=hook.target, now=hook.now, is_signed=is_signed, proof=proof)


def check_post(caller: Caller) -> None:
    """Check signature, timestamp and id of the message. BadSignature, StaleRequest, BadInput."""
    proof = caller.proof
    if (proof.signature or caller.hook.signed) and not caller.is_signed:
        raise BadSignature
    sent = int(proof.timestamp) if _TIMESTAMP.fullmatch(proof.timestamp) else 0
    if abs(caller.now.timestamp() - sent) > MOST_SKEW:
        raise StaleRequest
    text = proof.message_id
    if not 1 <= len(text) <= LONGEST_ID or not text.isascii() or not text.isprintable():
        problem = f"Webhook-Id must be 1 to {LONGEST_ID} printable ASCII characters"
        raise BadInput(problem, code="bad_webhook_id")


def post(caller: Caller, content: str, on_busy: OnBusy = OnBusy.ENQUEUE, sender: str = "") -> Turn:
    """Queue the message; the same id and body give the same turn.

    BadInput, NotFound, SessionClosed, SessionBusy, TooManyWaiting, IdempotencyMismatch.
    """
    hook = caller.hook
    if on_busy in {OnBusy.INJECT, OnBusy.INTERRUPT} and not hook.as_person:
        problem = f"{on_busy} needs a hook with as_person; use enqueue or reject"
        raise BadInput(problem, code="bad_on_busy")
    check_line("sender", sender)
    posted_by = HookSender(hook=hook.pk, name=hook.name, sender=sender, as_person=hook.as_person)
    message = MessageInput(
        content=content,
        on_busy=on_busy,
        about=TurnInput.of_post(
            posted_by,
            route=_route(hook),
            written_at=int(caller.proof.timestamp),
            in_group=_is_of_group(hook),
        ),
        idempotency_key=_turn_key(hook, caller.proof.message_id),
    )
    turn = receive(caller.session_id, message)
    earlier = turn.input.posted_by
    if earlier is None or earlier.sender != sender:  # receive() compares the rest of the body
        raise IdempotencyMismatch
    if hook.last_used_at is None or caller.now - hook.last_used_at > USE_NOTED:
        Hook.objects.filter(pk=hook.pk).update(last_used_at=Now())
    return turn


def _hooks() -> Any:
    """All hooks with their session, with `target`, the id of the session that gets the messages, and `now`."""
    primary = Session.objects.filter(agent=OuterRef("agent"), key=PRIMARY_KEY).values("pk")[:1]
    hooks = Hook.objects.select_related("session")
    return hooks.annotate(target=Coalesce("session_id", Subquery(primary)), now=Now())


def _is_of_group(hook: Hook) -> bool:
    """Whether its messages come from a group: by its session, or by the address that its answers go to.

    In unified mode the session that takes them is another, private one.
    """
    session = hook.session
    is_group = session is not None and session.chat_type == ChatType.GROUP
    return is_group or chat_type_of(hook.channel, hook.address) == ChatType.GROUP


def _route(hook: Hook) -> dict[str, Any] | None:
    """The route of the answers; None for the session's own."""
    if not hook.channel:
        return None
    return {"channel": hook.channel, "chat_id": hook.address, "meta": {}}


def _turn_key(hook: Hook, message_id: str) -> str:
    """The turn's idempotency key; it differs from those of other hooks and of the API."""
    key = f"hook:{hook.pk}:{message_id}"
    return key if len(key) <= LONGEST_KEY else f"hook-sha256:{hashlib.sha256(key.encode()).hexdigest()}"
