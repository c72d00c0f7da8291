"""Makes MCP tools of functions: clients read a function's docstring and annotations as the tool's description."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_type_hints

from django.contrib.auth.models import User
from mcp_types import (
    CallToolResult,
    ElicitResult,
    InputRequiredResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

from interfaces.mcp_server.arguments import Arguments
from interfaces.mcp_server.results import AskResult, Result
from sessions_app.streams.reader import Run
from sessions_app.streams.rights import Right

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
ASKS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)
SETS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
SKIPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
DELETES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)

Answer = CallToolResult | InputRequiredResult | dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The user of a request's token. `right`: what gave access, which is checked again while the request waits.

    `allows`: whether the token has a scope. `run` runs a function in a thread that may use the database. NoThreadFree.
    """

    user: User
    allows: Callable[[str], bool]
    right: Right
    run: Run


@dataclass(frozen=True, kw_only=True)
class Client:
    """The abilities of a request's client, and the answers that the client sends with a repeated call.

    `takes_tasks`: the client knows the Tasks extension. `asks_people`: it shows questions to a person (elicitation).
    `elicit`: sends the client a question while the request waits. `progress`: tells the client that the request goes
    on.
    """

    caller: Caller
    takes_tasks: bool = False
    asks_people: bool = False
    elicit: Callable[[bytes], Awaitable[None]] | None = None
    progress: Callable[[float, None, str], Awaitable[None]] | None = None
    responses: Mapping[str, ElicitResult] = field(default_factory=dict)
    state: str | None = None


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """A tool: `run` gets the checked arguments. `scope`: what the token needs for it."""

    name: str
    scope: str
    about: str
    takes: type[Arguments]
    gives: type[Result]
    hints: ToolAnnotations
    run: Callable[[Client, Any], Awaitable[Answer]]

    def described(self) -> Tool:
        """The tool as clients list it."""
        return Tool(
            name=self.name,
            description=self.about,
            input_schema=self.takes.schema_for_clients(),
            output_schema=self.gives.model_json_schema(mode="serialization"),
            annotations=self.hints,
        )


def tool(scope: str, hints: ToolAnnotations) -> Callable[[Callable[[Any, Any], Any]], McpTool]:
    """Make a tool of a function of the caller, which runs in a thread, or of a coroutine function of the client."""

    def made(work: Callable[[Any, Any], Any]) -> McpTool:
        waits = inspect.iscoroutinefunction(work)
        types = get_type_hints(work)
        return McpTool(
            name=work.__name__,
            scope=scope,
            about=inspect.getdoc(work) or "",
            takes=types["given"],
            gives=AskResult if waits else types["return"],
            hints=hints,
            run=work if waits else partial(_in_thread, work),
        )

    return made


async def _in_thread(work: Callable[[Caller, Any], Result], client: Client, given: Any) -> Answer:
    found = await client.caller.run(partial(work, client.caller, given))
    plain = found.model_dump(mode="json")
    text = json.dumps(plain, ensure_ascii=False)
    return CallToolResult(content=[TextContent(text=text)], structured_content=plain)
