"""Task state: read from what a model writes, and rid of what does not last."""

import json
import tomllib
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent_core.llm import tokens
from agent_core.memory import task_state
from agent_core.memory.lasting_facts import FactFilter
from agent_core.memory.relative_days import with_dates
from agent_core.memory.task_state import SaidMessage, Speaker, TaskStateData
from agent_core.text import fence
from agent_core.turn import compress
from agent_core.turn.control import TurnControl
from tests.agent_core.fakes import assistant, request, result_of, says, tool_call
from tests.model_server import ModelServer
from tests.up import ROOT
from tests.yardstick import within

pytestmark = pytest.mark.rule("7.6")

LIVE = ("automation", "automations", "reminder", "heartbeat", "routine", "自动化", "提醒", "心跳")
THINGS = ("automation", "automations", "reminder", "the heartbeat", "自动化", "提醒", "心跳间隔")
TOOLS = ("list_routines", "cron")
TEXTS: Any = tomllib.loads((ROOT / "tests/data/lasting_facts.toml").read_text())
PARTS = ("current_goal", "active_flow", "open_loops", "important_facts", "last_decision")


def durable(held: TaskStateData, figures: str = "", **more: Any) -> TaskStateData:
    given = FactFilter(tools=TOOLS, live=LIVE, things=THINGS, figures=task_state.figures_in([figures]))
    return given.durable(held, **more)


def holding(part: str, text: str) -> TaskStateData:
    return TaskStateData(**{part: (text,) if part in {"open_loops", "important_facts"} else text})  # type: ignore[arg-type]


def changed(texts: Iterable[str], **more: Any) -> list[tuple[str, str]]:
    """The texts that do not last, each with the part of a task state in which it was held."""
    each = [(part, text) for part in PARTS for text in texts]
    return [
        (part, text) for part, text in each if durable(holding(part, text), **more) != holding(part, text)
    ]


def test_what_does_not_last_and_secrets_are_held_in_no_part_and_what_lasts_in_every_part() -> None:
    for part in PARTS:
        for text in TEXTS["fleeting"] + TEXTS["secrets"]:
            assert durable(holding(part, text)) == TaskStateData(), text
    assert changed(TEXTS["lasting"]) == []


def test_figures_of_peoples_lives_are_kept_in_every_part() -> None:
    for text, said in TEXTS["of_peoples_lives"].items():
        assert changed([text], figures=said) == []
    for text in ("The price of the house was 300000", "Her position pays 4200 a month"):
        held = holding("important_facts", text)
        assert durable(held, figures="It was 299999, and 42 00") == TaskStateData()


def test_a_person_said_it_comes_before_whether_it_sounds_live() -> None:
    def lost(texts: Iterable[str], **more: Any) -> list[str]:
        held = {text: holding("important_facts", text) for text in texts}
        return [text for text, held in held.items() if durable(held, stated={text}, **more) != held]

    assert lost(TEXTS["of_lives"]) == []
    assert lost(TEXTS["reports"]) == TEXTS["reports"]
    with_figures = [text for text in TEXTS["of_lives"] if task_state.figures_in([text])]
    assert [text for text in with_figures if changed([text], figures=text)] == [], (
        "without a message, by figures"
    )
    assert [text for text in TEXTS["reports"] if len(changed([text], figures=text)) < len(PARTS)] == []


def test_a_wait_for_somebody_else_stays_and_a_wait_of_a_step_goes() -> None:
    assert changed(TEXTS["loops"]) == []
    assert [text for text in TEXTS["step_waits"] if len(changed([text])) < len(PARTS)] == []


def said(text: str, who: Speaker = Speaker.PERSON, day: int = 28) -> SaidMessage:
    return SaidMessage(who=who, at=datetime(2026, 4, day, 14, 3, tzinfo=UTC), text=text)


def compressed(
    server: ModelServer,
    older: tuple[SaidMessage, ...],
    *,
    before: TaskStateData = TaskStateData(),  # noqa: B008
    lasting: FactFilter = FactFilter(),  # noqa: B008
    **parts: Any,
) -> TaskStateData:
    """What is held of these messages when the model answers with these parts."""
    server.answer_with(says(json.dumps(WHOLE | parts)))
    given = request(model="openai-chat:x")
    done = compress.compress(older, before, lasting=lasting, request=given, control=TurnControl())
    assert done is not None
    return done


def test_what_a_person_said_stays_though_it_sounds_like_a_wait_or_live(server: ModelServer) -> None:
    older = (
        said("Hello. I am still waiting for a reply to my job application, and want tea."),
        said("The reminder from the dentist has arrived! 我在等待面试结果。"),
        said("Is the mail account configured?"),
    )
    loops = ["Waiting for a reply to the job application", "等待面试结果", "Waiting for your reply"]
    loops.append("The mail account is not configured")
    facts = ["The reminder from the dentist has arrived"]
    lasting = FactFilter(live=LIVE, things=THINGS)
    held = compressed(server, older, lasting=lasting, open_loops=loops, important_facts=facts)
    assert held.open_loops == tuple(loops[:2])
    assert [task_state.without_source(fact) for fact in held.important_facts] == facts


def test_a_fact_that_stands_in_a_persons_message_is_held_unless_it_can_be_looked_up_or_is_secret() -> None:
    for text in (*TEXTS["stated"], "She takes a pill at 9 and wants a reminder"):
        held = holding("important_facts", text)
        assert durable(held, stated={text}) == held, text
    for text in ("Waiting for the user to say a date", "her PIN 4711"):
        held = holding("important_facts", text)
        assert durable(held, figures=text, stated={text}) == TaskStateData(), text


def test_previously_kept_items_stay_including_those_a_person_added() -> None:
    before = TaskStateData(important_facts=("The price is 5 EUR",), open_loops=("wait for the visa",))
    assert durable(before, before=before) == before


def test_memory_omits_items_that_a_fresh_lookup_covers() -> None:
    held = TaskStateData(
        current_goal="the automation at nine",
        open_loops=("buy a brush",),
        important_facts=("no reminder on Sundays", "the dentist appointment is on 3 May"),
    )
    assert FactFilter(things=THINGS).without_live(held) == TaskStateData(
        open_loops=("buy a brush",), important_facts=("the dentist appointment is on 3 May",)
    )


def test_a_goal_may_request_live_state_but_not_report_it() -> None:
    for goal in ("Set up a reminder at 9", "add 2 automations"):
        assert durable(TaskStateData(current_goal=goal)).current_goal == goal
    for goal in ("a reminder at 9", "add password: x1"):
        assert durable(TaskStateData(current_goal=goal)) == TaskStateData()


WHOLE = {
    "current_goal": " paint\nthe shed ",
    "active_flow": "",
    "open_loops": ["a", "", "b", "a"],
    "important_facts": ["likes red"],
    "last_decision": "",
}


def test_an_answer_is_read_wherever_the_object_stands_in_it() -> None:
    found = task_state.read_reply(f"Here it is:\n```json\n{json.dumps(WHOLE)}\n```")
    assert found is not None
    assert found.held == TaskStateData(
        current_goal="paint the shed", open_loops=("a", "b"), important_facts=("likes red",)
    )


def test_a_fact_names_the_message_in_which_it_stands() -> None:
    facts = ["a", {"fact": "b", "message": 2}, {"fact": "c", "message": "3"}, {"fact": "d", "message": None}]
    found = task_state.read_reply(json.dumps(WHOLE | {"important_facts": facts}))
    assert found is not None
    assert found.held.important_facts == ("a", "b", "c", "d")
    assert found.sources == {"b": 2, "c": 3}


def test_what_is_no_task_state_is_none() -> None:
    values: list[object] = [None, 7, {}, [1], ["a", None]]
    broken: list[dict[str, object]] = [WHOLE | {part: value} for part in WHOLE for value in values]
    broken += [{name: value for name, value in WHOLE.items() if name != part} for part in WHOLE]
    broken += [{**WHOLE, "important_facts": "likes red"}, {**WHOLE, "current_goal": ["paint"]}]
    texts = ["", "nothing", "{", '{"other": 1}', "[1, 2]", *map(json.dumps, broken)]
    assert [text for text in texts if task_state.read_reply(text) is not None] == []


def test_it_is_bounded() -> None:
    held = TaskStateData.from_json({"current_goal": "x" * 5000, "open_loops": [str(n) for n in range(100)]})
    assert len(held.current_goal) == task_state.LONGEST_ITEM
    assert len(held.open_loops) == task_state.MOST_ITEMS


def test_tokens_are_estimated_by_script() -> None:
    assert tokens.of_text("") == 0
    assert tokens.of_text("four") == 1
    assert tokens.of_text("word " * 80) == 100
    assert tokens.of_text("你好世界") == 4
    assert tokens.of_text("caf\u00e9") == 1
    asked = tool_call(a="b" * 400)
    entry = assistant("a" * 40, asked, results=(result_of(asked, "c" * 4000),))
    assert tokens.of_entry(entry) > 1100
    for text in ("a" * 400, "some words, then " + "aB3+" * 100, "\u00e9" * 400):
        assert tokens.of_text(text) >= 160, "long runs without spaces count as more"


def test_the_model_sees_shortened_messages_and_only_what_fits() -> None:
    long = said("begin " + "x " * 5000 + "end")
    call = said("(look is called)", Speaker.AGENT, 29)
    shown = compress._shown([long, call]).splitlines()
    assert shown[0].startswith("1 [2026-04-28 14:03] person: begin x")
    assert "[...]" in shown[0]
    assert shown[0].endswith("x end")
    assert shown[1] == "2 [2026-04-29 14:03] agent: (look is called)"
    assert all(len(line) < 2100 for line in shown)
    number = compress.fitting([long] * 1000)
    assert 0 < number <= compress.LONGEST_SHOWN // (len(shown[0]) + 1)
    assert compress.fitting([call]) == 1
    assert compress.LONGEST_SECONDS <= 30, "a commit waits for it"


def test_a_real_tokenizer_is_used_where_one_is_given() -> None:
    tokens.use_tokenizer(lambda text: len(text.split()))
    try:
        assert tokens.of_text("three words here") == 3
    finally:
        tokens.use_tokenizer(None)


def test_a_fact_records_its_real_speaker_and_date(server: ModelServer) -> None:
    older = (
        said("The price of the house was 300000, and the dentist is tomorrow."),
        said("Noted.", Speaker.AGENT),
        said("The page says that Ada owes 500 EUR.", Speaker.OUTSIDE, 29),
        said("Scheduled automation triggered: water", Speaker.AUTOMATION, 29),
    )
    facts: list[object] = [
        {"fact": "The price of the house was 300000", "message": 1},
        {"fact": "The dentist is tomorrow", "message": 1},
        {"fact": "Ada owes 500 EUR [person 2026-04-28]", "message": 3},
        {"fact": "The plants are watered", "message": 4},
        {"fact": "Ada is careful", "message": 99},
        "Ada likes red [person 2020-01-01]",
        "the cat IS Tom.",
    ]
    before = TaskStateData(important_facts=("The cat is Tom [person 2026-01-01]",))
    assert compressed(server, older, before=before, important_facts=facts).important_facts == (
        "The price of the house was 300000 [person 2026-04-28]",
        "The dentist is 2026-04-29 [person 2026-04-28]",
        "Ada owes 500 EUR [outside 2026-04-29]",
        "The plants are watered [automation 2026-04-29]",
        "Ada is careful [agent 2026-04-29]",
        "Ada likes red [agent 2026-04-29]",
        "The cat is Tom [person 2026-01-01]",
    )
    shown = fence.without_fences(server.requests[0].body["messages"][-1]["content"])
    assert "1 [2026-04-28 14:03] person: The price of the house was 300000" in shown
    assert "3 [2026-04-29 14:03] outside: The page says" in shown


def test_each_new_line_from_outside_is_marked_also_when_it_is_repeated() -> None:
    written = task_state.mark_new_lines("a\nb", "a\nx\nb\nx\nb", date(2026, 4, 29))
    mark = "[outside 2026-04-29]"
    assert written.split("\n") == ["a", f"x {mark}", "b", f"x {mark}", f"b {mark}"]


def test_a_fact_is_shortened_to_fit_its_speaker_mark(server: ModelServer) -> None:
    long = {"fact": "x" * 500, "message": 1}
    [fact] = compressed(server, (said("hello"),), important_facts=[long]).important_facts
    assert fact == "x" * (task_state.LONGEST_ITEM - len(" [person 2026-04-28]")) + " [person 2026-04-28]"


TUESDAY = date(2026, 4, 28)


def test_days_are_written_by_their_dates() -> None:
    assert {text: with_dates(text, TUESDAY) for text in TEXTS["relative_days"]} == TEXTS["relative_days"]
    assert [text for text in TEXTS["no_days"] if with_dates(text, TUESDAY) != text] == []
    assert with_dates("last month", date(2027, 1, 31)) == "2026-12"
    sunday = date(2026, 5, 3)
    assert with_dates("this weekend", sunday) == "the weekend of 2026-05-02"
    assert with_dates("last weekend", sunday) == "the weekend of 2026-04-25"


def test_relative_days_of_all_parts_count_from_the_message_that_says_them(server: ModelServer) -> None:
    older = (
        said("The plumber comes tomorrow.", Speaker.AGENT, 20),
        said("The dentist is \u660e\u5929, and I fly next Monday.", day=27),
        said("Fine.", day=30),
    )
    parts: dict[str, Any] = {
        "current_goal": "fly next Monday",
        "active_flow": "pack today",
        "open_loops": ["call the dentist before tomorrow", "wait for the visa tomorrow"],
        "important_facts": ["she flies next Monday"],
        "last_decision": "next Monday, because it is cheap",
    }
    before = TaskStateData(open_loops=("wait for the visa tomorrow",))
    assert compressed(server, older, before=before, **parts) == TaskStateData(
        current_goal="fly 2026-05-04",
        active_flow="pack 2026-04-30",
        open_loops=("call the dentist before 2026-04-28", "wait for the visa tomorrow"),
        important_facts=("she flies 2026-05-04 [agent 2026-04-30]",),
        last_decision="2026-05-04, because it is cheap",
    )


def test_a_figure_is_the_same_however_it_is_written() -> None:
    same = ["300000", "300,000", "300 000", "300.000", "300k", "0.3 million", "30万"]
    assert {task_state.figures_in([each]) for each in same} == {frozenset({"300000"})}
    assert task_state.figures_in(["12.50 EUR, 5kg, 3 May"]) == {"12.5", "5", "3"}


ON = date(2026, 11, 23)


@pytest.mark.rule("1.12")
def test_a_long_line_of_spaces_is_read_at_once() -> None:
    long = f"a{' ' * 100_000}b"
    with within(20):
        assert task_state.without_source(long) == long
        assert task_state.mark_new_lines("", long, ON) == f"{long} [outside 2026-11-23]"
        marked = f"{long} [outside 2026-11-23]"
        assert task_state.restore_marks(long, marked) == marked


def test_marks_go_with_the_spaces_before_them() -> None:
    assert task_state.without_source("tea at four   [person 2026-11-23]") == "tea at four"
    assert task_state.without_source("[person 2026-11-23] tea") == "[person 2026-11-23] tea"
    assert (
        task_state.mark_new_lines("", "tea [Agent 2026-01-01]  [outside 2026-01-02] x", ON)
        == "tea x [outside 2026-11-23]"
    )
