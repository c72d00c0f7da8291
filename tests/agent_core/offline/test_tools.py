"""The offline model and its tools: schedules, lists, any tool that is offered."""

from __future__ import annotations

from typing import Any

from agent_core.llm.protocol import ModelCall
from agent_core.offline.model import reply_with_delay
from tests.agent_core.fakes import made, spec, user
from tests.agent_core.offline.test_model import SUFFIX, ask, said


def wanted(message: str, **more: Any) -> dict[str, Any]:
    (call,) = ask(message, **more).calls
    assert call.name == "cron"
    return call.arguments


def schedule(**given: Any) -> dict[str, Any]:
    """An automation that says hi, unless told otherwise."""
    return {"action": "add", "message": "say hi"} | given


SCHEDULES: dict[str, dict[str, Any]] = {
    "every 10 seconds check the repo": schedule(message="check the repo", every_seconds=10),
    "Every 5 minutes, check the repo.": schedule(message="check the repo", every_seconds=300),
    "check the repo every hour": schedule(message="check the repo", every_seconds=3600),
    "please every 2 days water the plants": schedule(message="water the plants", every_seconds=172_800),
    "every day at 9 say hi": schedule(cron_expr="0 9 * * *"),
    "every day at 9:30 remind me to drink": schedule(message="drink", cron_expr="30 9 * * *"),
    "every weekday at 7 pm say hi": schedule(cron_expr="0 19 * * 1-5"),
    "every monday at 8 say hi": schedule(cron_expr="0 8 * * 1"),
    "every sunday at 12am say hi": schedule(cron_expr="0 0 * * 0"),
    "every day at 18:00 in Asia/Shanghai say hi": schedule(cron_expr="0 18 * * *", tz="Asia/Shanghai"),
    "every day at 9 in the kitchen sing": schedule(message="in the kitchen sing", cron_expr="0 9 * * *"),
    "at 2027-01-01T09:00 say hi": schedule(at="2027-01-01T09:00"),
    "at 2027-01-01T09:00:30+01:00: say hi": schedule(at="2027-01-01T09:00:30+01:00"),
    "say hi at 2027-01-01T09:00Z": schedule(at="2027-01-01T09:00Z"),
    "every 10 seconds tell me my name": schedule(message="tell me my name", every_seconds=10),
    "list my automations": {"action": "list"},
}


def test_schedules_become_automations() -> None:
    assert {message: wanted(message) for message in SCHEDULES} == SCHEDULES


def test_what_it_cannot_do_it_says() -> None:
    assert said("in 10 minutes call mum").startswith("Offline I have no clock.")
    assert said("every 10 seconds") == "Say what is to be done, too."
    assert said("every 10 seconds check the repo", tools=()) == "I have no tool cron here."
    assert said('use tool rm with {"path": "/"}') == "I have no tool rm here."


def test_any_tool_can_be_used_and_its_output_is_reported() -> None:
    tools = (spec("add-up"),)
    reply = ask('Use tool add-up with {"a": [1,\n2]}', tools=tools)
    assert (reply.text, reply.calls[0].name, reply.calls[0].arguments) == ("", "add-up", {"a": [1, 2]})
    assert ask("use tool add-up", tools=tools).calls[0].arguments == {}
    assert ask("use tool add-up with [1", tools=tools).calls[0].unparsed == "[1"
    after = (user("use tool add-up"), *made(reply.calls[0], "3"))
    assert reply_with_delay(ModelCall(system_prompt="", entries=after, tools=tools))[0].text == f"3{SUFFIX}"
