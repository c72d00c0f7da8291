"""Who sent a request, and the threads in which its work with the database runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.auth.models import User

from sessions_app.streams.rights import Right

T = TypeVar("T")
Run = Callable[[Callable[[], Any]], Awaitable[Any]]  # runs a function in another thread


class NoThread(Exception):
    """No thread was free for the request."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The user of a request's token. `right`: what gave access, which is checked again while the request waits.

    `allows`: whether the token has a scope.
    """

    user: User
    allows: Callable[[str], bool]
    right: Right
    threads: Run

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, run in a thread. NoThread, and what `work` raises."""
        try:
            result, error = await self.threads(lambda: _tried(work))
        except Exception as error:
            raise NoThread from error
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]


def _tried(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """The result, or the error that it raised: so that it is not mistaken for one of the pool of threads."""
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 - raised again on the event loop
        return None, error
