"""Fields without coercion: "5" is not 5, true is not 1, and what nobody knows is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

FIXED, UNKNOWN = "This field cannot be changed.", "This field is not known."


class Input(serializers.Serializer[Any]):
    """An object with known keys only."""

    def to_internal_value(self, data: Any) -> Any:
        """Refuse unknown keys before anything is read; what is only shown is told from what does not exist."""
        if not isinstance(data, Mapping):
            raise serializers.ValidationError({"non_field_errors": ["A JSON object is expected."]})
        fixed: frozenset[str] = self.context.get("fixed", frozenset()) if self.root is self else frozenset()
        unknown = sorted(str(key) for key in set(data) - set(self.fields))
        if unknown:
            texts = {name[:60]: [FIXED if name in fixed else UNKNOWN] for name in unknown}
            raise serializers.ValidationError(texts)
        return super().to_internal_value(data)


class Text(serializers.CharField):
    """A string as it was sent. NUL and lone surrogates are refused by CharField itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"trim_whitespace": False} | options)

    def to_internal_value(self, data: Any) -> str:
        """A string."""
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class WholeNumber(serializers.IntegerField):
    """A JSON number without a fraction."""

    def to_internal_value(self, data: Any) -> int:
        """An int."""
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return data


class Flag(serializers.BooleanField):
    """true or false."""

    def to_internal_value(self, data: Any) -> bool:
        """A bool."""
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class OneOf(serializers.ChoiceField):
    """One of a few words."""

    def to_internal_value(self, data: Any) -> str:
        """The word."""
        if not isinstance(data, str):
            self.fail("invalid_choice", input=data)
        return str(super().to_internal_value(data))


class Moment(serializers.DateTimeField):
    """An ISO instant with an offset; a wall time without one names no instant."""

    def to_internal_value(self, value: Any) -> datetime:
        """An aware datetime."""
        try:
            instant = (
                datetime.fromisoformat(value) if isinstance(value, str) and "T" in value.upper() else None
            )
            if instant is not None and instant.utcoffset() is not None:
                return instant.astimezone(UTC)  # which the first and the last day may not have
        except (ValueError, OverflowError):
            instant = None
        raise serializers.ValidationError("Must be an ISO time with an offset, such as 2027-01-01T09:00:00Z.")


class AnyObject(serializers.DictField):
    """An object whose keys a verb checks."""
