"""Turns in this very process: the story of a turn with a scripted model, without the processes around it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from agent_core import models, tools
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.tools import Effect, Tool
from agent_core.types import ToolCall
from automations.firing.fire_jobs import BATCH, fire_due_jobs
from automations.firing.fire_messages import fire_due_messages
from automations.firing.inline_routines import InlineRoutineStarter
from automations.firing.retries import queue_due_retries
from sessions_app import metrics
from sessions_app.models import Agent, Engine, OnBusy, Session, Turn, TurnInput, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.turns.claim import claim_next
from sessions_app.turns.lock import Handle
from sessions_app.turns.run import _finish
from tests import plugins
from tests.conftest import Person, new_person

MODEL = "scripted-inside"
Reply = ModelReply | Exception | Callable[[], ModelReply]


def during(action: Callable[[], object], reply: ModelReply) -> Callable[[], ModelReply]:
    """A reply before which something happens, while the model is asked."""

    def call() -> ModelReply:
        try:
            action()
        finally:
            connection.close()
        return reply

    return call


def call(name: str, call_id: str = "1", /, **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def makes(*calls: ToolCall) -> ModelReply:
    """A response with these calls."""
    return ModelReply(text="", calls=calls)


@contextmanager
def listening(run: Callable[[], object]) -> Iterator[None]:
    """There is a tool `listen`, which reads. While it runs, this happens."""
    about: Any = {"description": "Listens.", "parameters": {"type": "object", "properties": {}}}
    tools.register(Tool(name="listen", run=lambda *_: str(run()), effect=Effect.READ, **about))
    try:
        yield
    finally:
        tools.unregister("listen")


@dataclass
class Script:
    """A model that gives its replies in order, whatever it is asked. A reply that is an exception is raised."""

    replies: list[Reply] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        self.calls.append(call)
        reply = self.replies.pop(0) if self.replies else ModelReply(text="Hello.")
        if callable(reply):
            reply = await asyncio.to_thread(reply)
        if isinstance(reply, Exception):
            raise reply
        if reply.text:
            yield reply.text
        yield reply

    def answer_with(self, *replies: Reply) -> None:
        """Say these next. What an earlier turn was to say, it has said."""
        assert self.replies == []
        self.replies = list(replies)

    def shown(self, number: int = -1) -> str:
        """The last message of a request."""
        return self.calls[number].entries[-1].content


@dataclass(frozen=True, kw_only=True)
class Inside:
    """A person, the model of their agent, the folder in which tools leave their marks, and the turns that began."""

    person: Person
    model: Script
    folder: Path
    handles: list[Handle] = field(default_factory=list)

    def planner(self) -> None:
        """Have the agent plan."""
        Agent.objects.update(engine=Engine.PLANNER, policy={"max_attempts": 1})
        self.person.agent.refresh_from_db()

    def say(
        self, session: Session, text: str, *replies: Reply, on_busy: OnBusy = OnBusy.INJECT, **about: Any
    ) -> Turn:
        """A message, answered with these replies."""
        turn = receive(session.pk, MessageInput(content=text, on_busy=on_busy, about=TurnInput(**about)))
        self.run(session, *replies)
        turn.refresh_from_db()
        return turn

    def did(self, name: str) -> int:
        """How often a tool was really run with this name."""
        return plugins.calls(self.folder, name)

    def run(self, session: Session, *replies: Reply) -> None:
        """All turns that wait in the session, in their order, answered with these replies."""
        if replies:
            self.model.answer_with(*replies)
        self._run_waiting(session.pk)
        session.refresh_from_db()

    def run_all(self) -> None:
        """All turns that wait in any session, and those that they bring about: what a fleet would do."""
        waiting = Turn.objects.filter(state=TurnState.QUEUED).order_by("pk").values_list("session", flat=True)
        ran = True
        while ran:
            ran = sum(self._run_waiting(session) for session in dict.fromkeys(waiting.all())) > 0

    def beat(self, *replies: Reply) -> None:
        """What is due now becomes turns, as a beat does it, and they run, answered with these replies."""
        if replies:
            self.model.answer_with(*replies)
        InlineRoutineStarter().step()
        queue_due_retries(BATCH)
        while fire_due_messages(BATCH).claimed or fire_due_jobs(BATCH).claimed:
            pass
        self.run_all()

    def _run_waiting(self, session_id: uuid.UUID) -> int:
        """How many turns of the session were run."""
        count = 0
        while (turn := claim_next(session_id, uuid.uuid4(), auto_allowed=True)) is not None:
            self.handles.append(Handle(session_id=session_id, turn_id=turn.pk, claim=turn.claim))
            _finish(self.handles[-1], turn)
            count += 1
        return count


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch, person: Person | None = None) -> Inside:
    """Someone whose agent's turns run here, with the tools of `tests/plugins.py`."""
    metrics._gathered.reset()  # what earlier tests counted in this process
    model = Script()
    models.register(MODEL, lambda: model)
    monkeypatch.setenv("TEST_TOOLS_FOLDER", str(folder))
    if person is None:
        person = new_person("ada")
    Agent.objects.filter(pk=person.agent.pk).update(model=MODEL)
    person.agent.refresh_from_db()
    return Inside(person=person, model=model, folder=folder)
