"""Models over the network, by pydantic-ai's client for one streamed request.

Everything that knows pydantic-ai is here. Its agent loop is not used: our turn must journal each
step, wake at once and resume, so the loop is our own. Importing this module takes a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from openai import APIError, AsyncOpenAI
from pydantic_ai import messages as wire
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UserError,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from agent_core.exceptions import ModelError, ModelNotConfigured, ModelRefused, ModelUnavailable
from agent_core.models import ModelCall, ModelReply, parse_arguments
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult, ToolSpec, Usage

OPENAI_URL: Final = "https://api.openai.com/v1"
_CHAT = "openai-chat:"
_TRY_AGAIN = {408, 409, 425, 429}
_MOST_CONNECTIONS = 1000  # a worker process may have 500 turns waiting on a model
# Reading may take as long as the turn may; the turn's own deadline cancels it.
_TIMEOUT = httpx2.Timeout(3600.0, connect=5.0, write=30.0, pool=30.0)
_SETTINGS = ModelSettings(max_retries=0)  # our policy does the tries
_SECRET_NAME = re.compile(r"(?:_API_KEY|_TOKEN|_SECRET|_SECRET_KEY)$")
_SECRET_TEXT = re.compile(r"\b(?:sk|pk)-[\w*-]{6,}|\bBearer \S+", re.IGNORECASE)
_LONGEST_MESSAGE = 1000
_UNASKED = "(what follows was sent by you, unasked)"
_OUTCOMES: Final[dict[ToolOutcome, Any]] = {
    ToolOutcome.OK: "success",
    ToolOutcome.FAILED: "failed",
    ToolOutcome.REFUSED: "denied",
    ToolOutcome.UNKNOWN: "interrupted",
}


class PydanticAiModel:
    """A Model by any of pydantic-ai's model strings.

    ``openai-chat:NAME`` speaks to ``OPENAI_BASE_URL`` with ``OPENAI_API_KEY``; any address other
    than OpenAI's own is taken for a compatible server, which needs no key.
    """

    def __init__(self, name: str) -> None:
        try:
            self._model = _model(name)
        except (UserError, ValueError, ImportError) as error:
            text = _without_secrets(f"The model {name!r} cannot be used: {error}")
            raise ModelNotConfigured(text) from None

    async def stream(self, call: ModelCall) -> AsyncIterator[str | ModelReply]:
        """Make one streamed request; see ``models.Model``."""
        try:
            async with model_request_stream(
                self._model,
                _messages(call),
                model_settings=_SETTINGS,
                model_request_parameters=ModelRequestParameters(function_tools=_tools(call.tools)),
            ) as stream:
                async for event in stream:
                    text = _text_of(event)
                    if text:
                        yield text
                yield _reply(stream.get())
        except (AgentRunError, UserError, APIError, httpx2.HTTPError, httpx2.StreamError) as error:
            # "from None": a printed chain would show the server's own text, which may hold a key.
            raise translated(error) from None


def translated(error: Exception) -> ModelError:
    """Return our error for one of the client's: unavailable where asking again may help."""
    text = _without_secrets(f"{type(error).__name__}: {error}")
    if _is_final(error):
        return ModelRefused(text)
    retry_after = error.retry_after if isinstance(error, ModelAPIError) else None
    return ModelUnavailable(text, retry_after=retry_after)


def _is_final(error: Exception) -> bool:
    if isinstance(error, UserError | ContentFilterError | ModelQuotaExceededError):
        return True
    if isinstance(error, ModelHTTPError):
        return 400 <= error.status_code < 500 and error.status_code not in _TRY_AGAIN
    return isinstance(error, ModelRequestRejectedError)


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
    """Map entries to the client's messages: requests and responses by turns, a request first, as servers want them.

    What is not the assistant's is one request in a row, and what is the assistant's one response. Where the assistant
    spoke first, or twice, it was not asked: a message was sent at its time.
    """
    parts: list[wire.ModelRequestPart] = []
    if call.system_prompt:
        parts.append(wire.SystemPromptPart(call.system_prompt))
    mapped: list[wire.ModelMessage] = []
    for entry in call.entries:
        if entry.role is not Role.ASSISTANT:
            parts += _request_parts(entry)
        elif entry.content or entry.calls:
            _respond(mapped, parts, _response_parts(entry))
            parts = []
    if parts:
        mapped.append(wire.ModelRequest(parts=parts))
    return mapped


def _respond(
    mapped: list[wire.ModelMessage],
    asked: list[wire.ModelRequestPart],
    response: list[wire.ModelResponsePart],
) -> None:
    if mapped and not asked and isinstance(mapped[-1], wire.ModelResponse):
        mapped[-1] = wire.ModelResponse(parts=[*mapped[-1].parts, *response])
        return
    if not mapped and not any(isinstance(part, wire.UserPromptPart) for part in asked):
        asked = [*asked, wire.UserPromptPart(_UNASKED)]
    mapped += [wire.ModelRequest(parts=asked), wire.ModelResponse(parts=response)]


def _request_parts(entry: Entry) -> list[wire.ModelRequestPart]:
    if entry.role is Role.USER:
        return [wire.UserPromptPart(entry.content)]
    return [_return_part(result) for result in entry.results]


def _return_part(result: ToolResult) -> wire.ToolReturnPart:
    return wire.ToolReturnPart(
        tool_name=result.name,
        content=result.output,
        tool_call_id=result.id,
        outcome=_OUTCOMES[result.outcome],
    )


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


def _text_of(event: wire.ModelResponseStreamEvent) -> str:
    if isinstance(event, wire.PartStartEvent) and isinstance(event.part, wire.TextPart):
        return event.part.content
    if isinstance(event, wire.PartDeltaEvent) and isinstance(event.delta, wire.TextPartDelta):
        return event.delta.content_delta
    return ""


def _reply(response: wire.ModelResponse) -> ModelReply:
    text = "".join(part.content for part in response.parts if isinstance(part, wire.TextPart))
    calls = tuple(_call(part) for part in response.parts if isinstance(part, wire.ToolCallPart))
    usage = Usage(
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        requests=1,
    )
    return ModelReply(text=text, calls=calls, usage=usage)


def _call(part: wire.ToolCallPart) -> ToolCall:
    raw = part.args if isinstance(part.args, str) else ""
    arguments = part.args if isinstance(part.args, dict) else parse_arguments(raw)
    return ToolCall(
        id=part.tool_call_id,
        name=part.tool_name,
        arguments=arguments or {},
        unparsed=raw if arguments is None else None,
    )


def _without_secrets(text: str) -> str:
    for name, value in os.environ.items():
        if len(value) >= 6 and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return _SECRET_TEXT.sub("***", text)[:_LONGEST_MESSAGE]
