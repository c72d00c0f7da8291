"""The admin. Its pages change rows through the functions that the API uses; all other fields are read-only."""

from interfaces.admin import deliveries, internals, sessions, tokens, turns, users
from interfaces.admin.agents import agents, connections, hooks, memory, telegram
from interfaces.admin.automations import jobs, messages, runs

__all__ = [
    "agents",
    "connections",
    "deliveries",
    "hooks",
    "internals",
    "jobs",
    "memory",
    "messages",
    "runs",
    "sessions",
    "telegram",
    "tokens",
    "turns",
    "users",
]
