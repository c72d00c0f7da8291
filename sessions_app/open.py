"""Opening agents and sessions."""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from sessions_app.exceptions import AgentExists, BadInput, SessionExists
from sessions_app.models import PRIMARY_KEY, Agent, ChatType, Session, SessionType

RESERVED_PREFIXES = ("unified:", "heartbeat:", "job:", "cron:")


def create_agent(owner: AbstractBaseUser, name: str, **fields: Any) -> Agent:
    """Make an agent with its primary session. AgentExists, BadInput."""
    agent = Agent(owner=owner, name=name, **({"model": settings.RONDO_MODEL} | fields))  # type: ignore[misc]
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
            )
    except IntegrityError as error:
        raise AgentExists(f"you have an agent named {name!r} already") from error
    return agent


def open_session(
    agent: Agent,
    *,
    key: str = "",
    channel: str = "web",
    chat_type: str = ChatType.PRIVATE,
    title: str = "",
    chat_id: str = "",
) -> Session:
    """Open a sub session; its key is `<channel>:<id>`. SessionExists, BadInput."""
    key = key or f"{channel}:{secrets.token_hex(8)}"
    if key.startswith(RESERVED_PREFIXES):
        raise BadInput(f"the key {key!r} is reserved", code="reserved_key")
    session = Session(
        id=uuid.uuid4(),
        agent=agent,
        owner_id=agent.owner_id,
        key=key,
        type=SessionType.SUB,
        channel=channel,
        chat_id=chat_id or key.partition(":")[2],
        chat_type=chat_type,
        title=title,
    )
    try:
        session.clean_fields()
        with transaction.atomic():
            session.save(force_insert=True)
    except ValidationError as error:
        raise BadInput("; ".join(error.messages)) from error
    except IntegrityError as error:
        raise SessionExists(f"the agent has a session {key!r} already") from error
    return session


def primary_session(agent: Agent) -> Session:
    """The agent's primary session."""
    return Session.objects.get(agent=agent, key=PRIMARY_KEY)
