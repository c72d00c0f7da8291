"""Models over the network, by pydantic-ai's client for one streamed request.

Its agent loop is not used, because a turn must journal each step, react to signals at once and resume. Importing this
module takes a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any, Final, cast

import httpx2
from openai import APIError
from pydantic_ai import messages as wire
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings, ThinkingLevel
from pydantic_ai.tools import ToolDefinition

from agent_core.connections import Connection, hooks
from agent_core.exceptions import ModelNotConfigured, ModelRefused, ModelUnavailable
from agent_core.llm.clients import model_of, own_model
from agent_core.llm.errors import UNREADABLE, translated
from agent_core.llm.protocol import Bounds, ModelCall, ModelReply, Thought, read_call
from agent_core.llm.stream import End, EndMark, expect_mark, use_pieces
from agent_core.llm.thinking import ThinkingFilter
from agent_core.llm.valid_request import NO_TEXT, shown_output, valid_call, with_form_as_text
from agent_core.text.redact import redact
from agent_core.tool_spec import ToolSpec
from agent_core.types import Ended, Entry, Role, ToolCall, ToolOutcome, ToolResult, Usage

_CLIENT_ERRORS = (AgentRunError, UserError, APIError, httpx2.HTTPError, httpx2.StreamError)
# Stands for the missing request if the history begins with a message of the assistant.
_BEFORE = "(what was said before this, if anything, is not shown)"
_OUTCOMES: Final[dict[ToolOutcome, Any]] = {
    ToolOutcome.OK: "success",
    ToolOutcome.FAILED: "failed",
    ToolOutcome.REFUSED: "denied",
    ToolOutcome.UNKNOWN: "interrupted",
}


class PydanticAiModel:
    """A Model for any of pydantic-ai's model strings.

    ``openai-chat:NAME`` uses ``OPENAI_BASE_URL`` with ``OPENAI_API_KEY``. Any address other than OpenAI's own is
    treated as a compatible server, which needs no key. With a connection, ``name`` is the name of one of its models.
    """

    def __init__(self, name: str, connection: Connection | None = None) -> None:
        self._secrets = connection.secrets if connection else ()
        self._is_late = False  # it sends the closing tag of its reasoning alone
        try:
            self._model = model_of(connection, name) if connection else own_model(name)
        except (UserError, ValueError, ImportError) as error:
            text = redact(f"The model {name!r} cannot be used: {error}", more=self._secrets)
            # a connection's text names its owner's own settings, not the server's variables
            raise ModelNotConfigured(text, reason=text[:200] if connection else "") from None

    async def stream(self, call: ModelCall) -> AsyncIterator[str | Thought | ModelReply]:
        """Make one streamed request; see ``protocol.Model``."""
        if _shows_to_the_blind(call, self._model.profile):
            text = f"The model {self._model.model_name!r} does not see images"
            refused = ModelRefused(text, reason=text[:200])
            refused.is_free = True
            raise refused
        if call.form_as_text or not _can_force(self._model.profile, call.settings.reasoning):
            call = with_form_as_text(call)
        call = valid_call(call)
        silence = min(hooks.silence(), call.patience)
        now = asyncio.get_running_loop().time
        bound = asyncio.timeout(silence)
        try:
            mark = expect_mark()
            async with (
                bound,
                model_request_stream(
                    self._model,
                    _messages(call),
                    model_settings=_settings(call),
                    model_request_parameters=_parameters(call),
                ) as stream,
            ):
                async for item in self._read(stream, mark, lambda: bound.reschedule(now() + silence)):
                    yield item
        except TimeoutError as error:
            if not bound.expired():
                raise translated(error, call, self._secrets) from None
            reason = f"The model provider sent nothing for {silence:.3g} s"
            raise ModelUnavailable(reason, reason=reason) from None
        except (*_CLIENT_ERRORS, *UNREADABLE) as error:
            # "from None": a chained traceback would show the server's own text, which may contain a key.
            raise translated(error, call, self._secrets) from None

    async def _read(
        self, stream: StreamedResponse, mark: EndMark, heard: Callable[[], None]
    ) -> AsyncIterator[str | Thought | ModelReply]:
        """Yield what a stream says, then the reply. Raises ModelUnavailable if it was cut. Each event is ``heard``.

        A stream that exceeds the bounds is read no further: the reply is the text so far, and ends by length.
        """
        use_pieces(stream)
        split, bounds, is_full = ThinkingFilter(late=self._is_late), Bounds(), False
        async for event in stream:
            heard()
            piece, size = _new_piece(event)
            begins = event.part if isinstance(event, wire.PartStartEvent) else None
            begins_call = isinstance(begins, wire.BaseToolCallPart)
            if not bounds.take(size, begins_part=begins is not None, begins_call=begins_call):
                piece, is_full = _first(piece, bounds.characters), True
            for each in split.feed(piece):
                yield each
            if is_full:
                break
        for each in split.end():
            yield each
        self._is_late = split.is_late
        yield _reply(stream.get(), split.text, None if is_full else mark)


def _settings(call: ModelCall) -> ModelSettings:
    settings = ModelSettings(max_retries=0)  # the turn's policy retries
    if call.settings.temperature is not None:
        settings["temperature"] = call.settings.temperature
    if effort := call.settings.reasoning:
        settings["thinking"] = False if effort == "off" else cast("ThinkingLevel", effort)
    if call.form is not None:
        settings["tool_choice"] = "none"  # the other tools are only described; they cannot be called
    if call.settings.max_tokens is not None and (call.form is None or call.is_bounded):
        # a form that is cut off could not be read
        settings["max_tokens"] = call.settings.max_tokens
    return settings


def _can_force(profile: ModelProfile, effort: str) -> bool:
    """Whether this model can be forced to call a form."""
    thinks = (
        profile.get("thinking_enabled_by_default", False)
        or profile.get("thinking_always_enabled", False)
        or effort not in ("", "off")
    )
    return (
        profile.get("supports_tools", True)
        and profile.get("supports_forced_tool_choice", True)
        and not (thinks and not profile.get("supports_forced_tool_choice_with_thinking", True))
        and not (thinks and profile.get("forced_tool_choice_disables_thinking", False))
    )


def _parameters(call: ModelCall) -> ModelRequestParameters:
    """The tools of a request. A form becomes the client's structured output, the one call that must be made."""
    if call.form is None:
        return ModelRequestParameters(function_tools=_tools(call.tools))
    return ModelRequestParameters(
        function_tools=_tools(call.tools),
        output_mode="tool",
        output_tools=[replace(form, kind="output") for form in _tools([call.form])],
        allow_text_output=False,
    )


def _tools(specs: Iterable[ToolSpec]) -> list[ToolDefinition]:
    return [
        ToolDefinition(
            name=spec.name,
            description=spec.description,
            parameters_json_schema=spec.parameters,
            strict=False,  # many compatible servers reject strict schemas
        )
        for spec in specs
    ]


def _messages(call: ModelCall) -> list[wire.ModelMessage]:
    """Map entries to the client's messages: requests and responses in alternation, a request first.

    Consecutive entries of one side are joined. The assistant may come first, or twice in a row, after a scheduled
    message or if earlier entries left the request.
    """
    parts: list[wire.ModelRequestPart] = []
    sees = call.settings.images
    if call.system_prompt:
        parts.append(wire.SystemPromptPart(call.system_prompt))
    mapped: list[wire.ModelMessage] = []
    for entry in call.entries:
        if entry.role is not Role.ASSISTANT:
            is_person = entry.role is Role.USER
            parts += [_said(entry, sees)] if is_person else map(_return_part, entry.results)
        else:
            _add_response(mapped, parts, _response_parts(entry))
            parts = []
    if parts:
        mapped.append(wire.ModelRequest(parts=parts))
    return mapped


def _shows_to_the_blind(call: ModelCall, profile: ModelProfile) -> bool:
    return not profile.get("supports_image_input", True) and any(entry.images for entry in call.entries)


def _said(entry: Entry, sees: bool) -> wire.UserPromptPart:
    if not entry.images or not sees:
        return wire.UserPromptPart(entry.content or NO_TEXT)
    shown = [wire.BinaryContent(data=each.content, media_type=each.media_type) for each in entry.images]
    return wire.UserPromptPart([entry.content, *shown] if entry.content else shown)


def _add_response(
    mapped: list[wire.ModelMessage],
    asked: list[wire.ModelRequestPart],
    response: list[wire.ModelResponsePart],
) -> None:
    if mapped and not asked and isinstance(mapped[-1], wire.ModelResponse):
        mapped[-1] = wire.ModelResponse(parts=[*mapped[-1].parts, *response])
        return
    if not mapped and not any(isinstance(part, wire.UserPromptPart) for part in asked):
        asked = [*asked, wire.UserPromptPart(_BEFORE)]
    mapped += [wire.ModelRequest(parts=asked), wire.ModelResponse(parts=response)]


def _return_part(result: ToolResult) -> wire.ToolReturnPart:
    return wire.ToolReturnPart(
        tool_name=result.name,
        content=shown_output(result),
        tool_call_id=result.id,
        outcome=_OUTCOMES[result.outcome],
    )


def _response_parts(entry: Entry) -> list[wire.ModelResponsePart]:
    parts: list[wire.ModelResponsePart] = [wire.TextPart(entry.content)] if entry.content else []
    parts += [
        wire.ToolCallPart(
            tool_name=call.name,
            args=call.arguments,
            tool_call_id=call.id,
        )
        for call in entry.calls
    ]
    return parts


def _new_piece(event: wire.ModelResponseStreamEvent) -> tuple[str | Thought | None, int]:
    """What an event adds to the text or to the reasoning, if anything, and its characters, also those of a call."""
    match event:
        case (
            wire.PartStartEvent(part=wire.TextPart(content=text))
            | wire.PartDeltaEvent(delta=wire.TextPartDelta(content_delta=text))
        ):
            return text, len(text)
        case (
            wire.PartStartEvent(part=wire.ThinkingPart(content=thought))
            | wire.PartDeltaEvent(delta=wire.ThinkingPartDelta(content_delta=thought))
        ):
            return _thought(thought), len(thought or "")
        case (
            wire.PartStartEvent(part=wire.BaseToolCallPart(tool_name=name, args=arguments))
            | wire.PartDeltaEvent(delta=wire.ToolCallPartDelta(tool_name_delta=name, args_delta=arguments))
        ):
            return None, len(name or "") + len(
                arguments if isinstance(arguments, str) else str(arguments or "")
            )
    return None, 0


def _thought(text: str | None) -> Thought | None:
    return Thought(text=text) if text else None


def _first(piece: str | Thought | None, most: int) -> str | Thought | None:
    """The first characters of a piece."""
    return _thought(piece.text[:most]) if isinstance(piece, Thought) else piece and piece[:most]


def _reply(response: wire.ModelResponse, text: str, mark: EndMark | None) -> ModelReply:
    """The reply. `mark` is None for a stream that was not read to its end. Raises ModelUnavailable if it was cut."""
    calls = tuple(_call(part) for part in response.parts if isinstance(part, wire.ToolCallPart))
    details = response.provider_details or {}
    ended_by = Ended.LENGTH
    if mark is not None:
        end = End(
            reason=response.finish_reason,
            details=details,
            complete=response.state == "complete",
            marked=mark.seen,
            is_empty=not (text.strip() or calls),
        )
        ended_by = end.ended_by()
        if ended_by is Ended.CUT:
            raise end.cut()
    if ended_by is Ended.REFUSAL and not text.strip():
        text = str(details.get("refusal") or "")[: hooks.reply_characters()]
    usage = Usage(
        input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens, requests=1
    )
    return ModelReply(text=text, calls=calls, usage=usage, ended_by=ended_by)


def _call(part: wire.ToolCallPart) -> ToolCall:
    if isinstance(part.args, dict):
        return ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args)
    return read_call(part.tool_call_id, part.tool_name, part.args or "")
