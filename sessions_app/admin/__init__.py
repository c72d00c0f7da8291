"""The admin. Its pages change rows through the functions that the API uses; all other fields are read-only."""

from sessions_app.admin import agents, deliveries, hooks, internals, memory, sessions, turns, users

__all__ = ["agents", "deliveries", "hooks", "internals", "memory", "sessions", "turns", "users"]
