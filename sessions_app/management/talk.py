"""A talk with an agent in a terminal: sends messages and answers, and follows their turns.

It calls the functions of the API, and not the API by HTTP: a command has the server's settings but no token, and it may
run where no web process does. The hub hands out the same events as the streams of the API.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sessions_app import selectors
from sessions_app.api.waiting_serializers import waiting_of
from sessions_app.exceptions import TurnEnded
from sessions_app.management.terminal import Answer, Screen
from sessions_app.models import Agent, Message, OnBusy, Session, Turn, TurnState
from sessions_app.models.turn import OPEN_STATES
from sessions_app.sessions.open import open_session
from sessions_app.streams.event_log import now
from sessions_app.streams.hub import hub
from sessions_app.streams.rights import Right
from sessions_app.streams.subscription import Subscription
from sessions_app.turns import question_reads, questions
from sessions_app.turns.cancel import cancel_turn
from sessions_app.turns.receive import MessageInput, receive

CHECK_SECONDS = 2.0  # between two reads of the turn, in case an event is lost
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
        """The newest question that waits for the person and was not left open, as the API shows it."""
        if self.session is None:
            return None
        asked = waiting_of(selectors.session(self.agent.owner, self.session.pk))
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
        subscription = hub().subscribe(self.session.pk, now(), wake.set, shows, right)
        try:
            turn = send()
            answer = Answer(turn=turn.pk, screen=self.screen)
            _until_ended(turn, answer, subscription, wake, seconds)
        finally:
            hub().unsubscribe(subscription)
        ended = selectors.turn(self.agent.owner, turn.pk)
        answer.settle(getattr(ended, "reply", None) or ended.error or "")
        self.screen.end_line()
        self._seen = max(self._seen, self._target().last_seq)
        return ended


def _until_ended(
    turn: Turn, answer: Answer, subscription: Subscription, wake: threading.Event, seconds: float | None
) -> None:
    """Show the turn until it ends. The first Ctrl-C cancels it, a second one leaves (KeyboardInterrupt)."""
    began, is_stopping, is_remarked = time.monotonic(), False, False
    while True:
        try:
            is_quiet = not wake.wait(CHECK_SECONDS)
            wake.clear()
            if True in [answer.hear(item) for item in subscription.take()]:
                return
            waited = time.monotonic() - began
            if seconds is not None and waited > seconds:
                _cancel(turn)
                raise TimeoutError
            row = Turn.objects.only("state").filter(pk=turn.pk).first() if is_quiet else turn
            if row is None or row.state not in OPEN_STATES:
                return
            if is_quiet and row.state == TurnState.QUEUED and waited > UNBEGUN_SECONDS and not is_remarked:
                answer.screen.note("No worker has begun yet; `manage.py doctor` may say why.")
                is_remarked = True
        except KeyboardInterrupt:
            if is_stopping:
                raise
            is_stopping = True
            answer.screen.note("Stopping …")
            _cancel(turn)


def _cancel(turn: Turn) -> None:
    with suppress(TurnEnded):
        cancel_turn(turn.pk)


def _name(question: dict[str, Any]) -> str:
    return f"{question['execution']} {question['question_id']}"
