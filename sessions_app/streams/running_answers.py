"""The text so far of running turns, for windows that open later."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sessions_app.models import Event, EventType
from sessions_app.postgres.notify import Try
from sessions_app.streams.event_log import Origin, Running, origin_of
from sessions_app.streams.items import Delta, Item, shown_try

REMEMBERED = 1_000  # running answers, and ended turns
LONGEST_ANSWER = 100_000  # characters
UNANNOUNCED = 1.0  # seconds that the end of a turn waits for its announcement, which may be lost


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSoFar:
    """The text of a running turn: in the try `of`, and `earlier` in previous model calls of this attempt."""

    of: Try
    text: str = ""
    earlier: str = ""

    def with_piece(self, piece: Delta) -> TextSoFar:
        """The text with one more piece, of this try or a later one."""
        now, before = piece.of, self.of
        if now.attempt > before.attempt:
            return TextSoFar(of=now, text=piece.text)
        if now.step > before.step:
            return TextSoFar(of=now, text=piece.text, earlier=(self.earlier + self.text)[:LONGEST_ANSWER])
        text = piece.text if now.number > before.number else self.text + piece.text
        return replace(self, of=now, text=text[: LONGEST_ANSWER - len(self.earlier)])


class RunningAnswers:
    """The text so far of running turns, as far as this process received it, and the turns that have ended."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, TextSoFar] = OrderedDict()
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._origins: OrderedDict[int, Origin] = OrderedDict()
        self._ends_wait: OrderedDict[int, float] = OrderedDict()  # until when, by the monotonic clock

    def origin(self, turn: int) -> Origin:
        """The turn's origin. It is read from the database, once, when no event had it."""
        if turn not in self._origins:
            self.begin(turn, origin_of(turn))
        return self._origins[turn]

    def begin(self, turn: int, origin: Origin) -> None:
        """Remember the origin of a turn."""
        self._origins[turn] = origin
        _forget_oldest(self._origins)

    def add(self, pieces: Iterable[Delta]) -> list[Delta]:
        """Remember pieces; those of a new try replace the old ones. Returns them without late pieces of an old try."""
        news = []
        for piece in pieces:
            so_far = self._texts.pop(piece.turn, TextSoFar(of=piece.of))
            if piece.of >= so_far.of:
                news.append(piece)
                so_far = so_far.with_piece(piece)
            self._texts[piece.turn] = so_far
        _forget_oldest(self._texts)
        return news

    def hear_end(self, turn: int) -> None:
        """The end of the turn was announced: all its pieces were received."""
        self._ends_wait[turn] = 0.0
        _forget_oldest(self._ends_wait)

    def may_end(self, turn: int, *, live: bool) -> bool:
        """Whether readers may get the events of the turn's end, which a read can find before its last pieces arrive.

        A newcomer need not wait for a turn that ended in the past: no piece of it and no live reader waits for its end.
        """
        if not (live or turn in self._texts or turn in self._ends_wait):
            return True
        waits_until = self._ends_wait.setdefault(turn, time.monotonic() + UNANNOUNCED)
        _forget_oldest(self._ends_wait)
        return time.monotonic() >= waits_until

    def follow(self, event: Event) -> None:
        """Remember the start or the end of a turn that readers get now."""
        turn = event.turn_id or 0
        if event.type == EventType.TURN_START and turn not in self._ended:
            self.begin(turn, Origin(source_type=event.source_type, run_id=event.run_id))
        if event.type == EventType.TURN_END:
            self.end(turn)

    def end(self, turn: int) -> None:
        """The turn has ended: late pieces are discarded."""
        self._texts.pop(turn, None)
        self._origins.pop(turn, None)
        self._ended[turn] = None
        _forget_oldest(self._ended)

    def knows(self, turn: int) -> bool:
        """Whether a piece or the end of the turn was received."""
        return turn in self._texts or turn in self._ended

    def has_ended(self, turn: int) -> bool:
        """Whether the turn has ended."""
        return turn in self._ended

    def snapshot(self, running: Running) -> Item:
        """The running turn's text so far, for a newcomer."""
        so_far = self._texts.get(running.turn, TextSoFar(of=Try(running.attempt)))
        content = {
            "turn": running.turn,
            **shown_try(so_far.of),
            "text": so_far.earlier + so_far.text,
            "earlier": so_far.earlier,
        }
        size = len(so_far.text) + 2 * len(so_far.earlier)
        return Item(
            type="snapshot", about=running.session_id, content=content, origin=running.origin, size=size
        )


def _forget_oldest(remembered: OrderedDict[int, Any]) -> None:
    while len(remembered) > REMEMBERED:
        remembered.popitem(last=False)
