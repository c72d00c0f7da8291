"""Shows a running turn in a terminal: its text as it arrives, tool calls and retries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TextIO

from interfaces.terminal.command import plain
from sessions_app.models import EventType
from sessions_app.single_line import one_line
from sessions_app.streams.items import Item

LONGEST_DETAIL = 100  # characters of a call's arguments or output
_FAINT, _NORMAL = "\x1b[2m", "\x1b[0m"


@dataclass(kw_only=True)
class Screen:
    """A terminal. With `colours`, notes are shown in faint text."""

    to: TextIO
    colours: bool = False
    _in_line: bool = False

    def write(self, text: str) -> None:
        """Add text to the current line."""
        text = plain(text)
        if text:
            self.to.write(text)
            self.to.flush()
            self._in_line = not text.endswith("\n")

    def line(self, text: str) -> None:
        """Write a line of its own."""
        self.end_line()
        self.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Write a line that is not part of the conversation."""
        self.end_line()
        text = plain(text)
        self.to.write(f"{_FAINT}{text}{_NORMAL}\n" if self.colours else f"{text}\n")
        self.to.flush()

    def end_line(self) -> None:
        """Go to the start of a line."""
        if self._in_line:
            self.write("\n")


@dataclass(kw_only=True)
class Answer:
    """The answer of one turn on a screen. Whatever part of it was not heard while it was made comes with `settle`.

    Stored events, such as tool calls, may come before the last pieces of the text before them. Their notes are held
    until the next text, the end, or `show_notes`.
    """

    turn: int
    screen: Screen
    _place: tuple[int, int, int] = (0, 0, 0)  # attempt, step, try
    _text: str = ""
    _earlier: list[str] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _is_interrupted: bool = False  # notes came after the current text

    @property
    def holds_notes(self) -> bool:
        """Whether notes wait to be shown."""
        return bool(self._notes)

    def hear(self, item: Item) -> bool:
        """Show an item of the stream. Returns whether it is the turn's end."""
        content = item.content
        if item.event is not None:
            content = {"turn": item.event.turn_id, **item.event.content}
        if content.get("turn") != self.turn:
            return False
        if item.type in {"delta", "snapshot"}:
            self._add(content)
        elif item.type == EventType.STATUS and content.get("status") == "retrying":
            self._notes.append("The model did not answer; trying again …")
        elif item.type == EventType.TOOL_CALL:
            arguments = json.dumps(content.get("arguments") or {}, ensure_ascii=False)
            self._notes.append(f"→ {content['name']} {one_line(arguments, LONGEST_DETAIL)}")
        elif item.type == EventType.TOOL_OUTPUT:
            output = one_line(content.get("output", ""), LONGEST_DETAIL)
            self._notes.append(f"← {content['name']} {content['outcome']}: {output}")
        elif item.type == EventType.MESSAGE and content.get("role") == "assistant":
            self.settle(content.get("text", ""))
        return item.ends(self.turn)

    def show_notes(self) -> None:
        """Show the notes that are held."""
        for note in self._notes:
            self.screen.note(note)
            self._is_interrupted = bool(self._text)
        self._notes.clear()

    def settle(self, text: str) -> None:
        """Show the rest of a text that is now complete."""
        text, shown = plain(text).strip(), self._text.lstrip()
        if text and not self._is_shown(text):
            if shown and text.startswith(shown) and not self._is_interrupted:
                self.screen.write(text.removeprefix(shown))
                self.show_notes()
            else:
                self.show_notes()
                self.screen.line(text)
            self._earlier.append(text)
        self.show_notes()

    def _add(self, content: dict[str, Any]) -> None:
        place = (content["attempt"], content["step"], content["try"])
        text = plain(content["text"])
        if place != self._place:
            self._begin(place)
        if content.get("earlier"):  # a snapshot has everything so far
            earlier = plain(content["earlier"])
            self.settle(earlier)
            text = text[len(earlier) :]
        if "earlier" in content:
            text = text.removeprefix(self._text)
        if self._is_interrupted and text:
            self.screen.end_line()
            self.screen.write(self._text.lstrip())
            self._is_interrupted = False
        self.screen.write(text if self._text.strip() else text.lstrip())
        self._text += text

    def _begin(self, place: tuple[int, int, int]) -> None:
        self.show_notes()
        self.screen.end_line()
        if place[:2] == self._place[:2] and self._text:
            self.screen.note("(begins again)")
        self._earlier.append(self._text)
        self._place, self._text, self._is_interrupted = place, "", False

    def _is_shown(self, text: str) -> bool:
        """Whether it is one of the texts that were shown, or the last ones together."""
        words, texts = text.split(), [*self._earlier, self._text]
        last = [word for each in texts for word in each.split()]
        return any(words == each.split() for each in texts) or last[-len(words) :] == words
