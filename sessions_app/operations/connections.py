"""The check of connections to model providers."""

from __future__ import annotations

from itertools import islice

from agent_core.connections import PROVIDERS
from sessions_app.connections.usable import usable
from sessions_app.models import Connection
from sessions_app.operations.doctor import NAMED, Finding, failed, passed, some_named

MOST_CHECKED = 10_000
_CURE = "mend them in the admin (Connections), and test them there"


def connections_usable() -> Finding:
    """The server's connections work, and the secrets of all can be read. Users see the other faults of their own."""
    rows = Connection.objects.order_by("owner_id", "name")[:MOST_CHECKED]
    if not rows:
        return passed("none")
    broken = [text for row in rows.iterator() if (text := _fault(row))]
    if broken:
        return failed(some_named(islice(broken, NAMED), len(broken)), _CURE)
    return passed("none is known to be broken")


def _fault(row: Connection) -> str:
    whose = "" if row.owner_id is None else " of a user"
    if fault := usable(row).fault:
        return f"{row.name}{whose}: {fault}"
    provider = PROVIDERS.get(row.provider)
    if provider is None or provider.missing:
        return f"{row.name}{whose}: {row.provider} is not installed"
    return f"{row.name}: {row.last_error.rstrip('.')}" if row.owner_id is None and row.last_error else ""
