"""The admin pages of automations, scheduled messages and their runs."""

from automations.admin import jobs, messages, runs, session_pages

__all__ = ["jobs", "messages", "runs", "session_pages"]
