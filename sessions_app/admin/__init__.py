"""The admin. Its pages change rows through the functions that the API uses; all other fields are read-only."""

from sessions_app.admin import (
    agents,
    connections,
    deliveries,
    hooks,
    internals,
    memory,
    sessions,
    telegram,
    tokens,
    turns,
    users,
)

__all__ = [
    "agents",
    "connections",
    "deliveries",
    "hooks",
    "internals",
    "memory",
    "sessions",
    "telegram",
    "tokens",
    "turns",
    "users",
]
