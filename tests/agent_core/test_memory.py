"""Task state: read from what a model writes, and rid of what does not last."""

from __future__ import annotations

import json

import pytest

from agent_core import memory, tokens
from agent_core.memory import Held, durable, read
from agent_core.types import Entry, Role, ToolCall, ToolOutcome, ToolResult

LIVE = ("automation", "automations", "自动化", "routine")
TOOLS = ("list_routines", "cron")


@pytest.mark.parametrize(
    "fact",
    [
        "Waiting for the user's API key",
        "The user must provide a date",
        "next step: call list_routines",
        "等待用户回复",
        "The balance is 12",
        "Rent costs 900 EUR",
        "The price rose by 4 %",
        "The mail account is not configured",
        "Automation 'news' runs daily",
        "There are 3 automations",
        "自动化已存在",
        "目前没有提醒",
    ],
)
def test_what_does_not_last_is_not_held(fact: str) -> None:
    held = Held(important_facts=(fact, "Ada has two cats"), open_loops=(fact,))
    assert durable(held, tools=TOOLS, live=LIVE) == Held(important_facts=("Ada has two cats",))


@pytest.mark.parametrize(
    "fact",
    [
        "Ada is allergic to nuts",
        "The user investigates a leak in the cellar",
        "Ada wants her routine kept short",
        "The shed is to be red, because the old one was",
        "用户喜欢蓝色",
    ],
)
def test_what_lasts_is_held(fact: str) -> None:
    assert durable(Held(important_facts=(fact,)), tools=TOOLS, live=LIVE).important_facts == (fact,)


def test_a_goal_may_speak_of_live_state_but_not_of_waiting() -> None:
    held = Held(
        current_goal="Tidy up the automations", active_flow="Waiting for the password", last_decision="x"
    )
    assert durable(held, tools=TOOLS, live=LIVE) == Held(
        current_goal="Tidy up the automations", last_decision="x"
    )


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
    assert tokens.of_text("a" * 400) == 100
    assert tokens.of_text("你好世界") == 4
    entry = Entry(
        role=Role.ASSISTANT,
        content="a" * 40,
        calls=(ToolCall(id="1", name="x", arguments={"a": "b" * 400}),),
        results=(ToolResult(id="1", name="x", output="c" * 4000, outcome=ToolOutcome.OK),),
    )
    assert tokens.of_entry(entry) > 1100


def test_a_real_tokenizer_is_used_where_one_is_given() -> None:
    tokens.use(lambda text: len(text.split()))
    try:
        assert tokens.of_text("three words here") == 3
    finally:
        tokens.use(None)
