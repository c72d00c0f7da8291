"""What a person's message means to the executions that there are, case by case (rule 7.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_core.execution import Execution, Status
from agent_core.planner import live
from agent_core.planner.decide import Meaning, decide_message
from agent_core.planner.live import LiveState
from agent_core.text import phrases

pytestmark = pytest.mark.rule("7.1", "7.3", "7.6")

ASKED = Execution(id="asked222", request="bake", status=Status.WAITING_USER, question="Which cake?")
TO_CONFIRM = Execution(id="sure2222", request="erase", status=Status.WAITING_CONFIRMATION, question="Sure?")
FAILED = Execution(id="failed22", request="bake", status=Status.FAILED)
DONE = Execution(id="done2222", request="bake", status=Status.COMPLETED)
GIVEN_UP = Execution(id="given222", request="bake", status=Status.CANCELLED)


def meaning(text: str, *executions: Execution, live_request: bool = False) -> Meaning:
    return decide_message(text, executions, live_request=live_request).meaning


@pytest.mark.parametrize(
    "word", ["是", "好", "继续", "ok", "OK!", "Yes.", "no", "不", "否", "取消", "\uff23ancel", "go ahead"]
)
def test_a_whole_message_of_yes_or_no_settles_what_waits(word: str) -> None:
    assert meaning(word, ASKED) is Meaning.CONFIRMATION
    assert meaning(word, TO_CONFIRM) is Meaning.CONFIRMATION


@pytest.mark.parametrize("word", ["是", "好", "ok", "yes", "no", "取消"])
def test_with_nothing_waiting_it_is_a_request_like_any_other(word: str) -> None:
    for executions in ((), (FAILED,), (DONE,), (GIVEN_UP,)):
        assert meaning(word, *executions) is Meaning.FRESH


@pytest.mark.rule("3.5")
@pytest.mark.parametrize(
    "text", ["ok?", "Yes ?", "是\uff1f", "no?", "yes!?", "y\u203d", "\u00bfok", "yes\u037e", "yes #asked222?"]
)
def test_a_yes_with_a_question_mark_is_none(text: str) -> None:
    assert meaning(text, TO_CONFIRM) is not Meaning.CONFIRMATION


def test_a_yes_may_name_its_question_and_no_other() -> None:
    asked = replace(TO_CONFIRM, question_id="quest222")
    for text in ("yes #quest222", "#QUEST222 ok", "好 #sure2222\u3002"):
        found = decide_message(text, (ASKED, asked), live_request=False)
        assert (found.meaning, found.execution) == (Meaning.CONFIRMATION, asked)
    assert meaning("yes #another2", ASKED, asked) is Meaning.CLOSED
    assert meaning("yes #another2", DONE) is Meaning.CLOSED
    assert meaning("yes #quest222 #asked222", ASKED, asked) is Meaning.REPLY
    assert decide_message("ok", (ASKED, asked), live_request=False, named="sure2222").execution is asked


@pytest.mark.parametrize(
    ("question", "answer", "meant"),
    [
        ("Which reminder shall I delete, tea or water?", "delete the tea reminder", Meaning.REPLY),
        ("Which reminder shall I delete, tea or water?", "remove the water one", Meaning.REPLY),
        ("Which reminder shall I delete, tea or water?", "list my reminders", Meaning.NEW_REQUEST),
        ("要删除哪个提醒\uff0c茶还是水\uff1f", "删除茶提醒", Meaning.REPLY),
        ("要删除哪个提醒\uff0c茶还是水\uff1f", "取消水的那个提醒", Meaning.REPLY),
        ("用哪种颜色\uff1f", "列出我的提醒", Meaning.NEW_REQUEST),
    ],
)
def test_an_answer_repeating_the_questions_words_is_a_reply(
    question: str, answer: str, meant: Meaning
) -> None:
    live.register(LiveState(name="r", words=("reminder", "reminders", "提醒"), read=lambda _context: ""))
    try:
        assert meaning(answer, replace(ASKED, question=question), live_request=True) is meant
        named = f"list my reminders, #{ASKED.id}"
        assert meaning(named, ASKED, live_request=True) is Meaning.REPLY
    finally:
        live.unregister("r")


@pytest.mark.parametrize(
    "text", ["yes, the lemon one", "好的\uff0c用柠檬", "not that one", "okra", "nothing with nuts"]
)
def test_more_than_a_word_is_a_reply(text: str) -> None:
    assert meaning(text, ASKED) is Meaning.REPLY


@pytest.mark.parametrize(
    "text", ["try again", "Again, please", "continue", "再试一次", "继续", "retry with less sugar"]
)
def test_retry_words_at_the_start_take_up_what_ended(text: str) -> None:
    assert meaning(text, FAILED) is Meaning.RETRY
    assert meaning(text, DONE) is Meaning.RETRY
    assert meaning(text, GIVEN_UP) is Meaning.FRESH
    assert meaning(text) is Meaning.FRESH


@pytest.mark.parametrize(
    "text", ["do not try again", "against all odds", "the continue button", "请不要再试"]
)
def test_elsewhere_they_are_words_like_others(text: str) -> None:
    assert meaning(text, FAILED) is Meaning.FRESH


def test_a_clear_live_state_request_replaces_the_waiting_question() -> None:
    assert meaning("List my automations", ASKED, live_request=True) is Meaning.NEW_REQUEST
    assert meaning("显示我的自动化", ASKED, live_request=True) is Meaning.NEW_REQUEST
    assert meaning("the automation at nine", ASKED, live_request=True) is Meaning.REPLY
    assert meaning("List the ingredients", ASKED, live_request=False) is Meaning.REPLY


@pytest.mark.parametrize(
    "text",
    [
        "please set the reminder for 9",
        "Please, the automation at nine",
        "when the automation runs",
        "how the routine does it now",
        "what the reminder says",
    ],
)
def test_please_and_clause_words_do_not_mark_a_new_request(text: str) -> None:
    assert meaning(text, ASKED, live_request=True) is Meaning.REPLY


@pytest.mark.parametrize(
    "text",
    [
        "Which routines are there?",
        "please list my automations",
        "What are my reminders?",
        "How many automations do I have?",
        "Delete the automation",
        "显示所有提醒",
        "有哪些自动化",
    ],
)
def test_live_state_questions_and_change_orders_are_new_requests(text: str) -> None:
    assert meaning(text, ASKED, live_request=True) is Meaning.NEW_REQUEST


def test_a_reply_goes_to_the_newest_unless_it_names_another() -> None:
    assert decide_message("lemon", (TO_CONFIRM, ASKED), live_request=False).execution is TO_CONFIRM
    assert decide_message("lemon for #asked222", (TO_CONFIRM, ASKED), live_request=False).execution is ASKED
    assert (
        decide_message("lemon", (TO_CONFIRM, ASKED), live_request=False, named="asked222").execution is ASKED
    )
    named = decide_message("list my automations", (ASKED,), live_request=True, named="asked222")
    assert named.meaning is Meaning.REPLY


def test_clear_is_a_command_and_its_words_answer_waiting_questions() -> None:
    for text in ("/clear", " /CLEAR ", "/clear."):
        assert meaning(text, ASKED) is Meaning.CLEAR
        assert decide_message(text, (ASKED,), live_request=False, named=ASKED.id).meaning is Meaning.REPLY
    for text in ("清空", "清空对话", "清除对话\u3002", "清除聊天记录"):
        assert meaning(text, ASKED) is Meaning.REPLY
        assert meaning(text, DONE) is Meaning.CLEAR
    for text in ("/clear?", "清空\uff1f"):
        assert meaning(text, DONE) is Meaning.FRESH
    for text in ("/clear the table", "清空桌子", "不要清空对话"):
        assert meaning(text, ASKED) is Meaning.REPLY


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open the gate", True),
        ("Investigate it", False),
        ("the GATE.", True),
        ("关闭闸门吧", True),
        ("mitigate", False),
    ],
)
def test_latin_words_match_as_words_and_chinese_ones_by_occurrence(text: str, *, found: bool) -> None:
    assert phrases.contains_any(text, ("gate", "闸门")) is found


def test_a_deployment_can_add_words_and_live_state_kinds() -> None:
    phrases.add("yes", ["jawohl"])
    live.register(LiveState(name="orders", words=("order", "订单"), read=lambda _context: "two orders"))
    try:
        assert meaning("Jawohl!", ASKED) is Meaning.CONFIRMATION
        assert live.kinds_mentioned("Where is my order?") == ("orders",)
        assert live.kinds_mentioned("我的订单呢") == ("orders",)
        assert live.read_snapshot("orders", None).text == "two orders"
    finally:
        live.unregister("orders")


def test_a_provider_that_breaks_says_so_and_no_more() -> None:
    def read(_context: object) -> str:
        raise RuntimeError("secret")

    live.register(LiveState(name="broken", words=("x",), read=read))
    try:
        assert live.read_snapshot("broken", None).text == "(cannot be read now: RuntimeError)"
    finally:
        live.unregister("broken")
