"""Create, change and delete hooks, and make their tokens. `inbound.py` takes their messages.

A token is shown once and not stored. It is derived from the server's secret key and a salt in the hook's row. So the
server can check a signature without being sent the token, and somebody who reads only the database can make neither.
"""

from __future__ import annotations

import hmac
import secrets
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction
from django.utils.crypto import salted_hmac

from agent_core.execution import new_id
from sessions_app import permits
from sessions_app.channels import base as channels
from sessions_app.exceptions import BadInput, TooManyHooks
from sessions_app.models import BACKGROUND, Agent, Hook, Session
from sessions_app.postgres.rows import existing
from sessions_app.queue.threads import must_be_open
from sessions_app.single_line import check_line
from sessions_app.tokens.issue import hashed

MOST_HOOKS = 20  # of one agent
LONGEST_NAME = 64  # characters
PREFIX = "rin_"
_PURPOSE = "rondo.hook"
_CHANGEABLE = frozenset({"name", "channel", "address", "signed", "as_person", "allow_tools", "enabled"})


@dataclass(frozen=True, kw_only=True)
class NewHook:
    """A hook to create. Without a session its messages go to the agent's primary one."""

    agent_id: int
    name: str
    session_id: uuid.UUID | None = None
    channel: str = ""
    address: str = ""
    signed: bool = False
    as_person: bool = False
    allow_tools: Sequence[str] = ()


@transaction.atomic
def add_hook(new: NewHook) -> Hook:
    """Create a hook; `token_of` gives its token. BadInput, NotFound, SessionClosed, TooManyHooks."""
    hook = Hook(id=new_id(), **asdict(new))
    _check_name(hook)
    _check_route(hook)
    agent = existing(Agent.objects.select_for_update(no_key=True).filter(pk=new.agent_id))
    hook.allow_tools = permits.check_allowed_tools(new.allow_tools, (), agent.mcp_servers)
    if Hook.objects.filter(agent=new.agent_id).count() >= MOST_HOOKS:
        raise TooManyHooks(f"an agent has at most {MOST_HOOKS} hooks")
    if new.session_id is not None:
        _must_be_a_conversation(new.agent_id, new.session_id)
    _new_token(hook)
    hook.save(force_insert=True)
    return hook


@transaction.atomic
def update_hook(hook_id: str, changes: Mapping[str, Any], *, revision: int | None = None) -> Hook:
    """Change name, route, `signed`, `as_person`, `allow_tools` or `enabled`.

    BadInput, NotFound; RevisionConflict when the hook's revision is not `revision`.
    """
    hook = _locked(hook_id, revision)
    if unknown := changes.keys() - _CHANGEABLE:
        raise BadInput(f"{min(unknown)!r} of a hook cannot be changed", code="not_editable")
    allowed_before = hook.allow_tools
    for name, value in changes.items():
        setattr(hook, name, value)
    if "allow_tools" in changes:
        hook.allow_tools = permits.check_allowed_tools(
            hook.allow_tools, allowed_before, hook.agent.mcp_servers
        )
    _check_name(hook)
    if changes.keys() & {"channel", "address"}:  # other changes are possible when the channel is gone
        _check_route(hook)
    return _saved(hook, *changes)


@transaction.atomic
def renew_token(hook_id: str) -> str:
    """Replace the token of a hook; the old one stops working. NotFound."""
    hook = _locked(hook_id)
    token = _new_token(hook)
    _saved(hook, "token_salt", "token_sha256")
    return token


@transaction.atomic
def delete_hook(hook_id: str, *, revision: int | None = None) -> None:
    """Delete a hook; its messages stay. NotFound, RevisionConflict."""
    _locked(hook_id, revision).delete()


def _locked(hook_id: str, revision: int | None = None) -> Hook:
    return existing(Hook.objects.select_for_update(no_key=True).filter(pk=hook_id), revision=revision)


def _saved(hook: Hook, *columns: str) -> Hook:
    hook.revision += 1
    hook.save(update_fields=[*columns, "revision"])
    return hook


def _check_name(hook: Hook) -> None:
    check_line("name", hook.name)
    if not hook.name.strip():
        raise BadInput("the name is empty", code="empty_name")
    if len(hook.name) > LONGEST_NAME:
        raise BadInput(f"the name is longer than {LONGEST_NAME} characters", code="bad_name")


def _check_route(hook: Hook) -> None:
    if hook.channel or hook.address:
        channels.check_destination(hook.channel, hook.address, hook.agent_id)


def _must_be_a_conversation(agent_id: int, session_id: uuid.UUID) -> None:
    """NotFound, SessionClosed; BadInput for an internal session, in which people cannot talk."""
    session = must_be_open(Session.objects.filter(pk=session_id, agent=agent_id).first())
    if session.type in BACKGROUND:
        text = f"this session ({session.type}) is internal; choose a conversation"
        raise BadInput(text, code="internal_session")


def _new_token(hook: Hook) -> str:
    """Set a new token on the hook and return it; the caller saves the row."""
    hook.token_salt = secrets.token_hex(16)
    token = token_of(hook)
    hook.token_sha256 = hashed(token)
    return token


def token_of(hook: Hook) -> str:
    """Derive the token again. After a change of SECRET_KEY the result is a different, invalid token."""
    made = salted_hmac(_PURPOSE, f"{hook.pk}:{hook.token_salt}", algorithm="sha256").digest()
    return PREFIX + urlsafe_b64encode(made).decode().rstrip("=")


def is_token_of(hook: Hook, token: str) -> bool:
    """Whether the token is this hook's, compared in constant time."""
    return hmac.compare_digest(hashed(token), hook.token_sha256)


def is_signed(header: str, signature: str) -> bool:
    """Whether the header has this signature among others, separated by spaces, compared in constant time."""
    return True in [hmac.compare_digest(each.encode(), signature.encode()) for each in header.split()]
