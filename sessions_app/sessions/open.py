"""Open, archive and rename sessions, and change their address and chat.

An archived session accepts no input, its queued turns are cancelled, and nothing bound to it runs.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from sessions_app.channels import base as channels
from sessions_app.channels import chats
from sessions_app.events import announce
from sessions_app.exceptions import BadInput, NotFound, SessionClosed, SessionExists
from sessions_app.limits import quotas
from sessions_app.mailbox.deposit import moving_undrained
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Delivery,
    Event,
    EventType,
    Session,
    SessionState,
    SessionType,
    Turn,
    TurnState,
)
from sessions_app.models.session import BACKGROUND, LONGEST_ADDRESS, WEB, rerouted
from sessions_app.postgres.rows import existing
from sessions_app.queue.cancel import cancel_waiting

RESERVED_PREFIXES = ("unified:", "heartbeat:", "job:", "cron:")
LONGEST_KEY = 200  # characters


def open_session(
    agent: Agent,
    *,
    key: str = "",
    channel: str = "",
    chat_type: str = "",
    title: str = "",
    address: str = "",
    channel_meta: Any = None,
    served_elsewhere: bool = False,
) -> Session:
    """Open a sub session. Its key is `<channel>:<id>`, generated if none is given. SessionExists, BadInput,
    TooManySessions.

    `address`: where its answers go; by default the id of the given key. `channel_meta`: metadata for the channel.
    Without `chat_type` the address says whether it is a group. `served_elsewhere`: the session comes from another
    server, so its channel need not be set up here.
    """
    channel = channel or key.partition(":")[0] or "web"
    address = address or key.partition(":")[2] * (channel != WEB)
    key = key or f"{channel}:{secrets.token_hex(8)}"
    _check_key(key, channel)
    _check_address(channel, address, agent.pk, unserved=served_elsewhere)
    meta = chats.check_channel_meta(channel, {} if channel_meta is None else channel_meta)
    session = Session(
        id=uuid.uuid4(),
        agent=agent,
        owner_id=agent.owner_id,
        key=key,
        type=SessionType.SUB,
        channel=channel,
        chat_id=address or key.partition(":")[2],
        chat_type=chat_type or chats.chat_type_of(channel, address),
        channel_meta=meta,
        title=title,
        title_given=bool(title),
    )
    _insert(session)
    return session


def _insert(session: Session) -> None:
    """Store a new session. SessionExists if its key is taken, NotFound if its agent was deleted; BadInput;
    TooManySessions.
    """
    try:
        session.clean_fields()
        with transaction.atomic():
            quotas.check_sessions(session.owner_id)
            session.save(force_insert=True)
    except ValidationError as error:
        raise BadInput("; ".join(error.messages)) from error
    except IntegrityError as error:
        if not Agent.objects.filter(pk=session.agent_id).exists():
            raise NotFound("there is no such agent") from error
        raise SessionExists(f"the agent already has a session {session.key!r}") from error


def check_key_not_reserved(key: str) -> None:
    """Refuse keys of sessions that the server itself opens: BadInput `reserved_key`."""
    if key.startswith(RESERVED_PREFIXES):
        raise BadInput(f"the key {key!r} is reserved; use another prefix", code="reserved_key")


def _check_key(key: str, channel: str) -> None:
    check_key_not_reserved(key)
    if not channels.NAME.fullmatch(channel):
        raise BadInput(
            f"bad channel {channel[:40]!r}: use 1 to 32 lower-case letters, digits, dashes and underscores",
            code="bad_channel",
        )
    if (
        not key.startswith(f"{channel}:")
        or not key.isprintable()
        or not len(channel) + 1 < len(key) <= LONGEST_KEY
    ):
        text = f"bad key {key[:60]!r}: use `{channel}:<id>` with at most {LONGEST_KEY} printable characters"
        raise BadInput(text, code="bad_key")


def _check_address(channel: str, address: str, agent_id: int, *, unserved: bool) -> None:
    if channel == WEB:
        if address:
            raise BadInput(
                "the channel 'web' takes no address: its messages stay on the server", code="bad_address"
            )
    elif not unserved or channel in channels.known():
        channels.check_destination(channel, address, None if unserved else agent_id)
    elif not address.isprintable() or len(address) > LONGEST_ADDRESS:
        text = f"bad address {address[:60]!r}: use at most {LONGEST_ADDRESS:,} printable characters"
        raise BadInput(text, code="bad_address")


def change_chat(
    session_id: uuid.UUID,
    *,
    address: str | None = None,
    channel_meta: Any = None,
    chat_type: str | None = None,
) -> None:
    """Change where a session's answers go and whether the chat is a group; None leaves a value as it is.

    Answers that were not sent yet go to the new address too. NotFound, BadInput.
    """
    with transaction.atomic():
        session = existing(Session.objects.select_for_update(no_key=True).filter(pk=session_id))
        before = session.own_route
        if address is not None:
            channels.check_destination(session.channel, address, session.agent_id)
            session.chat_id = address
        if channel_meta is not None:
            session.channel_meta = chats.check_channel_meta(session.channel, channel_meta)
        if chat_type is not None:
            session.chat_type = chats.check_chat_type(chat_type)
        if session.last_route:
            session.last_route = rerouted(session.last_route, before, session.own_route)
        session.save(update_fields=["chat_id", "channel_meta", "chat_type", "last_route"])
        if session.own_route != before:
            _redirect(session, before)


def _redirect(session: Session, before: Mapping[str, Any]) -> None:
    """Send queued turns' answers and waiting deliveries to the new chat. A running turn checks when it commits."""
    for turn in Turn.objects.filter(session=session, state=TurnState.QUEUED).select_for_update(no_key=True):
        route = turn.input.route
        if route and (now := rerouted(route, before, session.own_route)) != route:
            Turn.objects.change_queued(turn, turn.content, route=now)
    Delivery.objects.filter(session=session).move(before, session.own_route)


def primary_session(agent: Agent) -> Session:
    """Return the agent's primary session."""
    return Session.objects.get(agent=agent, key=PRIMARY_KEY)


def rename_session(session_id: uuid.UUID, title: str) -> None:
    """Change a session's title. Its revision stays, since that counts commits. NotFound."""
    with transaction.atomic():
        session = existing(Session.objects.select_for_update(no_key=True).filter(pk=session_id))
        session.title, session.title_given = title, bool(title)
        session.save(update_fields=["title", "title_given"])


@transaction.atomic
def archive(session_id: uuid.UUID) -> bool:
    """Archive an open session. False if it was not open; then nothing is changed."""
    if not Session.objects.filter(pk=session_id).archive():
        return False
    waiting = Turn.objects.filter(session_id=session_id, state=TurnState.QUEUED, host__isnull=True)
    for turn_id in list(waiting.order_by("pk").values_list("pk", flat=True)):
        cancel_waiting(turn_id, "session_archived")
    return True


def archive_session(session: Session) -> None:
    """Archive a person's conversation. Nothing is changed if it is archived already. BadInput, SessionClosed."""
    _set_archived(session, archived=True)


def unarchive_session(session: Session) -> None:
    """Open an archived conversation again. Nothing is changed if it is open already. BadInput, SessionClosed."""
    _set_archived(session, archived=False)


def _set_archived(session: Session, *, archived: bool) -> None:
    """Change the state, tell the open windows, and move unread updates that no turn would show."""
    _must_be_conversation(session)
    rows = Session.objects.filter(pk=session.pk)
    with moving_undrained(session.agent_id, session.pk):
        if archive(session.pk) if archived else rows.unarchive():
            told = {"status": "archived" if archived else "unarchived"}
            Event.objects.create(
                agent_id=session.agent_id, session_id=session.pk, type=EventType.STATUS, content=told
            )
            announce(session.pk)
        elif not rows.filter(state__in=(SessionState.OPEN, SessionState.ARCHIVED)).exists():
            raise SessionClosed("the session is being deleted")


def _must_be_conversation(session: Session) -> None:
    if session.type == SessionType.PRIMARY:
        raise BadInput("the agent's own conversation cannot be archived", code="primary_session")
    if session.type in BACKGROUND:
        raise BadInput(f"a {session.type} session is archived by the server only", code="internal_session")
