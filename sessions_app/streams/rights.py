"""The limits of open streams: how many a user may have, and whether their access is still valid."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as Browser

from sessions_app.exceptions import TooManyStreams
from sessions_app.models import Agent, ApiToken, Session
from sessions_app.postgres.statements import Statement, table
from sessions_app.streams.event_log import Topic, array_parameter
from sessions_app.tokens.issue import valid_token
from sessions_app.tokens.limits import share_of_limited


@dataclass(frozen=True, kw_only=True)
class Right:
    """The access of a stream: a user, and the id of a token, or a browser's session with the password hash then.

    `expires_at`: when the token expires. `only`: the session that it is limited to. `is_limited`: to one, or an agent.
    """

    user_id: int
    token: str | None = None
    expires_at: datetime | None = None
    only: uuid.UUID | None = None
    is_limited: bool = False
    browser: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)  # hashed; a change of it ends the streams of browsers


class StreamSlots:
    """Counts each user's open streams in this process, together with requests that wait for a turn.

    A limited token is counted by itself, too: it has half of them at most, so that it cannot shut its owner out.
    """

    def __init__(self) -> None:
        self._taken: Counter[int | str] = Counter()  # by the id of a user or of a limited token
        self._guard = threading.RLock()  # re-entrant: the garbage collector may free a stream at any point

    def taken(self, user_id: int) -> int:
        """The number of slots that the user has taken."""
        with self._guard:
            return self._taken[user_id]

    def take(self, right: Right) -> Callable[[], None]:
        """Take a slot; returns the function that frees it. TooManyStreams."""
        most: dict[int | str, int] = {right.user_id: settings.RONDO_STREAMS_PER_USER}
        if right.is_limited and right.token is not None:
            most[right.token] = share_of_limited(settings.RONDO_STREAMS_PER_USER)
        with self._guard:
            full = next((key for key in most if self._taken[key] >= most[key]), None)
            if full is not None:
                who = "This token has" if isinstance(full, str) else "You have"
                raise TooManyStreams(
                    f"{who} {most[full]} event streams open, as many as RONDO_STREAMS_PER_USER allows. Close one."
                )
            self._taken.update(most.keys())
        taken = list(most)

        def free() -> None:
            with self._guard:
                while taken:
                    key = taken.pop()
                    self._taken[key] -= 1
                    if not self._taken[key]:
                        del self._taken[key]

        return free


STREAM_SLOTS = StreamSlots()


def is_revoked(right: Right) -> bool:
    """Whether the token of this access is not valid any more."""
    return right.token is not None and valid_token(right.token) is None


def _doubtful() -> Statement:
    asked = (
        sa.func.unnest(
            array_parameter("users", sa.BigInteger()),
            array_parameter("tokens", sa.Text()),
            array_parameter("browsers", sa.Text()),
            array_parameter("sessions", sa.Uuid()),
            array_parameter("agents", sa.BigInteger()),
        )
        .table_valued("user_id", "token", "browser", "session_id", "agent_id", with_ordinality="number")
        .render_derived(name="a")
    )
    user, token, browser = table(User), table(ApiToken), table(Browser)
    session, agent = table(Session), table(Agent)
    has_token = sa.exists().where(
        token.c.id == asked.c.token,
        token.c.user_id == user.c.id,
        sa.or_(token.c.expires_at.is_(None), token.c.expires_at > sa.func.clock_timestamp()),
    )
    is_logged_in = sa.exists().where(
        browser.c.session_key == asked.c.browser, browser.c.expire_date > sa.func.now()
    )
    has_session = sa.exists().where(session.c.id == asked.c.session_id, session.c.owner_id == user.c.id)
    has_agent = sa.exists().where(agent.c.id == asked.c.agent_id, agent.c.owner_id == user.c.id)
    holds = sa.func.coalesce(
        sa.and_(
            user.c.is_active,
            sa.or_(asked.c.token.is_(None), has_token),
            sa.or_(asked.c.browser.is_(None), is_logged_in),
            sa.or_(has_session, has_agent),
        ),
        sa.false(),
    )
    # valid tokens are left out of the answer; a browser's password is compared outside
    return Statement(
        sa.select(asked.c.number, user.c.password, holds.label("holds"))
        .select_from(asked.outerjoin(user, user.c.id == asked.c.user_id))
        .where(sa.or_(~holds, asked.c.browser.is_not(None)))
    )


DOUBTFUL = _doubtful()


def lapsed(held: Sequence[tuple[Right, Topic]]) -> set[int]:
    """The indexes of those without access now. One statement for all."""
    rights = [right for right, _ in held]
    rows = DOUBTFUL.all(
        users=[right.user_id for right in rights],
        tokens=[right.token for right in rights],
        browsers=[right.browser for right in rights],
        sessions=[opened if isinstance(opened, uuid.UUID) else None for _, opened in held],
        agents=[opened if isinstance(opened, int) else None for _, opened in held],
    )
    numbered = [(row.number - 1, row) for row in rows]
    return {number for number, row in numbered if not (row.holds and _is_same(row.password, rights[number]))}


def _is_same(password: str, right: Right) -> bool:
    return right.browser is None or password == right.password
