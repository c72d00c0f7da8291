"""The stage of a conversation: a person with an agent, and every turn run in this process, one after the other.

The same conversation is played by a script, whose requests are kept as snapshots, or by a real model. What it came to
is judged by rows. `script` gives the next replies; a real model does not hear of it.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models.functions import Now

from agent_core.llm.protocol import ModelReply
from agent_core.types import ToolCall
from automations.firing.fire_jobs import fire_due_jobs
from automations.firing.inline_routines import InlineRoutineStarter
from automations.models import CronJob, JobClock
from automations.routines.edit import NewRoutine, add_routine
from sessions_app.agents.edit import update_agent
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.models import Agent, Lane, Message, Session, Turn, TurnInput, TurnState
from sessions_app.queue.receive import MessageInput, receive
from sessions_app.sessions.open import open_session
from sessions_app.turns.run import run_next_turn
from sessions_app.worker.process import WorkerProcess
from tests.automations.jobs.made import new
from tests.model_server import ModelServer

ZONE = "Europe/Berlin"
MOST_TURNS = 10  # that one thing that happens may bring about


def calls(name: str, /, **arguments: Any) -> ModelReply:
    """A reply that calls a tool."""
    return ModelReply(text="", calls=(ToolCall(id=f"call-{name}", name=name, arguments=arguments),))


@dataclass(kw_only=True)
class Stage:
    """Where a conversation is played. ``server``: the one that follows the script; None: a real model answers."""

    agent: Agent
    worker: WorkerProcess
    server: ModelServer | None = None
    chat: Session = field(init=False)
    jobs: list[str] = field(default_factory=list)  # that were made here; one may be removed meanwhile

    def __post_init__(self) -> None:
        self.chat = open_session(self.agent, key="web:conversation")

    def script(self, *replies: ModelReply) -> None:
        """What the model says next, in place of what is left of the script."""
        if self.server is not None:
            self.server.forget_script()
            self.server.answer_with(*replies)

    def agent_is(self, **changes: Any) -> None:
        """Change the agent's settings."""
        self.agent = update_agent(self.agent.pk, changes)

    def say(self, text: str) -> Turn:
        """A person writes, and is answered."""
        turn = receive(self.chat.pk, MessageInput(content=text))
        self.run()
        turn.refresh_from_db()
        return turn

    def post(self, text: str) -> Turn:
        """Another system posts, and is answered."""
        hook = add_hook(NewHook(agent_id=self.agent.pk, session_id=self.chat.pk, name="town"))
        via = {"hook": hook.pk, "name": "town", "as_person": False}
        turn = receive(self.chat.pk, MessageInput(content=text, about=TurnInput(message={"via": via})))
        self.run()
        turn.refresh_from_db()
        return turn

    def automation(self, message: str, name: str = "") -> CronJob:
        """An automation of the conversation, daily at nine."""
        job = new(self.chat, message=message, name=name, schedule={"kind": "cron", "expr": "0 9 * * *"})
        self.jobs.append(job.pk)
        return job

    def routine(self, title: str, description: str, mode: str) -> CronJob:
        """A routine of the conversation."""
        given = NewRoutine(
            agent_id=self.agent.pk,
            title=title,
            description=description,
            schedule="1d",
            execution_mode=mode,
            session_id=self.chat.pk,
        )
        job = add_routine(given)
        self.jobs.append(job.pk)
        return job

    def system_job(self, event: str) -> CronJob:
        """The agent's heartbeat or dream."""
        return CronJob.objects.get(agent=self.agent, system_event=event)

    def fire(self, job: CronJob) -> None:
        """Its time has come."""
        moment = datetime.now(UTC).replace(microsecond=0)
        clocks = JobClock.objects.filter(job=job)
        clocks.update(next_run_at=moment, planned_from=moment - timedelta(hours=1))
        if clocks.get().inline:
            InlineRoutineStarter().step()
        else:
            clocks.update(next_run_at=Now())
            fire_due_jobs()
        self.run()

    def run(self) -> None:
        """Every turn that waits, to its end."""
        for _ in range(MOST_TURNS):
            waiting = Turn.objects.filter(state=TurnState.QUEUED).order_by("due_at", "id").first()
            if waiting is None:
                return
            run_next_turn(self.worker, waiting.session_id, Lane.AUTO)
        raise AssertionError(f"{MOST_TURNS} turns, and there are more")

    def answer(self) -> str:
        """What the agent said last in the conversation."""
        said = Message.objects.filter(session=self.chat, role="assistant").order_by("-seq").first()
        return said.content if said else ""
