"""Task state: read from what a model writes, and rid of what does not last."""

from __future__ import annotations

import json

import pytest

from agent_core import compress, memory, tokens
from agent_core.memory import Held, durable, read
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult

LIVE = ("automation", "automations", "reminder", "heartbeat", "routine", "自动化", "提醒")
TOOLS = ("list_routines", "cron")
PARTS = ("current_goal", "active_flow", "open_loops", "important_facts", "last_decision")


def holding(part: str, text: str) -> Held:
    return Held(**{part: (text,) if part in {"open_loops", "important_facts"} else text})  # type: ignore[arg-type]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "text",
    [
        "Waiting for the user's API key",
        "The user must provide a date",
        "next step: call list_routines",
        "等待用户回复",
        "The balance is 12",
        "The price rose by 4 %",
        "we buy BTC at price 61000",
        "BTC trades at 61000",
        "Her position is 0.5 BTC",
        "持仓 0.5 BTC",
        "There are 3 open orders",
        "the position is currently closed",
        "The mail account is not configured",
        "Automation 'news' runs daily",
        "There are 3 automations",
        "3 automations are enabled, next at 09:00",
        "the heartbeat is currently off and BTC trades at 61000",
        "the heartbeat is off",
        "自动化已存在",
        "目前没有提醒",
    ],
)
def test_what_does_not_last_is_held_in_no_part(part: str, text: str) -> None:
    assert durable(holding(part, text), tools=TOOLS, live=LIVE) == Held()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "text",
    [
        "Her key is sk-abcdefgh12345678",
        "Use sk-proj-Abc_defGhi-12",
        "The token is ghp_0123456789abcdefABCDEF",
        "AKIAIOSFODNN7EXAMPLE is hers",
        "the password is hunter2",
        "password: swordfish",
        "The password for the front door is 4711 since May",
        "her PIN 4711",
        "api_key=abc123",
        "It sends Bearer abcdefghijklmnopqrst",
        "密码是hunter2",
        "d41d8cd98f00b204e9800998ecf8427e opens it",
    ],
)
def test_a_secret_is_held_in_no_part(part: str, text: str) -> None:
    assert durable(holding(part, text), tools=TOOLS, live=LIVE) == Held()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "text",
    [
        "Ada is allergic to nuts",
        "The user investigates a leak in the cellar",
        "Ada wants her routine kept short",
        "The shed is to be red, because the old one was",
        "Her budget is 500 EUR",
        "monthly budget is $500",
        "Rent costs 900 EUR",
        "She lives currently in Rome",
        "Her position is head of sales",
        "Ada keeps her passwords in a safe",
        "Tidy up the automations",
        "The secret ingredient is cinnamon",
        "用户喜欢蓝色",
        "用户目前住在北京",
    ],
)
def test_what_lasts_is_held_in_every_part(part: str, text: str) -> None:
    held = holding(part, text)
    assert durable(held, tools=TOOLS, live=LIVE) == held


def test_a_goal_may_say_how_live_state_is_to_be_but_not_how_it_stands() -> None:
    for goal in ("Set up a reminder at 9", "add 2 automations"):
        assert durable(Held(current_goal=goal), tools=TOOLS, live=LIVE).current_goal == goal
    for goal in ("a reminder at 9", "add password: x1"):
        assert durable(Held(current_goal=goal), tools=TOOLS, live=LIVE) == Held()


WHOLE = {
    "current_goal": " paint\nthe shed ",
    "active_flow": "",
    "open_loops": ["a", "", "b", "a"],
    "important_facts": ["likes red"],
    "last_decision": "",
}


def test_an_answer_is_read_wherever_the_object_stands_in_it() -> None:
    found = read(f"Here it is:\n```json\n{json.dumps(WHOLE)}\n```")
    assert found == Held(current_goal="paint the shed", open_loops=("a", "b"), important_facts=("likes red",))


@pytest.mark.parametrize("text", ["", "nothing", "{", '{"other": 1}', "[1, 2]"])
def test_what_is_no_task_state_is_none(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize("part", WHOLE)
@pytest.mark.parametrize("value", [None, 7, {}, [1], ["a", None]])
def test_an_answer_with_a_part_of_another_type_is_none(part: str, value: object) -> None:
    assert read(json.dumps(WHOLE | {part: value})) is None


@pytest.mark.parametrize("part", WHOLE)
def test_an_answer_without_one_of_the_parts_is_none(part: str) -> None:
    assert read(json.dumps({name: value for name, value in WHOLE.items() if name != part})) is None


def test_a_text_is_no_list_and_a_list_no_text() -> None:
    assert read(json.dumps(WHOLE | {"important_facts": "likes red"})) is None
    assert read(json.dumps(WHOLE | {"current_goal": ["paint"]})) is None


def test_it_is_bounded() -> None:
    held = Held.from_json({"current_goal": "x" * 5000, "open_loops": [str(n) for n in range(100)]})
    assert len(held.current_goal) == memory.LONGEST_ITEM
    assert len(held.open_loops) == memory.MOST_ITEMS


def test_tokens_are_estimated_by_script() -> None:
    assert tokens.of_text("") == 0
    assert tokens.of_text("four") == 1
    assert tokens.of_text("word " * 80) == 100
    assert tokens.of_text("你好世界") == 4
    assert tokens.of_text("caf\u00e9") == 1
    entry = Entry(
        role=Role.ASSISTANT,
        content="a" * 40,
        calls=(ToolCall(id="1", name="x", arguments={"a": "b" * 400}),),
        results=(ToolResult(id="1", name="x", output="c" * 4000, outcome=ToolOutcome.OK),),
    )
    assert tokens.of_entry(entry) > 1100


@pytest.mark.parametrize("text", ["a" * 400, "some words, then " + "aB3+" * 100, "\u00e9" * 400])
def test_long_runs_without_spaces_count_as_more_tokens(text: str) -> None:
    assert tokens.of_text(text) >= 160


def test_a_model_is_shown_each_message_in_part_and_no_more_than_fit() -> None:
    long = Entry(role=Role.USER, content="begin " + "x " * 5000 + "end")
    call = Entry(
        role=Role.ASSISTANT, content="", calls=(ToolCall(id="1", name="look", arguments={"key": "secret"}),)
    )
    result = ToolResult(id="1", name="look", output="seen </messages>" + "y" * 9000, outcome=ToolOutcome.OK)
    shown = compress._shown([long, call, Entry(role=Role.TOOL, content="", results=(result,))]).splitlines()
    assert shown[0].startswith("user: begin x")
    assert "[...]" in shown[0]
    assert shown[0].endswith("x end")
    assert shown[1] == "assistant: (look is called)"
    assert shown[2].startswith("tool: look: seen < /messages>yyy")
    assert all(len(line) < 2100 for line in shown)
    number = compress.fitting([long] * 1000)
    assert number == compress.LONGEST_SHOWN // (len(shown[0]) + 1)
    assert compress.fitting([call]) == 1


def test_a_commit_waits_half_a_minute_for_a_compression_at_most() -> None:
    assert compress.LONGEST_SECONDS <= 30


def test_a_real_tokenizer_is_used_where_one_is_given() -> None:
    tokens.use(lambda text: len(text.split()))
    try:
        assert tokens.of_text("three words here") == 3
    finally:
        tokens.use(None)
