"""What a turn is given besides its text: where a message comes from and goes to, or what a slot has to do.

`Turn.metadata` stores it as JSON. No other module names a key of it: they read `turn.input`, and write `to_json()`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

IMAGES = "images"  # in Message.metadata: the ids of its images, which a model may be shown
UNSEEN_IMAGES = (
    "unseen_images"  # in Message.metadata: images that only people are shown; a model failed with them
)
FILES = "files"  # in Message.metadata: the ids of its files that a model is shown as text


@dataclass(frozen=True, kw_only=True)
class HookSender:
    """Who sent a hook's post: the hook and its name, the sender it names, and whether it counts as a person."""

    hook: str = ""
    name: str = ""
    sender: str = ""
    as_person: bool = False


@dataclass(frozen=True, kw_only=True)
class TurnInput:
    """The input of a turn besides its text. A field with its default value is not stored."""

    # every turn
    route: dict[str, Any] | None = None  # where the answer goes
    policy: dict[str, Any] = field(default_factory=dict)  # limits that override the agent's
    caps: dict[str, Any] = field(default_factory=dict)  # of the automations whose slots it runs, by their ids

    model: str = ""  # in place of the agent's
    fallback_model: str = ""  # in place of the agent's
    max_output_tokens: int | None = None  # of one reply
    allow_tools: tuple[str, ...] | None = None  # the only tools that it is offered; None: all

    # a message
    message: dict[str, Any] = field(default_factory=dict)  # metadata of the stored message, such as its files
    files: str = ""  # a digest of its files, which a repeated request must bring as well
    seen: int = 0  # the session's last message when this one was written
    command: str = ""  # `clear`
    request: str = ""  # the id of the HTTP request that brought it, for the log lines of its turn
    execution: str = ""  # the execution whose question it answers
    question: str = ""  # the question it answers
    named: bool = False  # the answer names its question, so other messages in between do not matter
    by_program: bool = False  # a program wrote it for its user, so it is never consent
    limited: bool = False  # a token limited to an agent or a session brought it
    in_group: bool = False  # a hook's message comes from a group, whatever session takes it
    written_at: int | None = None  # by its sender's clock, in seconds
    number_at_channel: int | None = None  # its place among the messages of its channel's chat
    replies_to: int | None = None  # the place of the message that it replies to; 0: one of another chat

    # a slot
    automation_id: str = ""
    automation_name: str = ""
    timezone: str = ""
    pings: bool = False  # the job has a `ping_url`
    deliver_to: dict[str, Any] | None = None  # the address of a legacy job
    scheduled_message_id: str = ""
    home: str | None = None  # the conversation that gets a routine's result; empty: the primary one
    next_turn: bool = False  # it continues the previous turn of an isolated routine
    stranger: str = ""  # the hook whose post scheduled it
    read_before: bool = False  # the turn that scheduled it had read text from outside
    gate: dict[str, Any] | None = None  # the check that runs before the model
    findings: str = ""  # text from outside: what the check has found
    gate_warning: str = ""  # why the check could not be made
    gate_seen: dict[str, Any] | None = None  # what it remembers once the turn has succeeded

    # a heartbeat
    tasks: tuple[dict[str, Any], ...] = ()  # the due tasks, each `{id, title, description, run, …}`
    runs: tuple[str, ...] = ()  # the runs that share the turn; a single one is its `origin_run`
    deterministic: bool = False  # its tasks need no model
    warning: str = ""  # why they need one after all

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TurnInput:
        """Read what `to_json` wrote."""
        given = {name: stored[name] for name in _NAMES if name in stored}
        return cls(**given | {name: tuple(given[name]) for name in _TUPLES if name in given})

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored."""
        given = ((name, getattr(self, name)) for name in _NAMES)
        return {name: value for name, value in given if value != getattr(_NOTHING, name)}

    @classmethod
    def of_post(cls, posted_by: HookSender, **more: Any) -> TurnInput:
        """Return the input of a hook's post. People are shown who sent it, so the message has it, too."""
        return cls(message={"via": asdict(posted_by)}, **more)

    @property
    def posted_by(self) -> HookSender | None:
        """The sender of a hook's post; None for a person's message and for the server's own work."""
        via = self.message.get("via")
        return None if via is None else HookSender(**via)

    @property
    def brings_text(self) -> bool:
        """Whether it brings text from outside: what a check has found, or the text of a file."""
        return bool(self.findings or self.message.get(FILES))

    @property
    def home_id(self) -> uuid.UUID | None:
        """The conversation that gets the result; None: the primary one. It may have been deleted."""
        return uuid.UUID(self.home) if self.home else None

    @property
    def is_restricted(self) -> bool:
        """Whether a hook's post scheduled the turn, or a turn that had read text from outside (rule 3.5)."""
        return self.read_before or bool(self.stranger)


_NAMES = tuple(each.name for each in fields(TurnInput))
_TUPLES = ("tasks", "runs", "allow_tools")
_NOTHING = TurnInput()


# for querysets of turns
AUTOMATION_NAME = "metadata__automation_name"
SHARED_RUNS = "metadata__runs"

# In SQL, for a column `Turn.metadata` of SQLAlchemy:


def shared_runs_of(metadata: Any) -> Any:
    """Return the column `runs`, NULL if the turn has a single run or none."""
    return metadata["runs"]


def shares(metadata: Any, part: Any) -> Any:
    """Condition: the turn has this part (JSON of `to_json`) in its input."""
    return metadata.op("@>")(part)
