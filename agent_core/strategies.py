"""Builds the system prompt and the message of a turn, by session type (rule 3.3).

The system prompt contains only what is stable, so that it is byte-identical from turn to turn and a provider's prefix
cache stays warm. Updates, due tasks, missing tools and the trigger go into the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from agent_core import prompts
from agent_core.llm import tokens
from agent_core.text import fence
from agent_core.text.formats import indented
from agent_core.turn import request_size

DOCUMENTS: Final = ("AGENTS.md", "USER.md", "MEMORY.md", "SKILLS.md")
INSTRUCTING: Final = frozenset({"AGENTS.md", "SKILLS.md"})  # only people write these
DREAM: Final = "dream"  # a strategy for turns of any session type


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """A mailbox event as the model is shown it (rule 6.2)."""

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
    """An MCP server whose tools are not available in this turn, and why."""

    server: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextInput:
    """The input of a strategy. ``documents`` maps names such as USER.md to their text.

    ``instructions`` are the person's preferences, or a job's own instructions.
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
    """The parts of a request beside the history: system prompt and message."""

    system_prompt: str
    message: str


Strategy = Callable[[ContextInput], Context]


def _chat(given: ContextInput) -> Context:
    """A conversation: background updates come before the trigger."""
    updates = f"{background_updates(given.updates)}\n\n" if given.updates else ""
    return _context("chat.system", given, updates + given.trigger)


def _heartbeat(given: ContextInput) -> Context:
    """A heartbeat: due tasks come after the trigger."""
    tasks = f"\n\n{due_tasks(given.due_tasks)}" if given.due_tasks else ""
    return _context("heartbeat.system", given, given.trigger + tasks)


def _job(given: ContextInput) -> Context:
    """An isolated job: the message is the trigger."""
    return _context("job.system", given, given.trigger)


def _dream(given: ContextInput) -> Context:
    """The nightly work on MEMORY.md, whose trigger contains all it needs."""
    variables = {"agent_name": given.agent_name, "data_rule": prompts.data_rule()}
    rendered = prompts.render_prompt("dream.system", variables)
    return Context(system_prompt=rendered.text, message=given.trigger)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "primary": _chat,
    "sub": _chat,
    "heartbeat": _heartbeat,
    "job": _job,
    DREAM: _dream,
}


def background_updates(updates: tuple[Update, ...]) -> str:
    """Return the heading and one item per update as data, without the blank line that follows."""
    lines = []
    for update in updates:
        lines.append(f"- [{_one_line(update.event_type)}] {_one_line(update.summary)}")
        if update.detail.strip():
            lines.append(f"  Detail: {indented(update.detail)}")
        if update.artifacts:
            lines.append(f"  Artifacts: {', '.join(map(_one_line, update.artifacts))}")
    return "\n".join(["## Background Updates", fence.fenced("updates", "\n".join(lines))])


def due_tasks(tasks: tuple[DueTask, ...]) -> str:
    """Return the heading and one item per task."""
    lines = ["## Due Tasks"]
    lines += [f"- [{task.id}] {_one_line(task.title)}: {indented(task.description)}" for task in tasks]
    return "\n".join(lines)


def _with_missing(given: ContextInput, message: str) -> str:
    """The message, after a list of the tools that are missing, if any."""
    if not given.missing_tools:
        return message
    lines = [
        f"- [{missing.server}] Its tools are missing now: {_one_line(missing.reason)}."
        for missing in given.missing_tools
    ]
    return "\n".join(["## Missing Tools", fence.fenced("missing tools", "\n".join(lines)), "", message])


def _context(prompt_id: str, given: ContextInput, message: str) -> Context:
    instructions = given.instructions.strip()
    fenced = fence.fenced("instructions", instructions, fence.INSTRUCTIONS) if instructions else "None."
    variables = {
        "agent_name": given.agent_name,
        "timezone": given.timezone,
        "documents": _documents(given.documents),
        "data_rule": prompts.data_rule(),
        "instructions": fenced,
    }
    system_prompt = prompts.render_prompt(prompt_id, variables).text
    return Context(system_prompt=system_prompt, message=_with_missing(given, message))


def _documents(documents: Mapping[str, str]) -> str:
    texts = {name: text for name in DOCUMENTS if (text := documents.get(name, "").strip())}
    return "\n\n".join(_document(name, text) for name, text in _fitting(texts).items()) or (
        "There are no documents yet."
    )


def _document(name: str, text: str) -> str:
    kind = fence.INSTRUCTIONS if name in INSTRUCTING else fence.DATA
    return f"## {name}\n\n{fence.fenced(name, text, kind)}"


def _fitting(texts: Mapping[str, str]) -> dict[str, str]:
    """The documents within half of a request's limit of tokens. The longest ones are cut in the middle."""
    most = request_size.limit() // 2
    sizes = {name: tokens.of_text(text) for name, text in texts.items()} if most else {}
    if sum(sizes.values()) <= most:
        return dict(texts)
    shares: dict[str, int] = {}
    for name in sorted(sizes, key=lambda each: sizes[each]):
        shares[name] = min(sizes[name], (most - sum(shares.values())) // (len(sizes) - len(shares)))
    return {name: request_size.clipped(text, shares[name]) for name, text in texts.items()}


def _one_line(text: str) -> str:
    return " ".join(text.split())
