"""Makes the clients of connections. Nothing of this process's environment is sent to a connection's address.

The providers' packages read keys, headers and addresses from the environment where none are given, and a user may name
any address. So each request is stripped of what is not its connection's own.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from agent_core.connections import PROVIDERS, Connection, prefix_of
from agent_core.guarded_transport import GuardedTransport
from agent_core.llm.errors import UNREADABLE
from agent_core.llm.stream import watch_mark
from agent_core.types import JSON

MOST_BYTES: Final = 50_000_000  # of one response
MOST_BYTES_OF_DOCUMENT: Final = 5_000_000  # of one that does not stream
# There is no shorter read timeout, because the turn's own deadline cancels the request.
TIMEOUT: Final = httpx2.Timeout(3600.0, connect=5.0, write=30.0, pool=30.0)
# A worker process may have 500 turns that wait for a model.
LIMITS: Final = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
NO_KEY: Final = "none"  # for clients that do not start without a key; it is not sent
_HEADERS: Final = frozenset(
    {
        *("host", "accept", "accept-encoding", "connection", "user-agent"),
        *("content-type", "content-length", "transfer-encoding"),
        *("anthropic-version", "anthropic-beta", "x-title", "http-referer"),
    }
)
Hooks = dict[str, list[Callable[..., Any]]]
_STATUSES: Final = {  # of errors without one, by their code or type
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "overloaded_error": 529,
}
_CREDENTIALS: Final = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key"})


def model_of(connection: Connection, model: str) -> Model:
    """Return a client for one model of a connection. UserError, ValueError or ImportError if it cannot be made."""
    known = PROVIDERS.get(connection.provider)
    if known is None:
        raise UserError(f"unknown provider {connection.provider!r}; known: {', '.join(PROVIDERS)}")
    if known.missing:
        raise UserError(f"{connection.provider}: {known.missing}")
    provider = _provider(connection, connection.base_url or known.base_url)
    kind = "openai-chat" if connection.provider == "groq" else connection.provider
    return infer_model(f"{kind}:{model}", provider_factory=lambda _name: provider)


def _provider(connection: Connection, base_url: str) -> Provider[Any]:
    if not base_url:
        raise UserError(f"a connection to {connection.provider} needs a base URL")
    key, http = connection.secret or NO_KEY, _http_client(connection)
    if connection.provider in ("openai-chat", "groq"):
        return _chat_provider(key, base_url, http)
    made = infer_provider_class(connection.provider)
    takes = inspect.signature(made.__init__).parameters
    if connection.provider == "azure":
        return made(azure_endpoint=base_url, api_key=key, http_client=http)  # type: ignore[call-arg]
    if connection.provider == "anthropic":
        return _anthropic(made, key, base_url, http)
    if "openai_client" not in takes:
        return made(api_key=key, base_url=base_url, http_client=http)  # type: ignore[call-arg]
    return made(openai_client=_openai_client(key, base_url, http))  # type: ignore[call-arg]


def own_model(name: str) -> Model:
    """Return a client for a model string of pydantic-ai, by the server's environment. Raises as `model_of`."""
    prefix = prefix_of(name)
    model = name.removeprefix(f"{prefix}:")
    if prefix == "groq":
        return model_of(Connection(name="", provider=prefix, secret=_own_key("GROQ_API_KEY")), model)
    if prefix != "openai-chat":
        return infer_model(name)
    base_url = os.environ.get("OPENAI_BASE_URL") or PROVIDERS[prefix].base_url
    key = _own_key("OPENAI_API_KEY") if is_openai(base_url) else os.environ.get("OPENAI_API_KEY") or NO_KEY
    http = httpx2.AsyncClient(
        timeout=TIMEOUT, limits=LIMITS, event_hooks={"response": [read_document, watch_mark]}
    )
    return OpenAIChatModel(model, provider=_chat_provider(key, base_url, http))


def _own_key(variable: str) -> str:
    key = os.environ.get(variable, "")
    if not key:
        raise UserError(f"{variable} is not set")
    return key


def _chat_provider(key: str, base_url: str, http: httpx2.AsyncClient) -> Provider[AsyncOpenAI]:
    client = _openai_client(key, base_url, http)
    if is_openai(base_url):
        return OpenAIProvider(openai_client=client)
    return OpenAICompatibleProvider("openai-compatible", openai_client=client)


def _openai_client(key: str, base_url: str, http: httpx2.AsyncClient) -> AsyncOpenAI:
    return AsyncOpenAI(
        api_key=key, base_url=base_url, max_retries=0, timeout=TIMEOUT, http_client=http, default_headers={}
    )


def _anthropic(made: type[Any], key: str, base_url: str, http: httpx2.AsyncClient) -> Provider[Any]:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(api_key=key, base_url=base_url, max_retries=0, timeout=TIMEOUT, http_client=http)
    provider: Provider[Any] = made(anthropic_client=client)
    return provider


def is_openai(base_url: str) -> bool:
    """Whether the address is that of OpenAI's own server, not of a compatible one."""
    host = urlsplit(base_url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def _http_client(connection: Connection) -> httpx2.AsyncClient:
    hooks: Hooks = {"request": [_only_own(connection.secret)], "response": [read_document, watch_mark]}
    if connection.reach is None:
        return httpx2.AsyncClient(timeout=TIMEOUT, limits=LIMITS, event_hooks=hooks, follow_redirects=False)
    return httpx2.AsyncClient(
        transport=GuardedTransport(connection.reach, MOST_BYTES, LIMITS),
        headers={"Accept-Encoding": "identity"},
        timeout=TIMEOUT,
        event_hooks=hooks,
        trust_env=False,
        follow_redirects=False,
    )


def _only_own(secret: str) -> Callable[[httpx2.Request], Awaitable[None]]:
    async def strip(request: httpx2.Request) -> None:
        for name in list(request.headers):
            is_own = name in _CREDENTIALS and secret and secret in request.headers[name]
            if name not in _HEADERS and not is_own:
                del request.headers[name]

    return strip


async def read_document(response: httpx2.Response) -> None:
    """Change a response that is one JSON document, not a stream, into what the clients expect.

    An error that came with status 200 gets the status in its body. A whole chat completion, of a server that does not
    stream, becomes a stream of one piece. Errors within a stream are read by the clients.
    """
    kind = response.headers.get("content-type", "")
    if response.status_code != HTTPStatus.OK or not kind.lower().startswith("application/json"):
        return
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > MOST_BYTES_OF_DOCUMENT:
            content.clear()  # it cannot be read, as the clients say of an empty answer
            break
    response._content = bytes(content)  # noqa: SLF001 - as aread() does, which has no bound
    try:
        body = json.loads(content)
        if status := _status_of(body):
            response.status_code = status
        elif body["object"] == "chat.completion":
            response._content = _as_stream(body)  # noqa: SLF001
    except (*UNREADABLE, RecursionError):
        return


def _as_stream(body: JSON) -> bytes:
    """A chat completion as a stream. If it has no finish reason, it counts as whole, because the document is."""
    choices = []
    for choice in body["choices"]:
        calls = [
            each | {"index": index} for index, each in enumerate(choice["message"].get("tool_calls") or ())
        ]
        reason = choice.get("finish_reason") or "stop"
        choices.append(
            {"index": 0, "delta": choice["message"] | {"tool_calls": calls}, "finish_reason": reason}
        )
    chunk = body | {"object": "chat.completion.chunk", "choices": choices}
    return f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()


def _status_of(body: Any) -> int:
    """The status of an error object, 500 if it says none; 0 if it is no error."""
    if not isinstance(body, dict) or not (
        body.get("error") or "error" in (body.get("type"), body.get("object"))
    ):
        return 0
    error = body["error"] if isinstance(body.get("error"), dict) else body
    for name in (error.get("code"), error.get("status"), error.get("type")):
        said = str(name)
        if said.isdecimal() and len(said) == 3 and 400 <= int(said) < 600:
            return int(said)
        if said in _STATUSES:
            return _STATUSES[said]
    return HTTPStatus.INTERNAL_SERVER_ERROR
