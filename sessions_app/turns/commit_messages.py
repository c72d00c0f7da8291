"""The messages of a turn's commit, which are added to the history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_core.types import Ended, Ending, Entry, Role, TurnResult
from sessions_app.memory import images
from sessions_app.memory.history import REFUSED, parts_of
from sessions_app.models import Message
from sessions_app.models.message import ENDED_KEY
from sessions_app.questions import consent
from sessions_app.turns.context import Prepared

LONGEST_REASON = 300  # characters of why the fallback model was asked


def new_messages(prepared: Prepared, result: TurnResult, closure: str) -> list[Message]:
    """Make the messages that the turn adds to the history: its input, the entries of the result, and the closure."""
    messages: list[Message] = []

    def add(role: Role, content: str, **more: Any) -> None:
        messages.append(Message(role=str(role), content=content.replace("\x00", ""), **more))

    trigger = prepared.trigger
    replays = prepared.kind.replays_model_content and result.was_shown
    shown = prepared.request.message if replays else trigger.content
    if trigger.content:
        add(
            Role.USER,
            trigger.content,
            model_content=shown.replace("\x00", "") if shown != trigger.content else None,
            metadata=_of_input(trigger.metadata, result),
        )
    for entry in _kept(result):
        add(entry.role, entry.content, parts=parts_of(entry), metadata=_metadata_of(prepared, entry))
    if result.refused:
        for message in messages:
            message.metadata = message.metadata | {REFUSED: True}
    if closure:
        metadata = _metadata_of(prepared, None) | {"closure": str(result.ending)} | _end_of(result.ended_by)
        add(Role.ASSISTANT, closure, metadata=metadata)
    if result.fell_back and messages:
        messages[-1].metadata = messages[-1].metadata | {
            "model": result.model,
            "fell_back": result.fell_back[:LONGEST_REASON],
        }
    consent.mark_question(messages[-1:], result)
    return messages


def _of_input(metadata: dict[str, Any], result: TurnResult) -> dict[str, Any]:
    """Without the images of a failed turn: a model that refused them would refuse each later turn."""
    if result.ending is not Ending.FAILED:
        return metadata
    return {name: value for name, value in metadata.items() if name != images.KEY}


def _kept(result: TurnResult) -> Iterable[Entry]:
    """Yield the entries to store: not empty ones and, unless the turn succeeded, not the injected ones.

    Guests of a failed turn run by themselves later, so their text must not be stored twice.
    """
    for entry in result.entries:
        if entry.role is Role.USER and result.ending is not Ending.SUCCEEDED:
            continue
        if entry.content.strip() or entry.calls or entry.results:
            yield entry


def _metadata_of(prepared: Prepared, entry: Entry | None) -> dict[str, Any]:
    """Return the metadata of a message; `entry` is None for the closure."""
    if entry is not None and entry.role is Role.USER:
        return {"injected": True}
    trigger = prepared.trigger
    # without a stored input its metadata go to the answer
    metadata: dict[str, Any] = {} if trigger.content else dict(trigger.metadata)
    if entry is None or entry.role is Role.ASSISTANT:
        if trigger.source:
            metadata["source"] = trigger.source
        if trigger.route:
            metadata["route"] = trigger.route
    if entry is not None and entry.partial:
        metadata["partial"] = True
    return metadata | (_end_of(entry.ended_by) if entry is not None else {})


def _end_of(ended_by: Ended | None) -> dict[str, Any]:
    """Metadata of an answer that is not whole: how it ended."""
    return {} if ended_by in (None, Ended.STOP) else {ENDED_KEY: str(ended_by)}
