"""The one form in which programs are given a time."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC with `Z`, as the answers of the API have it."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
