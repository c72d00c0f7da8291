"""The items that windows get: stored events, and the text of running answers as their workers send it."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from sessions_app.models import Event, EventType
from sessions_app.postgres.notify import NOWHERE, Origin, Try

NO_TRY = Try(0)
REMEMBERED = 1_000  # turns whose text, or whose end, is remembered
LONGEST_ANSWER = 100_000  # characters
UNANNOUNCED = 1.0  # seconds that the end of a turn waits for its announcement, which may be lost

Topic = uuid.UUID | int  # what a window shows: a session or an agent


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item for the windows that show `about`: a stored event, or one that is only sent.

    Only sent are `delta`, `thought` and `snapshot` with `{turn, attempt, step, try, text}`, a snapshot also with
    `earlier`; and
    `status` with `{turn, status: "retrying"}` (a try failed), `{turn: null, shows}` (the thread shows that session now,
    and the stream ends) or `{turn: null, events_missed: true}` (read the history again).
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


@dataclass(kw_only=True)
class _Answer:
    """The text of a running turn: of the try `of`, and `earlier` of the previous model calls of this attempt."""

    session_id: uuid.UUID | None = None
    origin: Origin = NOWHERE
    of: Try = NO_TRY
    text: str = ""
    earlier: str = ""
    ended: bool = False
    held_until: float = 0.0  # when its end is told even without an announcement, by the monotonic clock

    def add(self, of: Try, text: str) -> None:
        """Add a piece of this try or a later one."""
        if of.attempt > self.of.attempt:
            self.text = self.earlier = ""
        elif of.step > self.of.step:
            self.earlier, self.text = (self.earlier + self.text)[:LONGEST_ANSWER], ""
        elif of.number > self.of.number:
            self.text = ""
        self.of = of
        self.text = (self.text + text)[: LONGEST_ANSWER - len(self.earlier)]


class LiveAnswers:
    """The running answers as far as this process has heard them, and which turns have ended."""

    def __init__(self) -> None:
        self._answers: OrderedDict[int, _Answer] = OrderedDict()

    def knows(self, turn: int) -> bool:
        """Whether anything of the turn was heard."""
        return turn in self._answers

    def hear(self, message: dict[str, Any]) -> Item | None:
        """Take a piece of an answer; None if it comes too late: of an earlier try, or after the end."""
        answer, turn = self._answer(message["turn"]), message["turn"]
        of = Try(message["attempt"], message.get("step", 1), message.get("number", 1))
        if answer.ended or of < answer.of:
            return None
        # a worker of the version before names no origin
        answer.session_id, answer.origin = message["s"], Origin(*message.get("origin", NOWHERE))
        answer.add(of, message.get("text", ""))
        kind, text = (
            ("thought", message["thought"]) if "thought" in message else ("delta", message.get("text"))
        )
        content = {"turn": turn, **_shown(of), "text": text}
        if "retrying" in message:
            kind, content = EventType.STATUS, {**message["retrying"], "turn": turn, **_shown(of)}
        size = len(content.get("text") or "")
        return Item(type=kind, about=message["s"], content=content, origin=answer.origin, size=size)

    def end(self, turn: int) -> None:
        """The turn has ended: later pieces are discarded."""
        self._answer(turn)
        self._answers[turn] = _Answer(ended=True)

    def holds_end(self, turn: int | None, *, live: bool) -> bool:
        """Whether the end of a turn must wait: a read may find it before the last pieces of the answer arrive.

        Readers of the past do not wait for a turn of which nothing was heard.
        """
        if turn is None or not (live or turn in self._answers):
            return False
        answer = self._answer(turn)
        answer.held_until = answer.held_until or time.monotonic() + UNANNOUNCED
        return not answer.ended and time.monotonic() < answer.held_until

    def snapshot(self, session_id: uuid.UUID | None) -> Item | None:
        """The text so far of the answer that runs in a session, for a window that opens now."""
        for turn, answer in reversed(self._answers.items()):
            if session_id is not None and answer.session_id == session_id:
                text, earlier = answer.earlier + answer.text, answer.earlier
                content = {"turn": turn, **_shown(answer.of), "text": text, "earlier": earlier}
                size = len(text) + len(earlier)
                return Item(
                    type="snapshot", about=session_id, content=content, origin=answer.origin, size=size
                )
        return None

    def _answer(self, turn: int) -> _Answer:
        answer = self._answers.setdefault(turn, _Answer())
        self._answers.move_to_end(turn)
        while len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        return answer


def _shown(of: Try) -> dict[str, int]:
    return {"attempt": of.attempt, "step": of.step, "try": of.number}
