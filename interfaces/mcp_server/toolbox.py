"""The tools: names, descriptions, arguments, results, and what they do."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from interfaces.http.auth import READ, SCHEDULE, TALK
from interfaces.mcp_server import appointment_tools, arguments, asking, conversation_tools, results
from interfaces.mcp_server.asking import Answer, Client

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

SCHEDULES = """\
Create an automation of a conversation: at its time it runs as a turn there, knows what was said, and answers there.
Give exactly one of every_seconds, cron_expr, at."""

Work = Callable[[Client, Any], Awaitable[Answer]]


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """A tool: `run` gets the checked arguments. `scope`: what the token needs for it."""

    name: str
    scope: str
    about: str
    takes: type[arguments.Arguments]
    gives: type[results.Result]
    hints: ToolAnnotations
    run: Work

    def described(self) -> Tool:
        """The tool as clients list it."""
        return Tool(
            name=self.name,
            description=self.about,
            input_schema=self.takes.schema_for_clients(),
            output_schema=self.gives.model_json_schema(),
            annotations=self.hints,
        )


def _in_thread(work: Callable[[Any, Any], results.Result]) -> Work:
    """A tool that does not wait for an agent."""

    async def run(client: Client, given: Any) -> Answer:
        found = await client.caller.run(partial(work, client.caller, given))
        plain = found.model_dump(mode="json")
        text = json.dumps(plain, ensure_ascii=False)
        return CallToolResult(content=[TextContent(text=text)], structured_content=plain)

    return run


def _tool(
    name: str, scope: str, hints: ToolAnnotations, takes: Any, gives: Any, run: Work, about: str
) -> McpTool:
    return McpTool(name=name, scope=scope, hints=hints, takes=takes, gives=gives, run=run, about=about)


ASK = """\
Send a message to an agent and wait for its answer. When it is still working afterwards, go on with get_answer. Sent
again without an idempotency_key, the message is sent twice. To abort the request ends the waiting alone: the agent goes
on, and get_answer, or the same message with the same idempotency_key, returns its answer."""
GET_ANSWER = "Wait for the answer to an earlier message, by its turn."
ANSWER_QUESTION = """\
Answer a question of an agent in the user's words. Questions for consent are answered by the person alone."""
STOP = "Stop what an agent does for an earlier message; the answer so far is kept."
LIST_AGENTS = "List the user's agents."
LIST_SESSIONS = "List the newest conversations."
OPEN_SESSION = "Open a new conversation with an agent."
READ_SESSION = "Read the newest messages of a conversation, in order."
READ_MAILBOX = """\
Read the newest updates that background work left for a conversation. Reading changes nothing."""
LIST_APPOINTMENTS = "List a conversation's automations, routines, heartbeats and scheduled messages."
EXPLAIN = "Explain why an appointment's last runs did or did not happen, its state, and its next runs."
SKIP_NEXT = "Skip the next runs of an automation."
PAUSE = "Pause an automation; its waiting runs are cancelled."
RESUME = "Resume an automation."
CANCEL_APPOINTMENT = "Delete an automation with the record of its runs."

_said, _kept = conversation_tools, appointment_tools
_ROWS = (
    _tool("ask", TALK, ASKS, arguments.Ask, results.AskResult, asking.ask, ASK),
    _tool("get_answer", READ, READS, arguments.GetAnswer, results.AskResult, asking.get_answer, GET_ANSWER),
    _tool(
        "answer_question",
        TALK,
        ASKS,
        arguments.AnswerQuestion,
        results.AskResult,
        asking.answer_question,
        ANSWER_QUESTION,
    ),
    _tool("stop", TALK, DELETES, arguments.StopTurn, results.AskResult, asking.stop_turn, STOP),
    *(
        _tool(name, scope, hints, takes, gives, _in_thread(work), about)
        for name, scope, hints, takes, gives, work, about in (
            (
                "list_agents",
                READ,
                READS,
                arguments.Nothing,
                results.AgentList,
                _said.list_agents,
                LIST_AGENTS,
            ),
            (
                "list_sessions",
                READ,
                READS,
                arguments.ListSessions,
                results.SessionList,
                _said.list_sessions,
                LIST_SESSIONS,
            ),
            (
                "open_session",
                TALK,
                ADDS,
                arguments.OpenSession,
                results.Opened,
                _said.open_conversation,
                OPEN_SESSION,
            ),
            (
                "read_session",
                READ,
                READS,
                arguments.ReadSession,
                results.MessageList,
                _said.read_session,
                READ_SESSION,
            ),
            (
                "read_mailbox",
                READ,
                READS,
                arguments.ReadSession,
                results.Mailbox,
                _said.read_mailbox,
                READ_MAILBOX,
            ),
            ("schedule", SCHEDULE, ADDS, arguments.Schedule, results.Appointment, _kept.schedule, SCHEDULES),
            (
                "list_appointments",
                READ,
                READS,
                arguments.Place,
                results.AppointmentList,
                _kept.list_appointments,
                LIST_APPOINTMENTS,
            ),
            (
                "explain",
                READ,
                READS,
                arguments.Explain,
                results.Explanation,
                _kept.explain_appointment,
                EXPLAIN,
            ),
            ("skip_next", SCHEDULE, SKIPS, arguments.Skip, results.Appointment, _kept.skip_next, SKIP_NEXT),
            ("pause", SCHEDULE, SETS, arguments.OneAutomation, results.Appointment, _kept.pause, PAUSE),
            ("resume", SCHEDULE, SETS, arguments.OneAutomation, results.Appointment, _kept.resume, RESUME),
            (
                "cancel_appointment",
                SCHEDULE,
                DELETES,
                arguments.OneAutomation,
                results.Deleted,
                _kept.cancel_appointment,
                CANCEL_APPOINTMENT,
            ),
        )
    ),
)
TOOLS = {each.name: each for each in _ROWS}
