"""What a person's message means to the executions that there are, case by case (rule 7.3)."""

import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent_core.execution import Execution, Status
from agent_core.planner import live
from agent_core.planner.decide import Meaning, decide_message
from agent_core.planner.live import LiveState
from agent_core.text import phrases
from tests.up import ROOT

pytestmark = pytest.mark.rule("7.1", "7.3", "7.6")

TEXTS: Any = tomllib.loads((ROOT / "tests/data/meanings.toml").read_text())
ASKED = Execution(id="asked222", request="bake", status=Status.WAITING_USER, question="Which cake?")
TO_CONFIRM = Execution(id="sure2222", request="erase", status=Status.WAITING_CONFIRMATION, question="Sure?")
FAILED = Execution(id="failed22", request="bake", status=Status.FAILED)
DONE = Execution(id="done2222", request="bake", status=Status.COMPLETED)
GIVEN_UP = Execution(id="given222", request="bake", status=Status.CANCELLED)


def meaning(text: str, *executions: Execution, live_request: bool = False) -> Meaning:
    return decide_message(text, executions, live_request=live_request).meaning


def all_mean(
    expected: Meaning, texts: Iterable[str], *executions: Execution, live_request: bool = False
) -> None:
    found = {text: meaning(text, *executions, live_request=live_request) for text in texts}
    assert found == dict.fromkeys(texts, expected)


@contextmanager
def kind(name: str, words: tuple[str, ...], read: Callable[[Any], str]) -> Iterator[None]:
    """A kind of live state."""
    live.register(LiveState(name=name, words=words, read=read))
    try:
        yield
    finally:
        live.unregister(name)


@pytest.mark.rule("3.5")
def test_a_whole_message_of_yes_or_no_without_a_question_mark_settles_what_waits() -> None:
    words = ("是", "好", "继续", "ok", "OK!", "Yes.", "no", "不", "否", "取消", "\uff23ancel", "go ahead")
    all_mean(Meaning.CONFIRMATION, words, ASKED)
    all_mean(Meaning.CONFIRMATION, words, TO_CONFIRM)
    asking = (
        "ok?",
        "Yes ?",
        "是\uff1f",
        "no?",
        "yes!?",
        "y\u203d",
        "\u00bfok",
        "yes\u037e",
        "yes #sure2222?",
    )
    all_mean(Meaning.REPLY, asking, TO_CONFIRM)
    for executions in ((), (FAILED,), (DONE,), (GIVEN_UP,)):
        all_mean(Meaning.FRESH, ("是", "好", "ok", "yes", "no", "取消"), *executions)


def test_a_yes_may_name_its_question_and_no_other() -> None:
    asked = replace(TO_CONFIRM, question_id="quest222")
    for text in ("yes #quest222", "#QUEST222 ok", "好 #sure2222\u3002"):
        found = decide_message(text, (ASKED, asked), live_request=False)
        assert (found.meaning, found.execution) == (Meaning.CONFIRMATION, asked)
    assert meaning("yes #another2", ASKED, asked) is Meaning.CLOSED
    assert meaning("yes #another2", DONE) is Meaning.CLOSED
    assert meaning("yes #quest222 #asked222", ASKED, asked) is Meaning.REPLY
    assert decide_message("ok", (ASKED, asked), live_request=False, named="sure2222").execution is asked


WHICH = "Which reminder shall I delete, tea or water?"
ANSWERS = (
    (WHICH, "delete the tea reminder", Meaning.REPLY),
    (WHICH, "remove the water one", Meaning.REPLY),
    (WHICH, "list my reminders", Meaning.NEW_REQUEST),
    ("要删除哪个提醒\uff0c茶还是水\uff1f", "删除茶提醒", Meaning.REPLY),
    ("要删除哪个提醒\uff0c茶还是水\uff1f", "取消水的那个提醒", Meaning.REPLY),
    ("用哪种颜色\uff1f", "列出我的提醒", Meaning.NEW_REQUEST),
)


def test_an_answer_repeating_the_questions_words_is_a_reply() -> None:
    with kind("r", ("reminder", "reminders", "提醒"), lambda _context: ""):
        for question, answer, meant in ANSWERS:
            all_mean(meant, (answer,), replace(ASKED, question=question), live_request=True)
        all_mean(Meaning.REPLY, (f"list my reminders, #{ASKED.id}",), ASKED, live_request=True)


def test_more_than_a_word_is_a_reply() -> None:
    texts = ("yes, the lemon one", "好的\uff0c用柠檬", "not that one", "okra", "nothing with nuts")
    all_mean(Meaning.REPLY, texts, ASKED)


def test_retry_words_at_the_start_take_up_what_ended() -> None:
    texts: tuple[str, ...] = ("try again", "Again, please", "continue", "再试一次", "继续")
    texts += ("retry with less sugar", "please try again", "Could you try that again?", "one more time")
    texts += ("Ok, once more please", "麻烦你再来一次", "能再试一次吗\uff1f", "好的\uff0c请继续")
    texts += ("no, try it again", "once again", "redo it", "Give it another try", "重做", "我们再试一次吧")
    all_mean(Meaning.RETRY, texts, FAILED)
    all_mean(Meaning.RETRY, texts, DONE)
    all_mean(Meaning.FRESH, texts, GIVEN_UP)
    all_mean(Meaning.FRESH, texts)
    elsewhere = (
        *("do not try again", "against all odds", "the continue button", "请不要再试"),
        *("please do not retry", "one more timer", "tell me when you try again", "再见", "你别再试了"),
    )
    all_mean(Meaning.FRESH, elsewhere, FAILED)


def test_a_new_live_state_request_is_no_answer_to_the_question() -> None:
    about = live.kinds_mentioned
    assert [text for text in TEXTS["requests"] if not about(text)] == []
    assert about("Remind me what the doctor said") == (), "this asks for what is remembered"
    all_mean(Meaning.NEW_REQUEST, TEXTS["requests"], ASKED, live_request=True)
    all_mean(Meaning.REPLY, TEXTS["no_requests"], ASKED, live_request=True)
    all_mean(Meaning.REPLY, ("List the ingredients",), ASKED, live_request=False)
    taken = [
        (question, text)
        for question, text in TEXTS["replies"]
        if meaning(text, replace(ASKED, question=question), live_request=bool(about(text)))
        is not Meaning.REPLY
    ]
    assert taken == []
    all_mean(Meaning.NEW_REQUEST, ("Remind me to breathe",), TO_CONFIRM, live_request=True)
    for question, text in TEXTS["common"]:
        all_mean(Meaning.NEW_REQUEST, (text,), replace(ASKED, question=question), live_request=True)


def test_a_reply_goes_to_the_newest_unless_it_names_another() -> None:
    both = (TO_CONFIRM, ASKED)
    assert decide_message("lemon", both, live_request=False).execution is TO_CONFIRM
    assert decide_message("lemon for #asked222", both, live_request=False).execution is ASKED
    assert decide_message("lemon", both, live_request=False, named="asked222").execution is ASKED
    named = decide_message("list my automations", (ASKED,), live_request=True, named="asked222")
    assert named.meaning is Meaning.REPLY


def test_clear_is_a_command_and_its_words_answer_waiting_questions() -> None:
    commands, words = (
        ("/clear", " /CLEAR ", "/clear."),
        ("清空", "清空对话", "清除对话\u3002", "清除聊天记录"),
    )
    all_mean(Meaning.CLEAR, commands, ASKED)
    for text in commands:
        assert decide_message(text, (ASKED,), live_request=False, named=ASKED.id).meaning is Meaning.REPLY
    all_mean(Meaning.CLEAR, words, DONE)
    all_mean(Meaning.REPLY, words, ASKED)
    all_mean(Meaning.FRESH, ("/clear?", "清空\uff1f"), DONE)
    all_mean(Meaning.REPLY, ("/clear the table", "清空桌子", "不要清空对话"), ASKED)


def test_latin_words_match_as_words_and_chinese_ones_by_occurrence() -> None:
    texts = ("open the gate", "the GATE.", "关闭闸门吧", "Investigate it", "mitigate")
    assert [text for text in texts if phrases.contains_any(text, ("gate", "闸门"))] == list(texts[:3])


def test_a_deployment_can_add_words_and_live_state_kinds() -> None:
    phrases.add("yes", ["jawohl"])
    with kind("orders", ("order", "订单"), lambda _context: "two orders"):
        assert meaning("Jawohl!", ASKED) is Meaning.CONFIRMATION
        assert live.kinds_mentioned("Where is my order?") == ("orders",)
        assert live.kinds_mentioned("我的订单呢") == ("orders",)
        assert live.read_snapshot("orders", None).text == "two orders"


def test_a_provider_that_breaks_says_so_and_no_more() -> None:
    def read(_context: object) -> str:
        raise RuntimeError("secret")

    with kind("broken", ("x",), read):
        assert live.read_snapshot("broken", None).text == "(cannot be read now: RuntimeError)"
