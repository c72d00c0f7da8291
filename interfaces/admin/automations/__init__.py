"""The admin pages of automations, scheduled messages and their runs."""

from interfaces.admin.automations import jobs, messages, runs, session_pages

__all__ = ["jobs", "messages", "runs", "session_pages"]
