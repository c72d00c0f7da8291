"""A talk with an agent in a terminal: sends messages and answers, and follows their turns.

It calls the functions of the API, and not the API by HTTP: a command has the server's settings but no token, and it may
run where no web process does. The hub hands out the same events as the streams of the API.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

from django.conf import settings

from interfaces.terminal.command import plain
from sessions_app.exceptions import TurnEnded
from sessions_app.models import Agent, EventType, Message, OnBusy, Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.questions import question_reads, questions
from sessions_app.queue.cancel import cancel_turn
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.reads import selectors
from sessions_app.sessions.open import open_session
from sessions_app.single_line import one_line
from sessions_app.streams.event_log import Position
from sessions_app.streams.hub import Subscription, beginning, hub
from sessions_app.streams.items import Item
from sessions_app.streams.rights import Right

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
    """The answer of one turn on a screen. `settle` shows the parts that were not received while the answer was made.

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
        """Whether the text was shown: as one text, or as the last ones together."""
        words, texts = text.split(), [*self._earlier, self._text]
        last = [word for each in texts for word in each.split()]
        return any(words == each.split() for each in texts) or last[-len(words) :] == words


# of silence, after which the turn is read, in case its end is lost; longer than the hub's POLL
CHECK_SECONDS = 3.0
NOTE_SECONDS = 0.5  # that a note of a tool call waits for the rest of the text before it
UNBEGUN_SECONDS = 15.0  # after which a turn that no worker has begun is remarked on
MOST_NEWS = 20  # messages that came meanwhile


@dataclass(kw_only=True)
class Talk:
    """One person's talk. Without a session, the first message opens one."""

    agent: Agent
    screen: Screen
    session: Session | None = None
    _seen: int = 0  # seq of the last message that was shown
    _left: set[str] = field(default_factory=set)  # questions that the person did not answer

    def __post_init__(self) -> None:
        if self.session is not None:
            self._seen = self._target().last_seq

    def send(self, content: str, seconds: float | None = None) -> Turn:
        """Send a message and show its answer. Returns the ended turn. Raises what `receive` raises; TimeoutError."""
        session = self.session = self.session or open_session(self.agent)
        given = MessageInput(content=content, on_busy=OnBusy.ENQUEUE)
        return self._follow(lambda: receive(session.pk, given, self.agent.owner_id), seconds)

    def question(self) -> dict[str, Any] | None:
        """The newest question that waits for the person and was not left open, with the fields of the API."""
        if self.session is None:
            return None
        found = selectors.session(self.agent.owner, self.session.pk)
        # not by the API's serializer: Django REST framework takes long to load
        asked = found.waiting.shown
        answerable = [each for each in asked if each["calls"] or each["execution"]]
        return next((each for each in answerable if _name(each) not in self._left), None)

    def leave_open(self, question: dict[str, Any]) -> None:
        """Do not ask this question again in this talk."""
        self._left.add(_name(question))

    def answer(self, question: dict[str, Any], content: str) -> Turn:
        """Answer a question and show what comes of it. Raises what `answer_question` raises."""
        user = self.agent.owner
        if question["calls"]:
            asked = question_reads.question(user, question["question_id"])
            return self._follow(lambda: questions.answer_consent(asked, content))
        execution, asked_id = selectors.execution(user, question["execution"]), question["question_id"] or ""
        return self._follow(lambda: questions.answer_question(execution, content, question=asked_id))

    def show_news(self) -> None:
        """Show what was said in the session since, by automations or in other windows."""
        if self.session is None:
            return
        rows = Message.objects.filter(session_id=self._target().pk, seq__gt=self._seen, role="assistant")
        for row in rows.exclude(content="").order_by("seq")[:MOST_NEWS]:
            name = (row.metadata.get("source") or {}).get("name")
            self.screen.note(f"[{name}]" if name else "[meanwhile]")
            self.screen.line(row.content)
            self._seen = row.seq

    def _target(self) -> Session:
        assert self.session is not None  # noqa: S101 - callers have checked it
        return Session.objects.get(pk=selectors.shown_id(self.agent.owner, self.session.pk))

    def _follow(self, send: Callable[[], Turn], seconds: float | None = None) -> Turn:
        assert self.session is not None  # noqa: S101 - there is one to send to
        wake, right = threading.Event(), Right(user_id=self.agent.owner_id)
        shows = selectors.shown_id(self.agent.owner, self.session.pk)
        position = Position(session_id=shows, cursor=beginning())
        subscription = Subscription(opened=self.session.pk, position=position, right=right, wake=wake.set)
        hub().subscribe(subscription)
        try:
            turn = send()
            answer = Answer(turn=turn.pk, screen=self.screen)
            _Follower(
                turn=turn, answer=answer, subscription=subscription, wake=wake, seconds=seconds
            ).follow()
        finally:
            subscription.close()
        ended = selectors.turn(self.agent.owner, turn.pk)
        answer.settle(getattr(ended, "reply", None) or ended.error or "")
        self.screen.end_line()
        self._seen = max(self._seen, self._target().last_seq)
        return ended


@dataclass(kw_only=True)
class _Follower:
    """Shows a turn until it ends. `seconds`: how long it may take."""

    turn: Turn
    answer: Answer
    subscription: Subscription
    wake: threading.Event
    seconds: float | None
    _began: float = field(default_factory=time.monotonic)
    _is_remarked: bool = False
    _has_ended: bool = False

    def follow(self) -> None:
        """The first Ctrl-C cancels the turn, a second one leaves (KeyboardInterrupt). TimeoutError."""
        is_stopping = False
        while True:
            try:
                if self._look():
                    return
            except KeyboardInterrupt:
                if is_stopping:
                    raise
                is_stopping = True
                self.answer.screen.note("Stopping …")
                _cancel(self.turn)

    def _look(self) -> bool:
        """Wait for events and show them. Whether the last one was among them, or does not come any more."""
        longest = NOTE_SECONDS if self.answer.holds_notes else CHECK_SECONDS
        is_quiet = not self.wake.wait(longest if self.seconds is None else min(self.seconds, longest))
        self.wake.clear()
        if True in [self.answer.hear(item) for item in self.subscription.take()]:
            return True
        if self.seconds is not None and time.monotonic() - self._began > self.seconds:
            _cancel(self.turn)
            raise TimeoutError
        if is_quiet and self.answer.holds_notes:
            self.answer.show_notes()
            return False
        return is_quiet and self._ended_unheard()

    def _ended_unheard(self) -> bool:
        row = Turn.objects.only("state").filter(pk=self.turn.pk).first()
        if row is None or self.subscription.closed:
            return row is None or row.state not in OPEN_STATES
        if row.state in OPEN_STATES:
            self._remark(row.state)
            return False
        before, self._has_ended = self._has_ended, True  # at first its events may be on their way
        return before

    def _remark(self, state: str) -> None:
        waited = time.monotonic() - self._began
        if state == TurnState.QUEUED and waited > UNBEGUN_SECONDS and not self._is_remarked:
            self.answer.screen.note(
                f"No worker has begun yet; `{settings.RONDO_COMMAND} doctor` may say why."
            )
            self._is_remarked = True


def _cancel(turn: Turn) -> None:
    with suppress(TurnEnded):
        cancel_turn(turn.pk)


def _name(question: dict[str, Any]) -> str:
    return f"{question['execution']} {question['question_id']}"
