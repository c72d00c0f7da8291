"""Inbound: what another system posts by a hook becomes a message; a person's, if the hook says so.

Twice is normal: a message has an id, and the same id is the same turn for as long as its turn is kept, which is an hour
after its end at least; a message whose timestamp is older than MOST_SKEW is not taken at all.
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

from sessions_app import hook_tokens
from sessions_app.exceptions import BadInput, BadSignature, IdempotencyMismatch, StaleRequest, UnknownHook
from sessions_app.lines import check_line
from sessions_app.models import PRIMARY_KEY, Hook, OnBusy, Session, Turn
from sessions_app.receive import Input, receive

MOST_SKEW = 300  # seconds between a message's timestamp and the database's clock
LONGEST_ID = 200  # characters of a message's id
LONGEST_KEY = 200  # of a turn's idempotency key
LONGEST_SENDER = 200
USE_NOTED = timedelta(minutes=1)  # a busy hook's row is not written for each message
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a request shows for itself: headers as they came, empty where there are none, and the body's bytes."""

    token: str = field(repr=False)
    message_id: str
    timestamp: str
    signature: str = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who has the hook's token. `session_id` is where the messages go, `now` the database's clock."""

    hook: Hook
    session_id: uuid.UUID
    now: datetime
    is_signed: bool
    proof: Proof


def authenticate(hook_id: str, proof: Proof) -> Caller:
    """Who posts, by the token or by a signature made with it. UnknownHook, in the same words whatever is wrong."""
    found: Any = _hooks().filter(pk=hook_id, enabled=True).first()
    hook: Any = found or Hook(pk=hook_id)  # a row that no token fits, so that all is done for it, too
    token = proof.token or hook_tokens.token_of(hook)
    known = hook_tokens.is_token_of(hook, token)
    signature = hook_tokens.sign(token, proof.message_id, proof.timestamp, proof.body)
    is_signed = hook_tokens.is_signed(proof.signature, signature)
    if not known or not (proof.token or is_signed):
        raise UnknownHook
    return Caller(hook=hook, session_id=hook.target, now=hook.now, is_signed=is_signed, proof=proof)


def check(caller: Caller) -> None:
    """Whether this very message may come in now. BadSignature, StaleRequest, BadInput."""
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

    BadInput, NotFound, SessionClosed, SessionBusy, IdempotencyMismatch.
    """
    hook = caller.hook
    if on_busy == OnBusy.INJECT and not hook.as_person:
        problem = "a hook must be as_person for its messages to be injected"
        raise BadInput(problem, code="bad_on_busy")
    check_line("sender", sender)
    via = {"hook": hook.pk, "name": hook.name, "sender": sender, "as_person": hook.as_person}
    message = Input(
        content=content,
        on_busy=on_busy,
        metadata={"message": {"via": via}},
        idempotency_key=_turn_key(hook, caller.proof.message_id),
        route=_route(hook),
    )
    turn = receive(caller.session_id, message)
    if turn.metadata["message"]["via"]["sender"] != sender:  # the rest of the body receive() has compared
        raise IdempotencyMismatch
    if hook.last_used_at is None or caller.now - hook.last_used_at > USE_NOTED:
        Hook.objects.filter(pk=hook.pk).update(last_used_at=Now())
    return turn


def _hooks() -> Any:
    """The hooks with `target`, the id of the session that takes the messages, and `now`."""
    primary = Session.objects.filter(agent=OuterRef("agent"), key=PRIMARY_KEY).values("pk")[:1]
    return Hook.objects.annotate(target=Coalesce("session_id", Subquery(primary)), now=Now())


def _route(hook: Hook) -> dict[str, Any] | None:
    """Where answers go; None for where the session's own go."""
    if not hook.channel:
        return None
    return {"channel": hook.channel, "chat_id": hook.address, "meta": {}}


def _turn_key(hook: Hook, message_id: str) -> str:
    """The message's id as its turn keeps it, apart from other hooks' and other doors' keys."""
    key = f"hook:{hook.pk}:{message_id}"
    return key if len(key) <= LONGEST_KEY else f"hook-sha256:{hashlib.sha256(key.encode()).hexdigest()}"
