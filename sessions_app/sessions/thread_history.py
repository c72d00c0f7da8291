"""A thread's history while its agent is unified: the primary session's messages, merged with the thread's own.

Older automations and scheduled messages of the thread still write to the thread (rule 4.10). Each such message stores
after which message of the primary session it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.db.models import CharField, F, Q, QuerySet, UUIDField, Value
from django.db.models.functions import Cast

from sessions_app.models import Message


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The parts of a queryset's interface that pagination uses, ordered by `place`.

    The place of a message of the primary session is its seq, such as `12`. The place of a thread's own message is the
    seq of the message before it and its own seq, such as `12.3`.
    """

    primary: QuerySet[Any]
    own: QuerySet[Any]
    backwards: bool = False

    @classmethod
    def of(cls, primary: QuerySet[Message], own: QuerySet[Message]) -> Beside:
        """Merge the primary session's messages with those of the thread's own that are shown beside them."""
        place = Cast("seq", CharField())
        return cls(
            primary=primary.annotate(thread=Value(None, output_field=UUIDField()), place=place),
            own=own.filter(shown_after_seq__isnull=False).annotate(thread=F("session_id")),
        )

    def order_by(self, name: str) -> Beside:
        """Order by `place` or `-place`."""
        return replace(self, backwards=name.startswith("-"))

    def filter(self, **bound: str) -> Beside:
        """Filter by `place__gt` or `place__lt`. ValueError for a malformed place."""
        [(name, place)] = bound.items()
        behind, _, own = place.partition(".")
        seq, own_seq = int(behind), int(own or 0)
        if name == "place__gt":
            primary = Q(seq__gt=seq)
            own_ones = Q(shown_after_seq__gt=seq) | Q(shown_after_seq=seq, seq__gt=own_seq)
        else:
            primary = Q(seq__lte=seq) if own_seq else Q(seq__lt=seq)
            own_ones = Q(shown_after_seq__lt=seq) | Q(shown_after_seq=seq, seq__lt=own_seq)
        return replace(self, primary=self.primary.filter(primary), own=self.own.filter(own_ones))

    def sizes(self, *_names: str, size: Any) -> Beside:
        """Return the rows as dictionaries of their `place` and of the expression `size`."""
        primary = self.primary.values("seq", "shown_after_seq", "thread", "place", size=size)
        return replace(
            self, primary=primary, own=self.own.values("seq", "shown_after_seq", "thread", size=size)
        )

    @property
    def first(self) -> QuerySet[Any]:
        """The primary session's queryset; both querysets fetch the same fields."""
        return self.primary

    def __getitem__(self, part: slice) -> list[Any]:
        """Return a slice, which must have an end. Each queryset is read by its own index, up to that end."""
        sign = "-" if self.backwards else ""
        primary = list(self.primary.order_by(f"{sign}seq")[: part.stop])
        own = list(self.own.order_by(f"{sign}shown_after_seq", f"{sign}seq")[: part.stop])
        for row in own:
            fields = _fields(row)
            fields["place"] = f"{fields['shown_after_seq']}.{fields['seq']}"
        return sorted([*primary, *own], key=_order, reverse=self.backwards)[part]


def _fields(row: Any) -> dict[str, Any]:
    return row if isinstance(row, dict) else vars(row)


def _order(row: Any) -> tuple[int, int]:
    """The sort key of a place; `place` itself is a text and would sort wrongly."""
    fields = _fields(row)
    return (fields["seq"], 0) if fields["thread"] is None else (fields["shown_after_seq"], fields["seq"])
