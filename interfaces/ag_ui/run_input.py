"""Read a RunAgentInput: what of it becomes a message, and what answers a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ag_ui.core import DataSource, ImagePart, ResumeEntry, RunAgentInput, TextPart, UserMessage
from pydantic import ValidationError

from sessions_app.exceptions import BadInput
from sessions_app.sessions.images import MOST_IMAGES, image_in_base64

if TYPE_CHECKING:
    from agent_core.types import Image

LONGEST_ID = 150  # characters of a thread's, message's or interrupt's id
BACKGROUND_ROLES = frozenset({"system", "developer", "activity", "reasoning"})


@dataclass(frozen=True, kw_only=True)
class Said:
    """A person's message. `id` is the client's."""

    id: str
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a client asks for: a new message, an answer, whose payload is not checked yet, or neither, to read the
    history.

    `known`: the ids of the person's messages that the client shows, in order.
    """

    thread_id: str
    run_id: str
    said: Said | None
    answered: ResumeEntry | None
    known: tuple[str, ...]


def read_run(data: Any) -> Run:
    """Check a body. BadInput: it is no RunAgentInput, or asks for what this server does not do."""
    try:
        given = RunAgentInput.model_validate(data)
    except ValidationError as error:
        raise BadInput(f"this is no RunAgentInput: {_reasons(error)}", code="bad_run") from None
    for named in (given.thread_id, given.run_id):
        _check_id(named)
    answered = _answer_in(given)
    return Run(
        thread_id=given.thread_id,
        run_id=given.run_id,
        said=None if answered else _message_in(given),
        answered=answered,
        known=tuple(each.id for each in given.messages if isinstance(each, UserMessage)),
    )


def _message_in(given: RunAgentInput) -> Said | None:
    """The last message, if it is the person's. None: nothing new was said."""
    spoken = [each for each in given.messages if each.role not in BACKGROUND_ROLES]
    if not spoken or spoken[-1].role == "assistant":
        return None
    last = spoken[-1]
    if not isinstance(last, UserMessage):
        text = "tools of the client are not supported: an agent calls its own tools only"
        raise BadInput(text, code="unsupported_message")
    _check_id(last.id)
    return _said(last)


def _said(message: UserMessage) -> Said:
    if isinstance(message.content, str):
        return Said(id=message.id, text=message.content)
    texts, images = [], []
    for part in message.content:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ImagePart) and isinstance(part.source, DataSource):
            images.append(image_in_base64(part.source.value))
        else:
            text = "a message may have text, and images with a source of the type `data`"
            raise BadInput(text, code="unsupported_message")
    if len(images) > MOST_IMAGES:
        raise BadInput(f"a message may have at most {MOST_IMAGES} images", code="unsupported_message")
    return Said(id=message.id, text="\n".join(texts), images=tuple(images))


def _answer_in(given: RunAgentInput) -> ResumeEntry | None:
    if not given.resume:
        return None
    if len(given.resume) > 1:
        raise BadInput("answer one interrupt with each run", code="bad_run")
    _check_id(given.resume[0].interrupt_id)
    return given.resume[0]


def _check_id(text: str) -> None:
    if not text or len(text) > LONGEST_ID or not text.isprintable():
        raise BadInput(f"an id has 1 to {LONGEST_ID} printable characters", code="bad_run")


def _reasons(error: ValidationError) -> str:
    """The first three fields that are wrong. What was given is not repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))[:100]}: {each['msg'][:200]}" for each in found[:3])
