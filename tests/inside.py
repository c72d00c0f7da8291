"""Turns in this very process: the story of a turn with a scripted model, without the processes around it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_core import models
from agent_core.llm.protocol import ModelCall, ModelReply
from automations.firing.fire_jobs import BATCH, fire_due_jobs
from automations.firing.fire_messages import fire_due_messages
from automations.firing.inline_routines import InlineRoutineStarter
from automations.firing.retries import queue_due_retries
from sessions_app.models import Agent, Engine, Session, Turn, TurnState
from sessions_app.turns.claim import claim_next
from sessions_app.turns.lock import Handle
from sessions_app.turns.receive import MessageInput, receive
from sessions_app.turns.run import _finish
from tests import plugins
from tests.conftest import Person, new_person

MODEL = "scripted-inside"


@dataclass
class Script:
    """A model that gives its replies in order, whatever it is asked. A reply that is an exception is raised."""

    replies: list[ModelReply | Exception] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        self.calls.append(call)
        reply = self.replies.pop(0) if self.replies else ModelReply(text="Hello.")
        if isinstance(reply, Exception):
            raise reply
        if reply.text:
            yield reply.text
        yield reply

    def answer_with(self, *replies: ModelReply | Exception) -> None:
        """Say these next. What an earlier turn was to say, it has said."""
        assert self.replies == []
        self.replies = list(replies)

    def shown(self, number: int = -1) -> str:
        """The last message of a request."""
        return self.calls[number].entries[-1].content


@dataclass(frozen=True, kw_only=True)
class Inside:
    """A person, the model of their agent, and the folder in which tools leave their marks."""

    person: Person
    model: Script
    folder: Path

    def planner(self) -> None:
        """Have the agent plan."""
        Agent.objects.update(engine=Engine.PLANNER, policy={"max_attempts": 1})
        self.person.agent.refresh_from_db()

    def say(self, session: Session, text: str, **more: Any) -> Turn:
        """A message, answered."""
        turn = receive(session.pk, MessageInput(content=text, **more))
        self.run(session)
        turn.refresh_from_db()
        return turn

    def did(self, name: str) -> int:
        """How often a tool was really run with this name."""
        return plugins.calls(self.folder, name)

    def run(self, session: Session) -> None:
        """All turns that wait in the session, in their order."""
        _run_waiting(session.pk)
        session.refresh_from_db()

    def run_all(self) -> None:
        """All turns that wait in any session, and those that they bring about: what a fleet would do."""
        waiting = Turn.objects.filter(state=TurnState.QUEUED).order_by("pk").values_list("session", flat=True)
        ran = True
        while ran:
            ran = sum(_run_waiting(session) for session in dict.fromkeys(waiting.all())) > 0

    def beat(self) -> None:
        """What is due now becomes turns, as a beat does it, and they run."""
        InlineRoutineStarter().step()
        queue_due_retries(BATCH)
        while fire_due_messages(BATCH).claimed or fire_due_jobs(BATCH).claimed:
            pass
        self.run_all()


def _run_waiting(session_id: uuid.UUID) -> int:
    """How many turns of the session were run."""
    count = 0
    while (turn := claim_next(session_id, uuid.uuid4(), auto_allowed=True)) is not None:
        _finish(Handle(session_id=session_id, turn_id=turn.pk, claim=turn.claim), turn)
        count += 1
    return count


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """Someone whose agent's turns run here, with the tools of `tests/plugins.py`."""
    model = Script()
    models.register(MODEL, lambda: model)
    monkeypatch.setenv("TEST_TOOLS_FOLDER", str(folder))
    return Inside(person=new_person("ada", model=MODEL), model=model, folder=folder)
