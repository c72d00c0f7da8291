"""What the model is told, by session type (rule 3.3).

The system prompt holds only what is stable and is byte-identical from turn to turn, so that a
provider's prefix cache stays warm; updates, due tasks, tools that are missing and the trigger go into the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from agent_core import prompts

DOCUMENTS: Final = ("AGENTS.md", "USER.md", "MEMORY.md", "SKILLS.md")


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """A mailbox event as it is shown (rule 6.2)."""

    event_type: str
    summary: str
    detail: str = ""
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DueTask:
    """A routine that is due now (rule 5.3)."""

    id: str
    title: str
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingTools:
    """An MCP server whose tools are not there in this turn, and why."""

    server: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextInput:
    """What a strategy builds from. ``documents`` maps names such as USER.md to their text.

    ``instructions`` are standing ones: the person's preferences, or a job's own instructions.
    """

    agent_name: str
    timezone: str
    trigger: str
    documents: Mapping[str, str]
    updates: tuple[Update, ...] = ()
    due_tasks: tuple[DueTask, ...] = ()
    missing_tools: tuple[MissingTools, ...] = ()
    instructions: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What the model gets beside the history."""

    system_prompt: str
    message: str


class Strategy(Protocol):
    """Builds the context of one turn."""

    def build(self, given: ContextInput) -> Context:
        """Return the system prompt and the message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatStrategy:
    """A person's conversation: background updates come before the trigger."""

    def build(self, given: ContextInput) -> Context:
        """Return the chat prompt; with no updates the message is exactly the trigger."""
        message = given.trigger
        if given.updates:
            message = f"{background_updates(given.updates)}\n\n{message}"
        return Context(system_prompt=_system_prompt("chat.system", given), message=_after(given, message))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatStrategy:
    """A heartbeat: the tasks that are due come after the trigger."""

    def build(self, given: ContextInput) -> Context:
        """Return the heartbeat prompt; with nothing due the message is exactly the trigger."""
        message = given.trigger
        if given.due_tasks:
            message = f"{message}\n\n{due_tasks(given.due_tasks)}"
        return Context(
            system_prompt=_system_prompt("heartbeat.system", given), message=_after(given, message)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStrategy:
    """An isolated background job: own instructions, and nothing but the trigger."""

    def build(self, given: ContextInput) -> Context:
        """Return the job prompt and the trigger."""
        return Context(
            system_prompt=_system_prompt("job.system", given), message=_after(given, given.trigger)
        )


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "primary": ChatStrategy(),
    "sub": ChatStrategy(),
    "heartbeat": HeartbeatStrategy(),
    "job": JobStrategy(),
}


def background_updates(updates: tuple[Update, ...]) -> str:
    """Return the heading and one item per update, without the blank line that follows."""
    lines = ["## Background Updates"]
    for update in updates:
        lines.append(f"- [{_one_line(update.event_type)}] {_one_line(update.summary)}")
        if update.detail.strip():
            # An indented continuation cannot be taken for a new item or for the person's message.
            detail = "\n    ".join(update.detail.strip().splitlines())
            lines.append(f"  Detail: {detail}")
        if update.artifacts:
            lines.append(f"  Artifacts: {', '.join(map(_one_line, update.artifacts))}")
    return "\n".join(lines)


def due_tasks(tasks: tuple[DueTask, ...]) -> str:
    """Return the heading and one line per task."""
    lines = ["## Due Tasks"]
    lines += [f"- [{task.id}] {_one_line(task.title)}: {_one_line(task.description)}" for task in tasks]
    return "\n".join(lines)


def _after(given: ContextInput, message: str) -> str:
    """The message after what is said of tools that are missing, if any are."""
    if not given.missing_tools:
        return message
    lines = [
        f"- [{missing.server}] Its tools are missing now: {_one_line(missing.reason)}."
        for missing in given.missing_tools
    ]
    return "\n".join(["## Missing Tools", *lines, "", message])


def _system_prompt(prompt_id: str, given: ContextInput) -> str:
    variables = {
        "agent_name": given.agent_name,
        "timezone": given.timezone,
        "documents": _documents(given.documents),
        "instructions": given.instructions.strip() or "None.",
    }
    return prompts.render(prompt_id, variables).text


def _documents(documents: Mapping[str, str]) -> str:
    parts = [
        f"## {name}\n\n{documents[name].strip()}" for name in DOCUMENTS if documents.get(name, "").strip()
    ]
    return "\n\n".join(parts) or "There are no documents yet."


def _one_line(text: str) -> str:
    return " ".join(text.split())
