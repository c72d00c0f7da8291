"""Each sentence of the table in agent_core/offline/model.py and docs/tools.md."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from agent_core import prompts
from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelCall, ModelReply
from agent_core.offline import model as offline
from agent_core.offline.model import OfflineModel, pieces, reply_with_delay
from agent_core.strategies import STRATEGIES, ContextInput, DueTask, Update
from agent_core.text import fence
from agent_core.tool_spec import ToolSpec
from agent_core.turn.control import TurnControl
from agent_core.types import Ending, Entry
from tests.agent_core.fakes import Ports, assistant, drive, request, user
from tests.docs.pages import section

CRON = ToolSpec(
    name="cron",
    description="Automations.",
    parameters={"type": "object", "properties": {"action": {}, "job_id": {}}, "required": ["action"]},
)
BLUE = (user("My favourite colour is blue."), assistant("Noted."))
SUFFIX = " (offline model)"


def ask(message: str, *history: Entry, tools: tuple[ToolSpec, ...] = (CRON,), system: str = "") -> ModelReply:
    return reply_with_delay(ModelCall(system_prompt=system, entries=(*history, user(message)), tools=tools))[
        0
    ]


def said(message: str, *history: Entry, **more: Any) -> str:
    text = ask(message, *history, **more).text
    assert text.endswith(SUFFIX)
    return text.removesuffix(SUFFIX)


def due(task: str) -> str:
    variables = {
        "name": "daily",
        "task": fence.fenced("task", task, fence.INSTRUCTIONS),
        "scheduled_for": "now",
        "timezone": "UTC",
    }
    return prompts.render_prompt("cron.agent_turn.reminder", variables).text


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("my favourite colour is blue", "Noted: your favourite colour is blue."),
        ("My name is Ann and my dog is Rex.", "Noted: your name is Ann; your dog is Rex."),
        ("Remember that the door code is 1234.", "Noted: the door code is 1234."),
        ("please remember to be kind", "Noted: to be kind."),
        ("my e-mail is a.b@c.de", "Noted: your e-mail is a.b@c.de."),
        ("my name is Bob, what is my name?", "Noted: your name is Bob. Your name is Bob."),
    ],
)
def test_facts_are_noted(message: str, answer: str) -> None:
    assert said(message) == answer


@pytest.mark.parametrize(
    "question",
    [
        "what is my favourite colour?",
        "What's my favorite color",
        "Tell me my favourite colour!",
        "do you know my favourite colour?",
        "Which favourite colour do I have?",
    ],
)
def test_a_question_is_answered_from_the_conversation(question: str) -> None:
    assert said(question, *BLUE) == "Your favourite colour is blue."


def test_a_later_fact_wins() -> None:
    later = (*BLUE, user("my favourite color is red"), assistant("ok"))
    assert said("what is my favourite colour?", *later) == "Your favourite color is red."


def test_what_nobody_said_is_not_known() -> None:
    assert said("what is my favourite colour?") == "I do not know your favourite colour."
    assert said("tell me my shoe size", *BLUE) == "I do not know your shoe size."


def test_only_people_are_believed() -> None:
    assert said("what is my name?", assistant("my name is Hal")) == "I do not know your name."


def test_everything_known_can_be_asked_for() -> None:
    history = (*BLUE, user("remember to be kind"), assistant("ok"))
    assert said("what do you remember?", *history) == "Your favourite colour is blue; to be kind."
    assert said("what do you know about me?") == "I remember nothing yet."


AUTOMATION = (
    user("Scheduled automation triggered: daily report\n\nReport."),
    assistant("All is well. (offline model)"),
)


def test_the_last_automation_is_quoted() -> None:
    history = (*AUTOMATION, user("thanks"), assistant("Welcome. (offline model)"))
    assert (
        said("What did the automation say?", *history) == 'The automation "daily report" said: "All is well."'
    )
    assert said("what did the automation say?") == "No automation has said anything yet."


def test_the_last_answer_is_quoted() -> None:
    assert said("what did you say last?", *AUTOMATION) == 'I said last: "All is well."'
    assert said("what did you say last?") == "I have said nothing yet."


def test_it_can_say_nothing() -> None:
    assert ask("Say nothing.").text == ""


def test_it_can_fail() -> None:
    with pytest.raises(ModelRefused):
        ask("fail")


def test_other_messages_are_repeated_with_the_count_of_earlier_messages() -> None:
    assert said("hello") == 'You said: "hello". There are 0 messages before it.'
    assert said("hello", *BLUE).endswith("There are 2 messages before it.")
    assert len(said("x" * 5000)) < 300


def test_background_updates_are_quoted_and_the_message_is_answered() -> None:
    given = ContextInput(
        agent_name="A",
        timezone="UTC",
        documents={},
        trigger="what is my favourite colour?",
        updates=(
            Update(event_type="job_completed", summary="Report done.", detail="Line one\nline two"),
            Update(event_type="heartbeat", summary="All quiet"),
        ),
    )
    message = STRATEGIES["primary"](given).message
    assert said(message, *BLUE) == (
        "Update [job_completed]: Report done. (Line one line two)\n"
        "Update [heartbeat]: All quiet\n"
        "Your favourite colour is blue."
    )


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Tell me my favourite colour", "Your favourite colour is blue."),
        ("Use their favourite color in a poem", "Your favourite colour is blue."),
        ("Check the repo.", "Done: Check the repo. I remember: your favourite colour is blue."),
        ("every 10 seconds sing", "Done: every 10 seconds sing. I remember: your favourite colour is blue."),
        ("what is my name?", "I do not know your name."),
        ("What did you say last?", 'I said last: "Noted."'),
    ],
)
def test_a_due_automation_does_its_task(task: str, answer: str) -> None:
    assert said(due(task), *BLUE) == answer


def test_a_due_automation_without_memory() -> None:
    assert said(due("Check the repo")) == "Done: Check the repo."
    assert ask(due("say nothing")).text == ""
    assert ask(due("use tool cron")).calls[0].name == "cron"
    with pytest.raises(ModelRefused):
        ask(due("fail"))


def test_a_heartbeat_is_quiet_unless_tasks_are_due() -> None:
    given = ContextInput(agent_name="A", timezone="UTC", documents={}, trigger="Check.")
    quiet = STRATEGIES["heartbeat"](given)
    assert said(quiet.message, system=quiet.system_prompt) == "HEARTBEAT_OK"
    tasks = (DueTask(id="a", title="Water", description="plants"), DueTask(id="b", title="Mail"))
    busy = STRATEGIES["heartbeat"](
        ContextInput(agent_name="A", timezone="UTC", documents={}, trigger="Check.", due_tasks=tasks)
    )
    assert said(busy.message, system=busy.system_prompt) == "Done: Water; Mail."


def test_a_document_mentioning_heartbeats_does_not_turn_chats_into_heartbeats() -> None:
    given = ContextInput(
        agent_name="A",
        timezone="UTC",
        documents={"AGENTS.md": "Say HEARTBEAT_OK when idle."},
        trigger="hello",
    )
    chat = STRATEGIES["primary"](given)
    assert said(chat.message, system=chat.system_prompt).startswith("You said")


def test_each_message_of_a_turn_is_answered_in_order() -> None:
    ports = Ports(waiting=["list my automations", "what is my favourite colour?"])
    tool = ToolSpec(name="cron", description="", parameters={"type": "object"})
    outputs = iter(["added", "the list"])
    ports.on_call = lambda _call: next(outputs)
    run = drive(request("every 10 seconds sing", model="offline", history=BLUE, tools=(tool,)), ports)
    assert [call.arguments["action"] for call in ports.ran] == ["add", "list"]
    assert run.result.reply == f"added\nthe list\nYour favourite colour is blue.{SUFFIX}"


def test_a_failed_tool_is_reported_as_such() -> None:
    broken = ToolSpec(name="broken", description="", parameters={"type": "object"})
    run = drive(request("use tool broken", model="offline", tools=(broken,)))
    assert run.result.reply == f"The tool broken did not work (failed): Broken: always{SUFFIX}"


def test_text_comes_in_a_few_pieces() -> None:
    run = drive(request("hello you there", model="offline"))
    texts = [event.content["text"] for event in run.events]
    assert 2 <= len(texts) <= 4
    assert "".join(texts) == run.result.reply


@pytest.mark.parametrize("text", ["", "a", "one two three four five six", "  spaced \n out  "])
def test_pieces_joined_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert len(pieces(text)) <= 5


def test_the_same_conversation_has_the_same_answer() -> None:
    assert ask("hello", *BLUE) == ask("hello", *BLUE)
    assert ask("every 10 seconds sing") == ask("every 10 seconds sing")


def test_thinking_takes_time_and_can_be_cancelled() -> None:
    control = TurnControl()
    threading.Timer(0.1, control.cancel).start()
    begun = time.monotonic()
    run = drive(request("think for 30 seconds. hello", model="offline"), control=control)
    assert time.monotonic() - begun < 2
    assert run.result.ending is Ending.CANCELLED
    assert drive(request("think for 0.01 seconds, then say hi", model="offline")).result.reply.startswith(
        "You said"
    )


def test_the_model_streams_its_reply_last() -> None:
    async def collect() -> list[str | ModelReply]:
        call = ModelCall(system_prompt="", entries=(user("hello"),))
        return [item async for item in OfflineModel().stream(call)]

    items = asyncio.run(collect())
    assert isinstance(items[-1], ModelReply)
    assert "".join(item for item in items if isinstance(item, str)) == items[-1].text


def test_the_page_in_the_docs_has_the_same_table() -> None:
    page = section("tools.md", "Offline model")
    table = [line for line in str(offline.__doc__).splitlines() if line.startswith("| ")]
    assert len(table) > 10
    missing = [line for line in table if line.replace("``", "`") not in page]
    assert missing == []
