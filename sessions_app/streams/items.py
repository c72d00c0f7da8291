"""The items that windows get: stored events, and the text of running answers as their workers send it."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sessions_app.models import Event, EventType

REMEMBERED = 1_000  # turns whose text, or whose end, is remembered
LONGEST_ANSWER = 100_000  # characters
ASKED_AGAIN = 1.0  # seconds until a worker is asked once more to repeat the text of an answer
UNANNOUNCED = 1.0  # seconds that the end of a turn waits for its announcement, which may be lost

Topic = uuid.UUID | int  # what a window shows: a session or an agent
Place = tuple[int, int, int]  # attempt, step and try of a piece of an answer


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item for the windows that show `about`: a stored event, or an event that is sent and never stored.

    Never stored are `delta`, `thought` and `snapshot` with `{turn, attempt, step, try, text}`, a snapshot also with
    `earlier`; and
    `status` with `{turn, status: "retrying"}` (a try failed), `{turn: null, shows}` (the thread shows that session now,
    and the stream ends) or `{turn: null, events_missed: true}` (read the history again).
    """

    type: str
    about: Topic
    event: Event | None = None
    content: dict[str, Any] = field(default_factory=dict)
    source_type: str = ""  # of the turn; a stored event has its own, and the next one
    run_id: str = ""
    size: int = 0  # bytes of its content, roughly

    def ends(self, turn_id: int) -> bool:
        """Whether the item is the end of this turn."""
        return self.event is not None and self.type == EventType.TURN_END and self.event.turn_id == turn_id


@dataclass(kw_only=True)
class _Answer:
    """A running turn's text: of the model call at `place` and, in `earlier`, of the calls before it."""

    place: Place = (0, 0, 0)
    text: str = ""
    earlier: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # its session and origin, as in an item
    ended: bool = False
    held_until: float = 0.0  # when its end is told even without an announcement, by the monotonic clock
    asked_at: float = 0.0  # when its worker was asked to repeat its text, by the monotonic clock
    asked_for: Place = (0, 0, 0)

    def add(self, place: Place, text: str) -> None:
        """Add a piece of this model call or of a later one. Another try replaces the text of its call, another attempt
        all.
        """
        if place[0] > self.place[0]:
            self.text = self.earlier = ""
        elif place[1] > self.place[1]:
            self.earlier, self.text = (self.earlier + self.text)[:LONGEST_ANSWER], ""
        elif place[2] > self.place[2]:
            self.text = ""
        self.place = place
        self.text = (self.text + text)[: LONGEST_ANSWER - len(self.earlier)]


class LiveAnswers:
    """The running answers as far as this process has heard them, and which turns have ended.

    `ask` is called with a turn of whose answer a part is missing: it has its worker send all of it again.
    """

    def __init__(self, ask: Callable[[int], None]) -> None:
        self._ask = ask
        self._answers: OrderedDict[int, _Answer] = OrderedDict()

    def knows(self, turn: int) -> bool:
        """Whether anything of the turn was heard."""
        return turn in self._answers

    def hear(self, message: dict[str, Any]) -> Item | None:
        """Take a piece of an answer; None if it is known, of an earlier try, after the end, or text before it lacks."""
        turn, place = message["turn"], (message["attempt"], message.get("step", 1), message.get("number", 1))
        answer = self._answer(turn)
        if answer.ended or place < answer.place:
            return None
        answer.about = {name: message.get(name, "") for name in ("source_type", "run_id")} | {
            "about": message["s"]
        }
        known, text = len(answer.text) if place == answer.place else 0, message.get("text")
        at = known if text is None else message.get("at", known)
        if self._lacks(turn, answer, place, at > known):
            return None
        if text is not None:
            message["text"] = text[known - at :] if at < known else text
            if not message["text"]:
                return None
        answer.add(place, message.get("text", ""))
        kind = next(name for name in ("retrying", "thought", "text") if name in message)
        said = message[kind] if kind == "retrying" else {"text": message[kind]}
        return Item(
            type={"retrying": EventType.STATUS, "text": "delta"}.get(kind, kind),
            content=said | _shown(turn, place),
            size=len(said.get("text", "")),
            **answer.about,
        )

    def _lacks(self, turn: int, answer: _Answer, place: Place, is_later: bool) -> bool:
        """Whether text before a piece is missing, as after a restart of this process; then it is asked for.

        A call of the model that was not heard may have said nothing: its piece is taken once the worker was asked.
        """
        is_later |= place[1] > answer.place[1] + 1 and answer.asked_for != place
        if not is_later or len(answer.earlier) + len(answer.text) >= LONGEST_ANSWER:
            return False
        if time.monotonic() > answer.asked_at + ASKED_AGAIN:
            answer.asked_at, answer.asked_for = time.monotonic(), place
            self._ask(turn)
        return True

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
            if session_id is not None and answer.about.get("about") == session_id:
                text = answer.earlier + answer.text
                content = _shown(turn, answer.place) | {"text": text, "earlier": answer.earlier}
                return Item(type="snapshot", content=content, size=2 * len(text), **answer.about)
        return None

    def _answer(self, turn: int) -> _Answer:
        answer = self._answers.setdefault(turn, _Answer())
        self._answers.move_to_end(turn)
        while len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        return answer


def _shown(turn: int, place: Place) -> dict[str, int]:
    attempt, step, number = place
    return {"turn": turn, "attempt": attempt, "step": step, "try": number}
