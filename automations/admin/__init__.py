"""The staff's pages of automations and their runs."""

from automations.admin import jobs, runs, session_pages

__all__ = ["jobs", "runs", "session_pages"]
