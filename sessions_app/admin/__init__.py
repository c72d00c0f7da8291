"""The staff's pages. They read rows and call verbs; what a hand edit would break is shown and not written."""

from sessions_app.admin import accounts, agents, deliveries, hooks, keepsakes, sessions, signs, turns

__all__ = ["accounts", "agents", "deliveries", "hooks", "keepsakes", "sessions", "signs", "turns"]
