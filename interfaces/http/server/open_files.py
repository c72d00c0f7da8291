"""How many connections the limit of open files allows. Beyond it the process could not even refuse one."""

from __future__ import annotations

import resource
from functools import cache
from typing import Any

from django.conf import settings

OWN_FILES = 64  # open files of the process itself
LONGEST_BACKLOG = 2048  # connections in the kernel's queue, all accepted in one step of the event loop
SHORTEST_BACKLOG = 32  # with a shorter queue clients wait a second and more to be accepted
STEPS = 4  # of the event loop until a connection can be refused; it accepts a backlog in each
_BACKLOG_PART = 16  # the backlog is this fraction of the limit


@cache
def free_connections() -> int:
    """How many client connections can be open beside database connections and other files."""
    limit = _limit()
    database: Any = settings.DATABASES["default"]
    own = OWN_FILES + database["OPTIONS"]["pool"]["max_size"] + STEPS * backlog()
    return max(1, limit - own) if limit else settings.RONDO_CONNECTIONS


def backlog() -> int:
    """How many connections may wait to be accepted; the event loop accepts all of them in one step."""
    limit = _limit()
    return max(SHORTEST_BACKLOG, min(LONGEST_BACKLOG, limit // _BACKLOG_PART)) if limit else LONGEST_BACKLOG


def _limit() -> int:
    """The soft limit of this process; 0: no limit."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft
