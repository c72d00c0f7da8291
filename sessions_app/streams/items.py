"""The items that windows get: stored events, pieces of running answers, and retries of the model."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from sessions_app.models import Event, EventType
from sessions_app.postgres.notify import Try
from sessions_app.streams.event_log import NOWHERE, Origin, Topic


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item for the windows that show `about`: a stored event, or one that is only sent.

    Only sent are `delta`, `thought` and `snapshot` with `{turn, attempt, step, try, text}`, a snapshot also with
    `earlier`; and
    `status` with `{turn, status: "retrying"}` (a try failed), `{turn: null, shows}` (the window shows that session from
    now on) or `{turn: null, events_missed: true}` (read the history again).
    """

    type: str
    about: Topic
    event: Event | None = None
    content: dict[str, Any] = field(default_factory=dict)
    origin: Origin = NOWHERE  # of the turn; a stored event has its own
    size: int = 0  # bytes of its content, roughly

    def ends(self, turn_id: int) -> bool:
        """Whether it is the end of this turn."""
        return self.event is not None and self.type == EventType.TURN_END and self.event.turn_id == turn_id


@dataclass(frozen=True, kw_only=True)
class Delta:
    """A piece of a running answer or of its reasoning; with `retrying`, the news that the try before `of` failed."""

    session_id: uuid.UUID
    turn: int
    of: Try
    text: str = ""
    thought: str = ""
    retrying: dict[str, Any] | None = None

    @classmethod
    def heard(cls, message: dict[str, Any]) -> Delta:
        """The delta in a notification."""
        # older workers send only the attempt
        of = Try(message["attempt"], message.get("step", 1), message.get("number", 1))
        piece = {name: message[name] for name in ("turn", "text", "thought", "retrying") if name in message}
        return cls(session_id=uuid.UUID(message["s"]), of=of, **piece)

    def item(self, origin: Origin) -> Item:
        """The item that windows get."""
        content = {"turn": self.turn, **shown_try(self.of)}
        if self.retrying is not None:
            content = {**self.retrying, **content}
            return Item(type=EventType.STATUS, about=self.session_id, content=content, origin=origin)
        if self.thought:
            more, size = {"text": self.thought}, len(self.thought)
            return Item(
                type="thought", about=self.session_id, content=content | more, origin=origin, size=size
            )
        return Item(
            type="delta",
            about=self.session_id,
            content=content | {"text": self.text},
            origin=origin,
            size=len(self.text),
        )


def shown_try(of: Try) -> dict[str, int]:
    """The fields of a try in an item."""
    return {"attempt": of.attempt, "step": of.step, "try": of.number}
