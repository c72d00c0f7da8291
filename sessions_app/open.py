"""Opening agents and sessions."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from sessions_app import belongings
from sessions_app.channels import base as channels
from sessions_app.exceptions import AgentExists, BadInput, NotFound, SessionExists
from sessions_app.models import PRIMARY_KEY, Agent, ChatType, Delivery, Session, SessionType, Turn, TurnState
from sessions_app.models.session import LONGEST_ADDRESS

RESERVED_PREFIXES = ("unified:", "heartbeat:", "job:", "cron:")
LONGEST_KEY = 200  # characters


def create_agent(owner: AbstractBaseUser, name: str, **fields: Any) -> Agent:
    """Make an agent with its primary session. AgentExists, BadInput."""
    agent = Agent(owner=owner, name=name, **fields)  # type: ignore[misc]
    try:
        agent.clean_fields()
    except ValidationError as error:
        raise BadInput("; ".join(error.messages)) from error
    try:
        with transaction.atomic():
            agent.save(force_insert=True)
            Session.objects.create(
                agent=agent,
                owner_id=agent.owner_id,
                key=PRIMARY_KEY,
                type=SessionType.PRIMARY,
                title="Primary",
                title_given=True,
            )
            belongings.made(agent)
    except IntegrityError as error:
        raise AgentExists(f"you have an agent named {name!r} already") from error
    return agent


def open_session(
    agent: Agent,
    *,
    key: str = "",
    channel: str = "",
    chat_type: str = ChatType.PRIVATE,
    title: str = "",
    address: str = "",
) -> Session:
    """Open a sub session; its key is `<channel>:<id>`, made up when none is given. SessionExists, BadInput.

    `address`: where its answers go; the id of a key that was given, unless something else is said.
    """
    channel = channel or key.partition(":")[0] or "web"
    address = address or key.partition(":")[2] * (channel != channels.WEB)
    key = key or f"{channel}:{secrets.token_hex(8)}"
    _check_key(key, channel)
    _check_address(channel, address)
    session = Session(
        id=uuid.uuid4(),
        agent=agent,
        owner_id=agent.owner_id,
        key=key,
        type=SessionType.SUB,
        channel=channel,
        chat_id=address or key.partition(":")[2],
        chat_type=chat_type,
        title=title,
        title_given=bool(title),
    )
    try:
        session.clean_fields()
        with transaction.atomic():
            session.save(force_insert=True)
    except ValidationError as error:
        raise BadInput("; ".join(error.messages)) from error
    except IntegrityError as error:
        if not Agent.objects.filter(pk=agent.pk).exists():
            raise NotFound("there is no such agent") from error
        raise SessionExists(f"the agent has a session {key!r} already") from error
    return session


def must_be_free(key: str) -> None:
    """BadInput `reserved_key` for the key of a session that the server itself opens."""
    if key.startswith(RESERVED_PREFIXES):
        raise BadInput(f"the key {key!r} is reserved", code="reserved_key")


def _check_key(key: str, channel: str) -> None:
    must_be_free(key)
    if not channels.NAME.fullmatch(channel):
        raise BadInput(
            "a channel has 1 to 32 small letters, digits, dashes and underscores", code="bad_channel"
        )
    if (
        not key.startswith(f"{channel}:")
        or not key.isprintable()
        or not len(channel) + 1 < len(key) <= LONGEST_KEY
    ):
        text = f"a key is `{channel}:<id>`, printable, of at most {LONGEST_KEY} characters"
        raise BadInput(text, code="bad_key")


def _check_address(channel: str, address: str) -> None:
    if channel in channels.known():
        channels.check(channel, address)
    elif address and channel == channels.WEB:
        raise BadInput("what is said on the web does not leave the server", code="bad_address")
    elif not address.isprintable() or len(address) > LONGEST_ADDRESS:
        text = f"an address is printable, of at most {LONGEST_ADDRESS:,} characters"
        raise BadInput(text, code="bad_address")


def move_session(session_id: uuid.UUID, address: str) -> None:
    """Send a session's answers elsewhere, those too that are still here. NotFound, BadInput."""
    with transaction.atomic():
        session = Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()
        if session is None:
            raise NotFound("there is no such session")
        channels.check(session.channel, address)
        before = {"channel": session.channel, "chat_id": session.chat_id}
        if session.last_route and before.items() <= session.last_route.items():
            session.last_route = session.last_route | {"chat_id": address}
        session.chat_id = address
        session.save(update_fields=["chat_id", "last_route"])
        # a running turn looks for itself when it commits
        for turn in Turn.objects.filter(session=session, state=TurnState.QUEUED).select_for_update(
            no_key=True
        ):
            if before.items() <= turn.metadata.get("route", {}).items():
                turn.metadata["route"]["chat_id"] = address
                turn.save(update_fields=["metadata"])
        Delivery.objects.filter(session=session).move(before["channel"], before["chat_id"], address)


def primary_session(agent: Agent) -> Session:
    """The agent's primary session."""
    return Session.objects.get(agent=agent, key=PRIMARY_KEY)


def rename_session(session_id: uuid.UUID, title: str) -> None:
    """Give a session another title; its revision counts commits and stays. NotFound."""
    with transaction.atomic():
        session = Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()
        if session is None:
            raise NotFound("there is no such session")
        session.title, session.title_given = title, bool(title)
        session.save(update_fields=["title", "title_given"])
