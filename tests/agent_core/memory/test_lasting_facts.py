"""Task state: read from what a model writes, and rid of what does not last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent_core.llm import tokens
from agent_core.memory import task_state
from agent_core.memory.lasting_facts import FactFilter
from agent_core.memory.relative_days import with_dates
from agent_core.memory.task_state import SaidMessage, Speaker, TaskStateData, read_reply
from agent_core.text import fence
from agent_core.turn import compress
from agent_core.turn.control import TurnControl
from tests.agent_core.fakes import assistant, request, result_of, says, tool_call
from tests.model_server import ModelServer

pytestmark = pytest.mark.rule("7.6")

LIVE = ("automation", "automations", "reminder", "heartbeat", "routine", "自动化", "提醒", "心跳")
THINGS = ("automation", "automations", "reminder", "the heartbeat", "自动化", "提醒", "心跳间隔")
TOOLS = ("list_routines", "cron")
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


FLEETING = (
    "Waiting for the user's API key",
    "next step: call list_routines",
    "The price rose by 4 %",
    "BTC trades at 61000",
    "Her position is 0.5 BTC",
    "持仓 0.5 BTC",
    "There are 3 open orders",
    "the position is currently closed",
    "The mail account is not configured",
    "3 automations are enabled, next at 09:00",
    "the heartbeat is currently off and BTC trades at 61000",
)
SECRETS = (
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
)
LASTING = (
    "Ada is allergic to nuts",
    "The user investigates a leak in the cellar",
    "Ada wants her routine kept short",
    "The shed is to be red, because the old one was",
    "Her budget is 500 EUR",
    "Rent costs 900 EUR",
    "She lives currently in Rome",
    "Her position is head of sales",
    "Ada keeps her passwords in a safe",
    "Tidy up the automations",
    "The secret ingredient is cinnamon",
    "用户喜欢蓝色",
    "用户目前住在北京",
)


def test_what_does_not_last_and_secrets_are_held_in_no_part_and_what_lasts_in_every_part() -> None:
    for part in PARTS:
        for text in FLEETING + SECRETS:
            assert durable(holding(part, text)) == TaskStateData(), text
    assert changed(LASTING) == []


# what a person said, and what is made of it
OF_PEOPLES_LIVES = {
    "the dentist appointment is on 3 May": "the dentist is on 3 May",
    "The price of the house was 300000": "The price of the house was 300,000.",
    "She sold the house at a price of 300,000 EUR": "I sold it for 300k, the price was fine",
    "The balance of her savings is 12000 EUR": "my balance is 12 000 EUR",
    "Her position pays 4200 a month": "I earn 4200 in my new position",
    "她的房子价格是30万": "房子的价格是30万",
    "Her routine begins at 6:30": "I get up at 6:30",
    "The person's resting heartbeat is 52": "my resting heartbeat is 52",
    "The schedule of her school has 5 lessons a day": "I have 5 lessons a day",
}


def test_figures_of_peoples_lives_are_kept_in_every_part() -> None:
    for text, said in OF_PEOPLES_LIVES.items():
        assert changed([text], figures=said) == []
    for text in ("The price of the house was 300000", "Her position pays 4200 a month"):
        held = holding("important_facts", text)
        assert durable(held, figures="It was 299999, and 42 00") == TaskStateData()


STATED = (
    "Her schedule has changed since the summer",
    "Her order of life: work, then sleep",
    "She waits for her visa",
    "The alarm of her house is disabled",
    "她在等待签证",
)


# what people say of their lives, in words that live state has too
OF_LIVES = (
    "医生提醒我每天吃2片药",
    "妈妈每天7点提醒她吃药",
    "税务局的提醒3月4日到了",
    "她收到银行的提醒\uff0c要还300元",
    "她是3号工厂的自动化工程师",
    "她从事自动化已经7年",
    "她有3个同事做自动化",
    "工厂有3条自动化生产线",
    "She is an automation engineer at plant 7",
    "She has 3 automation engineers in her team",
    "She has worked in automation for 7 years",
    "She built 12 automations for Siemens in 2019",
    "The automation line at her plant has 12 robots",
    "Automation was her subject at school until 2009",
    "The automation of plant 7 cost 2 million",
    "the reminder of the tax office came on 4 March",
    "The second reminder from her landlord was about 300 EUR",
    "A reminder fee of 12 EUR is on the bill",
    "The 3 reminders that her mother left are on the fridge",
    "the heartbeat of her baby is 140",
    "The heartbeat that the midwife heard was 140",
    "Her cron job is what she calls feeding the 2 cats",
    "She takes a pill at 9 and wants a reminder",
    "The factory has 3 automations",
    "Two reminders from the tax office are on the desk",
    "The reminder app costs 5 EUR a month",
    "The automation at plant 7 is paused since the strike",
    "The automation on line 2 was paused",
    "7号工厂的自动化已暂停",
)
# what a tool here can look up, whoever said it
REPORTS = (
    "The reminder is at 9",
    "The user's reminder for the dentist is on 3 May",
    "Reminder to water the plants at 18:00",
    "The reminder for the rent on May 3",
    "a reminder is set for 9",
    "The reminders are on",
    "There are 3 automations",
    "there are no reminders right now",
    "She has a reminder at 9 to drink water",
    "Ada has an automation that checks her mail every 30 minutes",
    "Automation 'news' runs daily at 9",
    "The automation that checks the mail runs every 30 minutes",
    "The news automation runs daily at 9",
    "Automation ab12cd34 (news) runs daily at 09:00",
    "The user has 2 automations and 3 reminders",
    "The reminder was deleted",
    "Reminders are set for 9 and 18:00",
    "\u76ee\u524d\u67092\u4e2a\u81ea\u52a8\u5316\u5728\u8fd0\u884c",
    "用户设置了2个提醒",
    "The water reminder is set to 9:00",
    "The 2 automations exist",
    "3 automations are enabled; the reminder is at 9",
    "the heartbeat is off",
    "the heartbeat is every 30 minutes",
    "目前没有提醒",
    "她有一个每天9点喝水的提醒",
    "提醒在9点",
    "每天9点的提醒已设置",
    "她的提醒是9点",
    "自动化已存在",
    "自动化每30分钟运行一次",
    "自动化“新闻”每天9点运行",
    "2个自动化已启用",
    "心跳间隔是30分钟",
    "共有3个自动化",
)


def test_a_person_said_it_comes_before_whether_it_sounds_live() -> None:
    def lost(texts: Iterable[str], **more: Any) -> list[str]:
        held = {text: holding("important_facts", text) for text in texts}
        return [text for text, held in held.items() if durable(held, stated={text}, **more) != held]

    assert lost(OF_LIVES) == []
    assert lost(REPORTS) == list(REPORTS)
    with_figures = [text for text in OF_LIVES if task_state.figures_in([text])]
    assert [text for text in with_figures if changed([text], figures=text)] == [], (
        "without a message, by figures"
    )
    assert [text for text in REPORTS if len(changed([text], figures=text)) < len(PARTS)] == []


LOOPS = (
    "Waiting for the landlord's answer",
    "Waiting for an answer from the landlord",
    "waiting for confirmation of the bank",
    "She waits for the results of the biopsy",
    "Waiting for the confirmation email from the airline",
    "Awaiting the delivery of the sofa",
    "等待房东的回复",
    "等待医院的检查结果",
)
STEP_WAITS = (
    "Waiting for the answer",
    "Waiting for a reply from the user",
    "awaiting the user's confirmation of the date",
    "Awaiting approval before the next step",
    "Waiting for your answer",
    "waiting for the tool's result",
    "Await further input",
    "Waiting for the person to choose a date",
    "next step: search the web",
    "等待确认",
    "等待您的回复",
    "等待工具的结果",
    "下一步\uff1a搜索",
)


def test_a_wait_for_somebody_else_stays_and_a_wait_of_a_step_goes() -> None:
    assert changed(LOOPS) == []
    assert [text for text in STEP_WAITS if len(changed([text])) < len(PARTS)] == []


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
    return done.held


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


NEVER = (
    "Waiting for the user to say a date",
    "her PIN 4711",
)


def test_a_fact_that_stands_in_a_persons_message_is_held_unless_it_can_be_looked_up_or_is_secret() -> None:
    for text in (*STATED, "She takes a pill at 9 and wants a reminder"):
        held = holding("important_facts", text)
        assert durable(held, stated={text}) == held, text
    for text in NEVER:
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
    found = read_reply(f"Here it is:\n```json\n{json.dumps(WHOLE)}\n```")
    assert found is not None
    assert found.held == TaskStateData(
        current_goal="paint the shed", open_loops=("a", "b"), important_facts=("likes red",)
    )


def test_a_fact_names_the_message_in_which_it_stands() -> None:
    facts = ["a", {"fact": "b", "message": 2}, {"fact": "c", "message": "3"}, {"fact": "d", "message": None}]
    found = read_reply(json.dumps(WHOLE | {"important_facts": facts}))
    assert found is not None
    assert found.held.important_facts == ("a", "b", "c", "d")
    assert found.sources == {"b": 2, "c": 3}


def test_what_is_no_task_state_is_none() -> None:
    values: list[object] = [None, 7, {}, [1], ["a", None]]
    broken: list[dict[str, object]] = [WHOLE | {part: value} for part in WHOLE for value in values]
    broken += [{name: value for name, value in WHOLE.items() if name != part} for part in WHOLE]
    broken += [{**WHOLE, "important_facts": "likes red"}, {**WHOLE, "current_goal": ["paint"]}]
    texts = ["", "nothing", "{", '{"other": 1}', "[1, 2]", *map(json.dumps, broken)]
    assert [text for text in texts if read_reply(text) is not None] == []


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
RELATIVE_DAYS = {
    "Tomorrow, not the day after tomorrow; \u6628\u5929": "2026-04-29, not 2026-04-30; 2026-04-27",
    "dinner tonight": "dinner 2026-04-28 evening",
    "Next Friday or this Friday": "2026-05-08 or 2026-05-01",
    "it broke last Friday": "it broke 2026-04-24",
    "the coming Tuesday": "the 2026-05-05",
    "Monday next week": "2026-05-04",
    "next week on Thursday": "2026-05-07",
    "the exam is next week": "the exam is the week of 2026-05-04",
    "she moves next month": "she moves 2026-05",
    "since last year": "since 2025",
    "the visa expires in two weeks": "the visa expires 2026-05-12",
    "the fair is in 3 days": "the fair is 2026-05-01",
    "In two weeks she moves": "2026-05-12 she moves",
    "Fine, in 3 days I fly": "Fine, 2026-05-01 I fly",
    "She will see Ana in two weeks": "She will see Ana 2026-05-12",
    "I'm flying to Rome in 3 days": "I'm flying to Rome 2026-05-01",
    "last weekend, not the coming weekend": "the weekend of 2026-04-25, not the weekend of 2026-05-02",
    "她说3天后来\uff0c我两周后走": "她说2026-05-01来\uff0c我2026-05-12走",
    "a week from now": "2026-05-05",
    "the day after tomorrow or day after tomorrow": "2026-04-30 or 2026-04-30",
    "last night, and this morning": "2026-04-27 evening, and 2026-04-28 morning",
    "she moved 5 months ago, and 2 years ago": "she moved 2025-11, and 2024",
    "\u4e24\u4e2a\u6708\u540e\u642c\u5bb6": "2026-06\u642c\u5bb6",
    "\u4e0b\u5468\u4e00\u770b\u7259\u533b": "2026-05-04\u770b\u7259\u533b",
    "\u4e0b\u661f\u671f\u5929": "2026-05-10",
    "\u4e0b\u4e0b\u5468\u4e09": "2026-05-13",
    "\u4e0a\u5468\u4e94\u642c\u5bb6": "2026-04-24\u642c\u5bb6",
    "\u672c\u5468\u65e5": "2026-05-03",
    "\u4e0b\u4e2a\u6708": "2026-05",
    "\u660e\u5e74": "2027\u5e74",
    "\u660e\u665a8\u70b9": "2026-04-29\u665a\u4e0a8\u70b9",
    "\u5927\u540e\u5929": "2026-05-01",
    "\u4e24\u5468\u524d": "2026-04-14",
    "她说明天去": "她说2026-04-29去",
    "可以后天去": "可以2026-04-30去",
    "所以前天没来": "所以2026-04-26没来",
    "下周期末考试": "2026-05-04那周期末考试",
    "the Friday of last week": "the 2026-04-24",
}
NO_DAYS = (
    "every Monday",
    "She will, and she learned to swim in 3 days",
    "出院两周前",
    "\u6bcf\u5468\u4e00",
    "for 2 weeks",
    "以后天天吃药",
    "以前天天跑步",
    "目前天气很好",
    "如今天气冷",
    "后天性免疫缺陷",
    "每天早上周会",
    "看一下周一的安排",
    "这周围很吵",
    "下月季花",
    "meets on the last Friday of the month",
    "over the past year",
)


def test_days_are_written_by_their_dates() -> None:
    assert {text: with_dates(text, TUESDAY) for text in RELATIVE_DAYS} == RELATIVE_DAYS
    assert [text for text in NO_DAYS if with_dates(text, TUESDAY) != text] == []
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
