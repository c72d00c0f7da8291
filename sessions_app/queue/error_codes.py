"""The codes with which turns end, for those who filter by them. Plugins add codes of their own."""

from __future__ import annotations

from agent_core.turn.endings import ERROR_TEXTS
from sessions_app.exceptions import OwnerInactive

_CANCELLED = ("cancelled", OwnerInactive.code, "session_archived", "paused", "deleted", "not_reached")
_FAILED = ("question_closed", "max_rescues", "tool_hung", "commit_failed")
ERROR_CODES = frozenset({*ERROR_TEXTS, *_CANCELLED, *_FAILED})
