"""Fields without coercion: "5" is not 5, true is not 1, and unknown fields are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from sessions_app import permits
from sessions_app.single_line import one_line

FIXED, UNKNOWN = "This field cannot be changed.", "This field is not known."
MOST_ERRORS = 20  # reported for one object or list
MOST_ITEMS = 1_000  # of a list without a limit of its own
MOST_KEYS = 100  # of an object whose keys are checked later
LONGEST_SHOWN = 60  # characters of a key in an error


class Output(serializers.Serializer[Any]):
    """Output only."""


class Input(serializers.Serializer[Any]):
    """Unknown fields are rejected."""

    example: Mapping[str, Any] = {}  # a valid input; the OpenAPI schema shows it

    def to_internal_value(self, data: Any) -> Any:
        """Reject unknown keys first. The error differs for fields that exist but are read-only."""
        if not isinstance(data, Mapping):
            raise serializers.ValidationError({"non_field_errors": ["A JSON object is expected."]})
        fixed: frozenset[str] = self.context.get("fixed", frozenset()) if self.root is self else frozenset()
        unknown = sorted(str(key) for key in set(data) - set(self.fields))
        if unknown:
            raise serializers.ValidationError(_unknown_fields(unknown, fixed))
        return super().to_internal_value(data)


def _unknown_fields(names: list[str], fixed: frozenset[str]) -> dict[str, list[str]]:
    shown, rest = names[:MOST_ERRORS], len(names[MOST_ERRORS:])
    texts = {name[:LONGEST_SHOWN]: [FIXED if name in fixed else UNKNOWN] for name in shown}
    return texts | ({"non_field_errors": [f"{rest:,} more fields are not known."]} if rest else {})


class _Strict(serializers.Field[Any, Any, Any, Any]):
    """Accepts these JSON types only; `error` is the code of the refusal."""

    json_types: tuple[type, ...]
    error = "invalid"

    def to_internal_value(self, data: Any) -> Any:
        if type(data) not in self.json_types:
            self.fail(self.error, input=data)
        return super().to_internal_value(data)


class Text(_Strict, serializers.CharField):
    """A string as it was sent. CharField rejects NUL and lone surrogates."""

    json_types = (str,)

    def __init__(self, **options: Any) -> None:
        # for the schema: a blank is refused anyway
        shortest = {} if options.get("allow_blank") else {"min_length": 1}
        super().__init__(**{"trim_whitespace": False} | shortest | options)


class NonBlankText(Text):
    """A text that may not be blank. The schema says so; the verb refuses a blank, with an error code of its own."""

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """Let a blank through."""
        return data if data == "" else super().run_validation(data)


class WholeNumber(_Strict, serializers.IntegerField):
    """A JSON number without a fraction."""

    json_types = (int,)


class JsonNumber(_Strict, serializers.FloatField):
    """A JSON number, with or without a fraction."""

    json_types = int, float


class Flag(_Strict, serializers.BooleanField):
    """true or false."""

    json_types = (bool,)


class OneOf(_Strict, serializers.ChoiceField):
    """One of a few words."""

    json_types, error = (str,), "invalid_choice"


def moment_of(value: Any) -> datetime | None:
    """An ISO time with a UTC offset, as an aware datetime in UTC; None for anything else."""
    with suppress(ValueError, OverflowError):  # astimezone overflows on the first and the last day
        instant = datetime.fromisoformat(value if isinstance(value, str) and "T" in value.upper() else "")
        if instant.utcoffset() is not None:
            return instant.astimezone(UTC)
    return None


class Moment(serializers.DateTimeField):
    """An ISO time with a UTC offset, as an aware datetime in UTC."""

    def to_internal_value(self, value: Any) -> datetime:
        if (instant := moment_of(value)) is not None:
            return instant
        raise serializers.ValidationError("Must be an ISO time with an offset, such as 2027-01-01T09:00:00Z.")


class StoredMoment(serializers.DateTimeField):
    """A time that is stored in JSON as an ISO text, shown in the form of all other times; null when it is empty."""

    def to_representation(self, value: Any) -> Any:
        stored = datetime.fromisoformat(value).astimezone(UTC) if isinstance(value, str) and value else value
        return super().to_representation(stored) if stored else None


class AnyObject(serializers.DictField):
    """An object whose keys are checked later."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and len(data) > MOST_KEYS:
            raise serializers.ValidationError(
                f"An object has at most {MOST_KEYS} keys, this one {len(data):,}."
            )
        return super().to_internal_value(data)


class Items(serializers.ListField):
    """A list. Its length is checked before its items, and checking stops after MOST_ERRORS wrong items."""

    def to_internal_value(self, data: Any) -> Any:
        most = self.max_length or MOST_ITEMS
        if isinstance(data, list) and len(data) > most:
            raise serializers.ValidationError(f"A list has at most {most:,} items, this one {len(data):,}.")
        return super().to_internal_value(data)

    def run_child_validation(self, data: list[Any]) -> list[Any]:
        read: list[Any] = []
        errors: dict[Any, Any] = {}
        for index, item in enumerate(data):
            try:
                read.append(self.child.run_validation(item))
            except serializers.ValidationError as error:
                errors[index] = error.detail
                if len(errors) == MOST_ERRORS:
                    break
        if errors:
            raise serializers.ValidationError(errors)
        return read


class ToolNames(Items):
    """Names of tools that are allowed."""

    child = Text(max_length=permits.LONGEST_NAME)

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, max_length=permits.MOST_ALLOWED, **options)


class LineField(serializers.CharField):
    """The beginning of a text on one line; null becomes empty."""

    def __init__(self, length: int, **options: Any) -> None:
        self.length = length
        super().__init__(**options)

    def get_attribute(self, instance: Any) -> str:
        return super().get_attribute(instance) or ""

    def to_representation(self, value: Any) -> str:
        return one_line(value, self.length)


@extend_schema_field({"type": "string", "nullable": True})
class TextOrNull(serializers.CharField):
    """A text that is null when empty."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)

    def to_representation(self, value: Any) -> Any:
        return str(value) if value else None
