"""The offline model and its tools: schedules, lists, any tool that is offered."""

from __future__ import annotations

from typing import Any

import pytest

from agent_core.llm.protocol import ModelCall
from agent_core.offline.model import reply_with_delay
from agent_core.tool_spec import ToolSpec
from agent_core.types import Entry, Role, ToolOutcome, ToolResult
from tests.agent_core.fakes import user
from tests.agent_core.offline.test_model import SUFFIX, ask, said


def wanted(message: str, **more: Any) -> dict[str, Any]:
    (call,) = ask(message, **more).calls
    assert call.name == "cron"
    return call.arguments


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("every 10 seconds check the repo", {"message": "check the repo", "every_seconds": 10}),
        ("Every 5 minutes, check the repo.", {"message": "check the repo", "every_seconds": 300}),
        ("check the repo every hour", {"message": "check the repo", "every_seconds": 3600}),
        ("please every 2 days water the plants", {"message": "water the plants", "every_seconds": 172_800}),
        ("every day at 9 say hi", {"message": "say hi", "cron_expr": "0 9 * * *"}),
        ("every day at 9:30 remind me to drink", {"message": "drink", "cron_expr": "30 9 * * *"}),
        ("every weekday at 7 pm say hi", {"message": "say hi", "cron_expr": "0 19 * * 1-5"}),
        ("every monday at 8 say hi", {"message": "say hi", "cron_expr": "0 8 * * 1"}),
        ("every sunday at 12 am say hi", {"message": "say hi", "cron_expr": "0 0 * * 0"}),
        (
            "every day at 18:00 in Asia/Shanghai say hi",
            {"message": "say hi", "cron_expr": "0 18 * * *", "tz": "Asia/Shanghai"},
        ),
        ("every day at 9 in the kitchen sing", {"message": "in the kitchen sing", "cron_expr": "0 9 * * *"}),
        ("at 2027-01-01T09:00 say hi", {"message": "say hi", "at": "2027-01-01T09:00"}),
        ("at 2027-01-01T09:00:30+01:00: say hi", {"message": "say hi", "at": "2027-01-01T09:00:30+01:00"}),
        ("say hi at 2027-01-01T09:00Z", {"message": "say hi", "at": "2027-01-01T09:00Z"}),
        ("every 10 seconds tell me my name", {"message": "tell me my name", "every_seconds": 10}),
    ],
)
def test_schedules_become_automations(message: str, arguments: dict[str, Any]) -> None:
    assert wanted(message) == {"action": "add", **arguments}


ADD_ROUTINE = ToolSpec(name="add_routine", description="", parameters={"type": "object"})


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("In the background: sum up the news.", {"execution_mode": "isolated"}),
        (
            "in the background, every 2 hours: sum up the news",
            {"execution_mode": "isolated", "schedule": "7200s"},
        ),
        (
            "With a heartbeat every day at 9 in Asia/Tokyo sum up the news",
            {"execution_mode": "inline", "schedule": "0 9 * * *", "timezone": "Asia/Tokyo"},
        ),
        (
            "please with your next heartbeat, as an inline routine: sum up the news",
            {"execution_mode": "inline"},
        ),
        (
            "in the background, at 2027-01-01T09:00Z: sum up the news",
            {"execution_mode": "isolated", "next_run_at": "2027-01-01T09:00Z"},
        ),
    ],
)
def test_what_is_for_the_background_becomes_a_routine(message: str, arguments: dict[str, Any]) -> None:
    (call,) = ask(message, tools=(ADD_ROUTINE,)).calls
    assert call.name == "add_routine"
    assert call.arguments == {"title": "sum up the news", "description": "sum up the news", **arguments}


def test_a_long_task_has_its_beginning_for_a_title() -> None:
    (call,) = ask(f"in the background: {'news ' * 30}", tools=(ADD_ROUTINE,)).calls
    assert call.arguments["title"] == ("news " * 12)[:59] + "…"
    assert call.arguments["description"] == ("news " * 30).strip()
    assert said("in the background, in 10 minutes: sing").startswith("Offline I have no clock.")


def test_it_has_no_clock() -> None:
    assert said("in 10 minutes call mum").startswith("Offline I have no clock.")


def test_a_schedule_that_is_none() -> None:
    assert said("every day at 25 sing") == "That is no time of day."
    assert said("every 10 seconds") == "Say what is to be done, too."


def test_automations_are_listed_and_removed() -> None:
    assert wanted("list my automations") == {"action": "list"}
    assert wanted("remove automation ab12") == {"action": "remove", "job_id": "ab12"}
    plain = ToolSpec(name="cron", description="", parameters={"type": "object"})
    assert wanted("remove automation ab12", tools=(plain,)) == {"action": "remove", "id": "ab12"}


def test_only_a_tool_that_is_offered_is_called() -> None:
    assert said("every 10 seconds check the repo", tools=()) == "I have no tool cron here."
    assert said('use tool rm with {"path": "/"}') == "I have no tool rm here."


def test_any_tool_can_be_used_and_its_output_is_reported() -> None:
    tool = ToolSpec(name="add-up", description="", parameters={"type": "object"})
    reply = ask('Use tool add-up with {"a": [1,\n2]}', tools=(tool,))
    assert (reply.text, reply.calls[0].name, reply.calls[0].arguments) == ("", "add-up", {"a": [1, 2]})
    assert ask("use tool add-up", tools=(tool,)).calls[0].arguments == {}
    assert ask("use tool add-up with [1", tools=(tool,)).calls[0].unparsed == "[1"
    after = (
        user("use tool add-up"),
        Entry(role=Role.ASSISTANT, content="", calls=reply.calls),
        Entry(
            role=Role.TOOL,
            content="",
            results=(ToolResult(id="1", name="add-up", output="3", outcome=ToolOutcome.OK),),
        ),
    )
    assert reply_with_delay(ModelCall(system_prompt="", entries=after, tools=(tool,)))[0].text == f"3{SUFFIX}"
