"""Make, check and revoke tokens, addresses of calendars, and tickets for event streams. Only their hash is stored."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
import structlog
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import Error, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from agent_core.execution import new_id
from sessions_app.exceptions import BadInput, TooManyTickets, TooManyTokens
from sessions_app.models import Agent, ApiToken, CalendarAddress, Session, StreamTicket, TokenScope
from sessions_app.models.access import LONGEST_NAME, SHOWN
from sessions_app.postgres.notify import EVENTS, publisher
from sessions_app.postgres.rows import existing, fetch, instance_of
from sessions_app.postgres.statements import Statement, table
from sessions_app.single_line import check_line
from sessions_app.tokens.reach import share_of_limited

PREFIX = "rdo_"  # of a token, so that programs that look for leaked secrets recognize one
LONGEST = 200  # characters of a text that is worth hashing
MOST_TOKENS = 50  # of one user
LONGEST_LIFE = timedelta(days=3660)
USE_NOTED = timedelta(minutes=1)
_NOTE_USE = """
UPDATE sessions_app_apitoken SET last_used_at = now() WHERE id = (
    SELECT id FROM sessions_app_apitoken
    WHERE id = %s AND (last_used_at IS NULL OR last_used_at < now() - make_interval(secs => %s))
    FOR NO KEY UPDATE SKIP LOCKED
)"""

log = structlog.get_logger(__name__)


def new_secret() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    """Return the hash. The secrets are random, so no slow hash is needed against guessing."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class NewToken:
    """A token to make. `agent` or `session` limits what it reaches. Without `expires_at` it never expires."""

    name: str
    scopes: Iterable[str]
    agent: Agent | None = None
    session: Any = None
    expires_at: datetime | None = None


def make_token(user: AbstractBaseUser, new: NewToken, secret: str = "") -> tuple[ApiToken, str]:
    """Make a token for the user. Returns its row and the token itself, which is not stored.

    `secret` is used as the token if it is given. BadInput, NotFound, TooManyTokens.
    """
    scopes = _checked(new)
    secret = secret or PREFIX + new_secret()
    with transaction.atomic():
        # tokens of one user are made one at a time, so that the count is exact
        existing(User.objects.select_for_update(no_key=True).filter(pk=user.pk))
        if ApiToken.objects.filter(user=user.pk).count() >= MOST_TOKENS:
            raise TooManyTokens(f"a user has at most {MOST_TOKENS} tokens; revoke one")
        row = ApiToken(
            id=new_id(),
            user_id=user.pk,
            name=new.name,
            token_sha256=hashed(secret),
            prefix=secret[:SHOWN],
            scopes=scopes,
            agent_id=_limit_to_agent(user, new.agent),
            session_id=_limit_to_session(user, new.session),
            expires_at=new.expires_at,
        )
        row.save(force_insert=True)
    return row, secret


def _checked(new: NewToken) -> list[str]:
    """Return the scopes without duplicates, in the order of TokenScope. BadInput."""
    if not new.name.strip():
        raise BadInput("a token needs a name", code="empty_name")
    if len(new.name) > LONGEST_NAME:
        raise BadInput(f"the name is longer than {LONGEST_NAME} characters", code="bad_name")
    check_line("name", new.name)
    given = set(new.scopes)
    if unknown := sorted(given - set(TokenScope.values)):
        text = f"there is no scope {unknown[0][:LONGEST_NAME]!r}; use {', '.join(TokenScope.values)}"
        raise BadInput(text, code="bad_scopes")
    if not given:
        raise BadInput(f"a token needs a scope: {', '.join(TokenScope.values)}", code="bad_scopes")
    if new.agent is not None and new.session is not None:
        text = "a token is limited to an agent or to a session, not to both"
        raise BadInput(text, code="bad_limit", errors={"agent": [text], "session": [text]})
    _check_end(new.expires_at)
    return [each for each in TokenScope.values if each in given]


def _check_end(end: datetime | None) -> None:
    now = datetime.now(UTC)
    if end is not None and end <= now:
        raise BadInput("expires_at must be in the future", code="past_time")
    if end is not None and end > now + LONGEST_LIFE:
        raise BadInput(f"expires_at must be within {LONGEST_LIFE.days} days", code="bad_expires_at")


def _limit_to_agent(user: AbstractBaseUser, agent: Agent | None) -> int | None:
    if agent is None:
        return None
    return int(existing(Agent.objects.filter(pk=agent.pk, owner_id=user.pk)).pk)


def _limit_to_session(user: AbstractBaseUser, session: Any) -> uuid.UUID | None:
    if session is None:
        return None
    return existing(Session.objects.filter(pk=session.pk, owner_id=user.pk)).pk


def find_token(secret: str) -> ApiToken | None:
    """Return the token and its user, if it is valid now. Nothing is cached, so a revoked token is not found."""
    return None if len(secret) > LONGEST else _found(_BY_SECRET.first(secret=hashed(secret)))


def valid_token(token_id: str) -> ApiToken | None:
    """Return the token with this id and its user, if it is valid now."""
    return _found(_BY_ID.first(id=token_id))


def _found(row: Any) -> ApiToken | None:
    if row is None:
        return None
    token = instance_of(ApiToken, row[: len(_token.c)])
    token.user = instance_of(User, row[len(_token.c) :])
    return token


def _select_valid(which: Any) -> Any:
    user = [column.label(f"owner_{column.name}") for column in _user.c]
    in_time = sa.or_(_token.c.expires_at.is_(None), _token.c.expires_at > sa.func.now())
    rows = sa.select(*_token.c, *user).join(_user, _user.c.id == _token.c.user_id)
    return rows.where(which, in_time, _user.c.is_active)


_token, _user = table(ApiToken), table(User)
_BY_SECRET = Statement(
    _select_valid(_token.c.token_sha256 == sa.bindparam("secret", type_=sa.Text())), prepared=True
)
_BY_ID = Statement(_select_valid(_token.c.id == sa.bindparam("id", type_=sa.Text())), prepared=True)


def note_use(token: ApiToken) -> None:
    """Store when the token was used, to the minute. A locked row or an error is ignored: the request goes on."""
    if token.last_used_at is not None and datetime.now(UTC) - token.last_used_at < USE_NOTED:
        return
    try:
        fetch(_NOTE_USE, [token.pk, USE_NOTED.total_seconds()])
    except Error as error:
        log.warning("token_use_not_noted", error=type(error).__name__)


def revoke_tokens(tokens: QuerySet[ApiToken]) -> int:
    """Delete tokens, which ends their streams and tickets. Returns the number of deleted tokens."""
    with transaction.atomic():
        _, counts = tokens.delete()
        # open streams are checked again at once
        transaction.on_commit(lambda: publisher().notify(EVENTS, {"look": "all"}), robust=True)
    return counts.get(ApiToken._meta.label, 0)


# Tickets for browsers, whose EventSource cannot send a token in a header: each opens one stream, by its address.

TICKET_VALID = timedelta(seconds=60)
MOST_OPEN = 100  # unused tickets of one user; a limited token may have half of them
_REDEEM = """
DELETE FROM sessions_app_streamticket WHERE ticket_sha256 = %s AND expires_at > now() RETURNING token_id"""


def issue_ticket(token: ApiToken) -> tuple[str, datetime]:
    """Make a ticket. Returns it and the time when it expires. TooManyTickets."""
    ticket = new_secret()
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=token.user_id)
        is_open = StreamTicket.objects.filter(token__user=token.user_id, expires_at__gt=Now())
        if is_open.count() >= MOST_OPEN or (
            token.is_limited and is_open.filter(token=token).count() >= share_of_limited(MOST_OPEN)
        ):
            raise TooManyTickets
        row = StreamTicket.objects.create(
            token=token, ticket_sha256=hashed(ticket), expires_at=Now() + TICKET_VALID
        )
        row.refresh_from_db(fields=["expires_at"])
    return ticket, row.expires_at


def redeem_ticket(ticket: str) -> ApiToken | None:
    """Return the ticket's token if both are valid now, and delete the ticket, which can be used only once."""
    if len(ticket) > LONGEST:
        return None
    found = fetch(_REDEEM, [hashed(ticket)])
    return valid_token(found[0][0]) if found else None


# The secret address at which other programs read a user's calendar: one for each user.


def make_calendar_token(user: AbstractBaseUser) -> str:
    """Make the token of the user's calendar in place of the one before. It is not stored."""
    token = new_secret()
    made = {"token_sha256": hashed(token), "created_at": Now()}
    CalendarAddress.objects.update_or_create(user_id=user.pk, defaults=made)
    return token


def calendar_owner(token: str) -> User | None:
    """Return the active user whose calendar has this token."""
    if len(token) > LONGEST:
        return None
    found = CalendarAddress.objects.filter(token_sha256=hashed(token), user__is_active=True)
    row = found.select_related("user").first()
    return row.user if row else None


def revoke_calendar(user: AbstractBaseUser) -> None:
    """Delete the address of the user's calendar."""
    CalendarAddress.objects.filter(user_id=user.pk).delete()
