"""The limits of open streams: how many a user may have, and whether their access is still valid."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings

from sessions_app.exceptions import TooManyStreams
from sessions_app.postgres.rows import fetch
from sessions_app.streams.items import Topic
from sessions_app.tokens.issue import valid_token
from sessions_app.tokens.reach import share_of_limited


@dataclass(frozen=True, kw_only=True)
class Right:
    """The access of a stream: a user, and the id of a token, or a browser's session with the password hash then.

    `expires_at`: when the token expires. `only`: the session to which the token is limited. `is_limited`: the token is
    limited to a session or an agent.
    """

    user_id: int
    token: str | None = None
    expires_at: datetime | None = None
    only: uuid.UUID | None = None
    is_limited: bool = False
    browser: str | None = field(default=None, repr=False)
    password: str = field(default="", repr=False)  # hashed; a change of it ends the streams of browsers


class OpenStreams:
    """Counts each user's open streams in this process, together with requests that wait for a turn.

    A limited token is counted by itself, too: it has half of them at most, so that it cannot shut its owner out.
    """

    def __init__(self) -> None:
        self._taken: Counter[int | str] = Counter()  # by the id of a user or of a limited token
        self._guard = threading.RLock()  # re-entrant: the garbage collector may free a stream at any point

    def taken(self, user_id: int) -> int:
        """The number of streams that the user has open."""
        with self._guard:
            return self._taken[user_id]

    def take(self, right: Right) -> Callable[[], None]:
        """Count a stream as open; returns the function that counts it as closed. TooManyStreams."""
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
        return partial(self._free, list(most))

    def _free(self, taken: list[int | str]) -> None:
        with self._guard:
            while taken:
                key = taken.pop()
                self._taken[key] -= 1
                if not self._taken[key]:
                    del self._taken[key]


OPEN_STREAMS = OpenStreams()


def is_revoked(right: Right) -> bool:
    """Whether the token of this access is not valid any more."""
    return right.token is not None and valid_token(right.token) is None


# a browser's password is compared outside, so that it is in no log of statements
_HELD = """
    SELECT asked.number - 1, u.password, asked.browser, coalesce(
        u.is_active
        AND (asked.token IS NULL OR EXISTS (
            SELECT FROM sessions_app_apitoken t WHERE t.id = asked.token AND t.user_id = u.id
                AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())))
        AND (asked.browser IS NULL OR EXISTS (
            SELECT FROM django_session b WHERE b.session_key = asked.browser AND b.expire_date > now()))
        AND (EXISTS (SELECT FROM sessions_app_session s WHERE s.id = asked.session_id AND s.owner_id = u.id)
            OR EXISTS (SELECT FROM sessions_app_agent a WHERE a.id = asked.agent_id AND a.owner_id = u.id)),
        false)
    FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::uuid[], %s::bigint[])
        WITH ORDINALITY AS asked (user_id, token, browser, session_id, agent_id, number)
    LEFT JOIN auth_user u ON u.id = asked.user_id
"""


def lapsed(held: Sequence[tuple[Right, Topic]]) -> set[int]:
    """The indexes of those without access now, also because the session or agent was deleted. One statement for all."""
    rights = [right for right, _ in held]
    parameters: list[Any] = [
        [right.user_id for right in rights],
        [right.token for right in rights],
        [right.browser for right in rights],
        [opened if isinstance(opened, uuid.UUID) else None for _, opened in held],
        [opened if isinstance(opened, int) else None for _, opened in held],
    ]
    return {
        number
        for number, password, browser, holds in fetch(_HELD, parameters)
        if not holds or (browser is not None and password != rights[number].password)
    }
