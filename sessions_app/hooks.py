"""Hooks: made, changed, given another token, deleted. What comes in by them is `sessions_app/inbound.py`'s."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from sessions_app import hook_tokens
from sessions_app.channels import base as channels
from sessions_app.exceptions import BadInput, NotFound, RevisionConflict, TooManyHooks
from sessions_app.executions import new_id
from sessions_app.lines import check_line
from sessions_app.models import BACKGROUND, Agent, Hook, Session
from sessions_app.unified import must_be_open

MOST_HOOKS = 20  # of one agent
LONGEST_NAME = 64  # characters
_CHANGEABLE = frozenset({"name", "channel", "address", "signed", "as_person", "enabled"})


@dataclass(frozen=True, kw_only=True)
class NewHook:
    """A hook to be made. Without a session its messages go to the agent's primary one."""

    agent_id: int
    name: str
    session_id: uuid.UUID | None = None
    channel: str = ""
    address: str = ""
    signed: bool = False
    as_person: bool = False


@transaction.atomic
def add_hook(new: NewHook) -> Hook:
    """Make a hook; `hook_tokens.token_of` is its token. BadInput, NotFound, SessionClosed, TooManyHooks."""
    hook = Hook(
        id=new_id(),
        agent_id=new.agent_id,
        session_id=new.session_id,
        name=new.name,
        channel=new.channel,
        address=new.address,
        signed=new.signed,
        as_person=new.as_person,
    )
    _check_name(hook)
    _check_route(hook)
    if not Agent.objects.select_for_update(no_key=True).filter(pk=new.agent_id).exists():
        raise NotFound("there is no such agent")
    if Hook.objects.filter(agent=new.agent_id).count() >= MOST_HOOKS:
        raise TooManyHooks(f"an agent has at most {MOST_HOOKS} hooks")
    if new.session_id is not None:
        _must_be_a_conversation(new.agent_id, new.session_id)
    hook_tokens.renew(hook)
    hook.save(force_insert=True)
    return hook


@transaction.atomic
def update_hook(hook_id: str, changes: Mapping[str, Any], *, revision: int | None = None) -> Hook:
    """Change name, route, `signed`, `as_person` or `enabled`. BadInput, NotFound; RevisionConflict: not `revision`."""
    hook = _locked(hook_id, revision)
    if unknown := changes.keys() - _CHANGEABLE:
        raise BadInput(f"{min(unknown)!r} cannot be changed", code="not_editable")
    for name, value in changes.items():
        setattr(hook, name, value)
    _check_name(hook)
    if changes.keys() & {"channel", "address"}:  # a channel that is gone since is in no other change's way
        _check_route(hook)
    return _saved(hook, *changes)


@transaction.atomic
def renew_token(hook_id: str) -> str:
    """Give a hook another token; the old one is worth nothing from now on. NotFound."""
    hook = _locked(hook_id)
    token = hook_tokens.renew(hook)
    _saved(hook, "token_salt", "token_sha256")
    return token


@transaction.atomic
def delete_hook(hook_id: str, *, revision: int | None = None) -> None:
    """Delete a hook; what came in by it stays. NotFound, RevisionConflict."""
    _locked(hook_id, revision).delete()


def _locked(hook_id: str, revision: int | None = None) -> Hook:
    hook = Hook.objects.select_for_update(no_key=True).filter(pk=hook_id).first()
    if hook is None:
        raise NotFound("there is no such hook")
    if revision is not None and revision != hook.revision:
        raise RevisionConflict
    return hook


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
        channels.check(hook.channel, hook.address)


def _must_be_a_conversation(agent_id: int, session_id: uuid.UUID) -> None:
    """NotFound, SessionClosed; BadInput for a session in which nobody reads what people say."""
    session = must_be_open(Session.objects.filter(pk=session_id, agent=agent_id).first())
    if session.type in BACKGROUND:
        raise BadInput(f"this session ({session.type}) is internal", code="internal_session")
