"""The SDK's server with our handlers. It keeps nothing between requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache, partial, wraps
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    ListToolsResult,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from automations.schedules.slots import ScheduleError
from interfaces.http.auth import TALK
from interfaces.http.errors.problems import OUTAGES
from interfaces.mcp_server import appointment_tools, asking, conversation_tools, progress
from interfaces.mcp_server.tools import Answer, Caller, Client, McpTool
from sessions_app.exceptions import NotFound, NoThreadFree, SessionsError

log = structlog.get_logger(__name__)

INSTRUCTIONS = """\
Rondo runs agents whose conversations keep their appointments. `ask` sends a message to an agent; `schedule` creates an
automation of a conversation. `list_agents` and `list_sessions` show the names and ids that other tools take."""
AWAY = (
    "The database does not answer, so it is not known whether this was carried out. Check first, or repeat it with"
    " the same idempotency_key."
)
BUSY = "The server is busy; try again."
MOST_SHOWN = 5  # wrong arguments that an error names
LONGEST_NAME = 60  # characters of a name in an error
# in `_meta`: an idempotency key, for clients that let people set no argument
KEY_META = "rondo/idempotencyKey"

Handler = Callable[[Any, Any], Awaitable[Any]]

TOOLS = {
    each.name: each
    for module in (asking, conversation_tools, appointment_tools)
    for each in vars(module).values()
    if isinstance(each, McpTool)
}


@cache
def mcp_server() -> Server[Any]:
    """The server of this process."""
    server: Server[Any] = Server(
        "rondo",
        version=settings.VERSION,
        title="Rondo",
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_guarded(_call_tool),
        get_tool_input_schema=_input_schema,
    )
    server.extensions[progress.EXTENSION] = {}
    server.add_request_handler("tasks/get", progress.TaskParams, _guarded(_get_task))
    server.add_request_handler("tasks/update", progress.UpdateParams, _guarded(_update_task))
    server.add_request_handler("tasks/cancel", progress.TaskParams, _guarded(_cancel_task))
    return server


def _input_schema(name: str) -> dict[str, Any] | None:
    tool = TOOLS.get(name)
    return tool.takes.schema_for_clients() if tool else None


def _guarded(handler: Handler) -> Handler:
    """Turn errors into JSON-RPC errors that do not show the text of a bug."""

    @wraps(handler)
    async def answer(context: Any, params: Any) -> Any:
        try:
            return await handler(context, params)
        except (MCPError, ValidationError):
            raise
        except NoThreadFree:
            raise MCPError(INTERNAL_ERROR, BUSY) from None
        except OUTAGES as error:
            log.warning("database_unavailable", error=type(error).__name__)
            raise MCPError(INTERNAL_ERROR, AWAY) from None
        except Exception:
            log.exception("mcp_request_failed")
            raise MCPError(INTERNAL_ERROR, "Internal error. It was logged.") from None

    return answer


async def _list_tools(context: Any, _params: Any) -> ListToolsResult:
    """The tools that the token allows."""
    allows = _caller(context).allows
    return ListToolsResult(tools=[each.described() for each in TOOLS.values() if allows(each.scope)])


def _caller(context: Any) -> Caller:
    """The sender of the request, which the exchange has put into its scope."""
    caller: Caller = context.request.scope["caller"]
    return caller


def _client(context: Any, params: CallToolRequestParams | None = None) -> Client:
    """The abilities of the client. In earlier revisions a question goes to the person on the stream of the request."""
    able, scope = context.session.client_capabilities, context.request.scope
    meta = context.meta or {}
    wants_progress = scope.get("streams") and meta.get("progress_token") is not None
    report = context.session.report_progress if wants_progress else None
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS and able is not None
    if not is_modern:
        return Client(caller=_caller(context), progress=report, elicit=scope.get("elicit"))
    forms = able.elicitation is not None and (
        able.elicitation.form is not None or able.elicitation.url is None
    )
    return Client(
        caller=_caller(context),
        progress=report,
        takes_tasks=progress.EXTENSION in (able.extensions or {}),
        asks_people=forms,
        responses=progress.responses_of(params.input_responses if params else None),
        state=params.request_state if params else None,
    )


async def _call_tool(context: Any, params: CallToolRequestParams) -> Answer:
    """Call a tool. A refusal is a result that the model can read; nothing was stored then."""
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:LONGEST_NAME]!r}")
    if not _caller(context).allows(tool.scope):
        return _refusal(_needs(tool.scope))
    try:
        given = tool.takes.model_validate(_arguments(tool.takes, params))
    except ValidationError as error:
        return _refusal(_in_words(error))
    try:
        return await tool.run(_client(context, params), given)
    except SessionsError as error:
        return _refusal(f"{error} ({error.code})")
    except ScheduleError as error:
        return _refusal(f"{error.message} ({error.code})")
    except OUTAGES:
        raise
    except DatabaseError as error:  # a row that this one refers to was just deleted, or a value does not fit
        log.warning("database_refused", error=type(error).__name__)
        return _refusal("Another request changed this at the same time; try again. (conflict)")


def _needs(scope: str) -> str:
    return f"the token does not have the scope {scope} (insufficient_scope)"


def _arguments(takes: Any, params: CallToolRequestParams) -> dict[str, Any]:
    """The arguments, with the idempotency key of `_meta` unless they have one."""
    given = params.arguments or {}
    key = (params.meta or {}).get(KEY_META)
    if key is not None and "idempotency_key" in takes.model_fields:
        return {"idempotency_key": key} | given
    return given


def _refusal(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _in_words(error: ValidationError) -> str:
    """The wrong arguments with what is wrong, without their values.

    An argument that may be left out is wrong twice, for its own type and as None; the first says it.
    """
    found: dict[str, str] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        path = [part for number, part in enumerate(each["loc"]) if number == 0 or isinstance(part, int)]
        found.setdefault(".".join(str(part)[:LONGEST_NAME] for part in path) or "arguments", each["msg"])
    named = [f"{name}: {wrong}" for name, wrong in list(found.items())[:MOST_SHOWN]]
    more = len(found) - len(named)
    return "; ".join(named) + (f" ({more} more are not shown)" if more else "") + " (bad_input)"


async def _get_task(context: Any, params: progress.TaskParams) -> dict[str, Any]:
    client = _with_tasks(context)
    return progress.task_of(await _found(client, params.task_id))


async def _update_task(context: Any, params: progress.UpdateParams) -> EmptyResult:
    given = progress.responses_of(params.input_responses)
    return await _changed(context, params.task_id, partial(progress.answer_by_person, given=given))


async def _cancel_task(context: Any, params: progress.TaskParams) -> EmptyResult:
    return await _changed(context, params.task_id, progress.stop)


async def _changed(context: Any, handle: str, change: Callable[[Caller, Any], Any]) -> EmptyResult:
    """Change a task for a caller with the scope `talk`, and acknowledge it."""
    client = _with_tasks(context)
    if not client.caller.allows(TALK):
        raise MCPError(INVALID_PARAMS, _needs(TALK))
    found = await _found(client, handle)
    try:
        await client.caller.run(partial(change, client.caller, found))
    except SessionsError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from None
    return EmptyResult(result_type="complete")


def _with_tasks(context: Any) -> Client:
    """The client, if it knows the extension. MCPError, as the extension demands."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    client = _client(context)
    if not client.takes_tasks:
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {progress.EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)
    return client


async def _found(client: Client, handle: str) -> Any:
    try:
        return await client.caller.run(partial(progress.progress_by_handle, client.caller, handle))
    except NotFound:
        raise MCPError(INVALID_PARAMS, "Task not found") from None
