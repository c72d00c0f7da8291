"""The admin. Its pages change rows through the functions that the API uses; all other fields are read-only."""

from interfaces.admin import (
    agents,
    connections,
    hooks,
    internals,
    jobs,
    memory,
    runs,
    sessions,
    spending,
    turns,
    users,
)

__all__ = [
    "agents",
    "connections",
    "hooks",
    "internals",
    "jobs",
    "memory",
    "runs",
    "sessions",
    "spending",
    "turns",
    "users",
]
