"""Models over the network, by pydantic-ai's client for one streamed request.

Its agent loop is not used, because a turn must journal each step, react to signals at once and resume. Importing this
module takes a second.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from openai import APIError, AsyncOpenAI
from pydantic_ai import messages as wire
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from agent_core.exceptions import ModelNotConfigured
from agent_core.llm.errors import UNREADABLE, translated
from agent_core.llm.forms import with_form_as_text
from agent_core.llm.protocol import ModelCall, ModelReply, read_call
from agent_core.text import fence
from agent_core.text.redact import redact
from agent_core.tool_spec import ToolSpec
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult, Usage

OPENAI_URL: Final = "https://api.openai.com/v1"
_CHAT = "openai-chat:"
_MOST_CONNECTIONS = 1000  # a worker process may have 500 turns that wait for a model
# There is no shorter read timeout, because the turn's own deadline cancels the request.
_TIMEOUT = httpx2.Timeout(3600.0, connect=5.0, write=30.0, pool=30.0)
_SETTINGS = ModelSettings(max_retries=0)  # the turn's policy retries
# With a form, the other tools are only described; they cannot be called.
_FORM_SETTINGS = ModelSettings(max_retries=0, tool_choice="none")
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
    treated as a compatible server, which needs no key.
    """

    def __init__(self, name: str) -> None:
        try:
            self._model = _model(name)
        except (UserError, ValueError, ImportError) as error:
            text = redact(f"The model {name!r} cannot be used: {error}")
            raise ModelNotConfigured(text) from None

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        """Make one streamed request; see ``protocol.Model``."""
        if call.form_as_text or not _can_force(self._model.profile):
            call = with_form_as_text(call)
        try:
            async with model_request_stream(
                self._model,
                _messages(call),
                model_settings=_SETTINGS if call.form is None else _FORM_SETTINGS,
                model_request_parameters=_parameters(call),
            ) as stream:
                async for event in stream:
                    text = _new_text(event)
                    if text:
                        yield text
                yield _reply(stream.get())
        except (*_CLIENT_ERRORS, *UNREADABLE) as error:
            # "from None": a chained traceback would show the server's own text, which may contain a key.
            raise translated(error, call) from None


def _model(name: str) -> Model:
    return _chat_model(name.removeprefix(_CHAT)) if name.startswith(_CHAT) else infer_model(name)


def _chat_model(name: str) -> Model:
    base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
    key = os.environ.get("OPENAI_API_KEY", "")
    is_openai = (urlsplit(base_url).hostname or "").endswith("openai.com")
    if is_openai and not key:
        raise UserError("OPENAI_API_KEY is not set")
    client = AsyncOpenAI(
        base_url=base_url,
        api_key=key or "none",
        max_retries=0,
        timeout=_TIMEOUT,
        http_client=httpx2.AsyncClient(
            timeout=_TIMEOUT,
            limits=httpx2.Limits(max_connections=_MOST_CONNECTIONS, max_keepalive_connections=100),
        ),
    )
    if is_openai:
        return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
    provider = OpenAICompatibleProvider("openai-compatible", openai_client=client)
    return OpenAIChatModel(name, provider=provider)


def _can_force(profile: ModelProfile) -> bool:
    """Whether this model can be forced to call a form."""
    thinks = profile.get("thinking_enabled_by_default", False) or profile.get(
        "thinking_always_enabled", False
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
    if call.system_prompt:
        parts.append(wire.SystemPromptPart(call.system_prompt))
    mapped: list[wire.ModelMessage] = []
    for entry in call.entries:
        if entry.role is not Role.ASSISTANT:
            is_person = entry.role is Role.USER
            parts += [wire.UserPromptPart(entry.content)] if is_person else map(_return_part, entry.results)
        elif entry.content or entry.calls:
            _add_response(mapped, parts, _response_parts(entry))
            parts = []
    if parts:
        mapped.append(wire.ModelRequest(parts=parts))
    return mapped


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
        content=_content(result),
        tool_call_id=result.id,
        outcome=_OUTCOMES[result.outcome],
    )


def _content(result: ToolResult) -> str:
    """The output, fenced as data unless it is the server's own text about a refused or interrupted call."""
    is_data = result.outcome is ToolOutcome.OK or result.foreign
    return fence.fenced(f"result of {result.name}", result.output) if is_data else result.output


def _response_parts(entry: Entry) -> list[wire.ModelResponsePart]:
    parts: list[wire.ModelResponsePart] = [wire.TextPart(entry.content)] if entry.content else []
    parts += [
        wire.ToolCallPart(
            tool_name=call.name,
            args=call.arguments if call.unparsed is None else call.unparsed,
            tool_call_id=call.id,
        )
        for call in entry.calls
    ]
    return parts


def _new_text(event: wire.ModelResponseStreamEvent) -> str:
    if isinstance(event, wire.PartStartEvent) and isinstance(event.part, wire.TextPart):
        return event.part.content
    if isinstance(event, wire.PartDeltaEvent) and isinstance(event.delta, wire.TextPartDelta):
        return event.delta.content_delta
    return ""


def _reply(response: wire.ModelResponse) -> ModelReply:
    text = "".join(part.content for part in response.parts if isinstance(part, wire.TextPart))
    calls = tuple(_call(part) for part in response.parts if isinstance(part, wire.ToolCallPart))
    usage = Usage(
        input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens, requests=1
    )
    return ModelReply(text=text, calls=calls, usage=usage)


def _call(part: wire.ToolCallPart) -> ToolCall:
    if isinstance(part.args, dict):
        return ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args)
    return read_call(part.tool_call_id, part.tool_name, part.args or "")
