"""The MCP server on real processes, driven by the SDK's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import mcp_types
import pytest
from django.contrib.auth.models import User
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, EmptyResult, InputRequests, RequestParams, Result

from tests.api.conftest import Site, processes, site
from tests.tokens import token_of

__all__ = ["processes", "site"]

TASKS = "io.modelcontextprotocol/tasks"


class Created(Result):
    """A task in the place of a tool's result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class Task(Created):
    """A task as `tasks/get` shows it."""

    result_type: Literal["complete"] = "complete"  # type: ignore[assignment]
    input_requests: InputRequests | None = None
    result: dict[str, Any] | None = None


class TaskParams(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(mcp_types.Request[TaskParams, str]):
    method: str
    params: TaskParams
    name_param = "taskId"


async def task_request(session: Any, method: str, task_id: str, shape: Any = Task, **more: Any) -> Any:
    """A request of the Tasks extension."""
    request = TaskRequest(method=f"tasks/{method}", params=TaskParams(task_id=task_id, **more))
    return await session.send_request(request, shape)


class TasksOfClient(ClientExtension):
    """The extension at the client: polls a task to its end, and lets the person answer its questions."""

    identifier = TASKS

    def __init__(self, human: Human | None = None) -> None:
        self.human = human

    def claims(self) -> Any:
        return (ResultClaim(result_type="task", model=Created, resolve=self.finish),)

    async def finish(self, task: Created, context: Any) -> CallToolResult:
        return await self.poll(context.session, task.task_id)

    async def poll(self, session: Any, task_id: str) -> CallToolResult:
        for _ in range(3000):
            task = await task_request(session, "get", task_id)
            if task.status == "completed":
                return CallToolResult.model_validate(task.result)
            assert task.status in {"working", "input_required"}, task
            if task.status == "input_required":
                assert self.human is not None
                plain = {}
                for key, each in task.input_requests.items():
                    plain[key] = (await self.human(None, each.params)).model_dump(by_alias=True, mode="json")
                await task_request(session, "update", task_id, EmptyResult, input_responses=plain)
            await asyncio.sleep(0.01)
        raise AssertionError("the task does not end")


@dataclass(kw_only=True)
class Human:
    """The person at the client: answers each question, and remembers what was asked."""

    answers: list[mcp_types.ElicitResult] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, _context: Any, params: Any) -> mcp_types.ElicitResult:
        self.asked.append(params.message)
        return self.answers.pop(0)


@dataclass(kw_only=True)
class McpCaller:
    """The MCP server of a site, for one user."""

    url: str
    token: str
    user: User

    def http(self, **headers: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers={"Authorization": f"Bearer {self.token}"} | headers, timeout=60)

    @asynccontextmanager
    async def client(
        self, *, human: Human | None = None, mode: Any = "auto", tasks: bool = False
    ) -> AsyncIterator[Client]:
        """A connected client. `mode` legacy: the handshake of the earlier revisions."""
        async with self.http() as http:
            more: Any = {"extensions": [TasksOfClient(human)]} if tasks else {}
            if human is not None:
                more["elicitation_callback"] = human
            transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
            async with Client(transport, mode=mode, **more) as client:
                yield client

    def talk(self, work: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
        """Connect, do the work, and disconnect."""

        async def run() -> Any:
            async with self.client(**options) as client:
                return await work(client)

        return asyncio.run(run())

    def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        """One call of a tool: its structured result. It succeeded."""
        found = self.talk(lambda client: client.call_tool(name, arguments or {}), **options)
        assert not found.is_error, found.content
        return found.structured_content

    def refused(self, name: str, arguments: dict[str, Any], **options: Any) -> str:
        """One call of a tool that is refused: the text."""
        found = self.talk(lambda client: client.call_tool(name, arguments), **options)
        assert found.is_error, found
        return str(found.content[0].text)


def caller_of(site: Site, name: str, **agent: Any) -> McpCaller:
    user = User.objects.create_user(name)
    token = token_of(user)
    with site.client(token) as http:
        made = http.post("/api/agents/", json={"name": "demo", "model": "openai-chat:test"} | agent)
        assert made.status_code == 201, made.text
    return McpCaller(url=site.url, token=token, user=user)


@pytest.fixture
def ada(site: Site) -> McpCaller:
    """Has an agent on the model server."""
    return caller_of(site, "ada")


@pytest.fixture
def bob(site: Site) -> McpCaller:
    """Somebody else."""
    return caller_of(site, "bob")
