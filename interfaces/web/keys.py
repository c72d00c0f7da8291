"""Keys in addresses: anything that a key may be, without what the database refuses."""

from __future__ import annotations

from django.urls import register_converter


class Key:
    """Up to 200 characters without a slash or a control character."""

    regex = r"[^/\x00-\x1f\x7f]{1,200}"

    def to_python(self, value: str) -> str:
        """The text."""
        return value

    def to_url(self, value: str) -> str:
        """The text."""
        return value


register_converter(Key, "key")
