"""Telegram from end to end: a Bot API server over HTTP, the real library, real worker processes."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from agent_core.llm.protocol import ModelReply
from agent_core.testing import ModelServer
from agent_core.types import ToolCall
from automations.jobs.edit import NewJob, create_job
from sessions_app.models import Agent, Delivery, Message, Session, TelegramBot, TelegramChat, Turn
from sessions_app.sessions.open import open_session
from sessions_app.telegram.binding import issue_code
from sessions_app.telegram.bots import delete_bot, update_bot
from tests import plugins
from tests.agent_core.planner.plans import says
from tests.bot_api import TOKEN, BotApi, Sent
from tests.conftest import Person
from tests.fleet import Fleet, Process, until
from tests.sessions_app.telegram.conftest import CHAT

pytestmark = [pytest.mark.processes, pytest.mark.rule("9.5")]
PLUGIN = {"RONDO_PLUGINS": "tests.sessions_app.telegram.plugin"}


@pytest.fixture
def fleet(fleet: Fleet, api: BotApi) -> Fleet:
    fleet.environ |= PLUGIN | {"RONDO_TELEGRAM_URL": api.url}
    return fleet


@pytest.fixture
def worker(fleet: Fleet) -> Process:
    return fleet.worker()


def answered(api: BotApi, count: int = 1) -> list[str]:
    until(lambda: len(api.texts(CHAT)) >= count, what=f"{count} messages in the chat")
    return api.texts(CHAT)


def poller(fleet: Fleet) -> Process:
    """The process that polls last."""

    def found() -> Process | None:
        began = [(each.text().rfind("telegram_poll_began"), each) for each in fleet.processes]
        return next((each for place, each in began if place >= 0 and each.child.poll() is None), None)

    process: Process = until(found, what="one worker polls")
    return process


def test_somebody_connects_a_chat_writes_and_is_answered(
    fleet: Fleet, api: BotApi, person: Person, bot: TelegramBot
) -> None:
    worker = fleet.worker(LOG_LEVEL="DEBUG")
    api.say(CHAT, "hello?")
    answered(api)
    api.say(CHAT, f"/start {issue_code(bot.pk).code}")
    until(lambda: TelegramChat.objects.filter(bot=bot, chat_id=CHAT).exists())
    assert "connected to the agent demo" in answered(api, 2)[-1]
    api.say(CHAT, "My name is Ada.")
    last = answered(api, 3)[-1]
    said = Message.objects.filter(session__key=f"telegram:{CHAT}").order_by("seq")
    assert [each.role for each in said] == ["user", "assistant"]
    assert said[0].content == "My name is Ada."
    assert last == said[1].content
    assert api.calls["sendChatAction"] >= 1
    # nothing of the token is logged, on DEBUG neither
    assert "telegram_poll_began" in worker.text()
    assert TOKEN not in worker.text()
    assert TOKEN.partition(":")[2] not in worker.text()


def test_an_automations_answer_arrives(fleet: Fleet, api: BotApi, person: Person, chat: int) -> None:
    session = open_session(person.agent, key=f"telegram:{chat}")
    fleet.worker()
    fleet.beat()
    soon = datetime.fromtimestamp(time.time() + 1, UTC).isoformat()
    create_job(NewJob(session_id=session.pk, message="Stand up.", schedule={"kind": "at", "at": soon}))
    assert answered(api) == [Message.objects.get(session=session, role="assistant").content]
    until(lambda: Delivery.objects.filter(state="sent").count() == 1)


@pytest.fixture
def with_model(person: Person, model_server: ModelServer) -> ModelServer:
    Agent.objects.filter(pk=person.agent.pk).update(model="openai-chat:test")
    return model_server


def test_a_button_answers_its_question_once(
    fleet: Fleet, with_model: ModelServer, api: BotApi, chat: int
) -> None:
    fleet.worker()
    call = ModelReply(text="", calls=(ToolCall(id="1", name="erase", arguments={"name": "disk"}),))
    with_model.answer_with(call, says("May I?"))
    api.say(CHAT, "Tidy up.")
    answered(api)
    asked: Sent = api.sent[-1]
    assert [label for label, _ in asked.buttons] == ["Allow erase", "Refuse"]
    with_model.answer_with(call, says("Erased."))
    stranger = api.press(asked, "Allow erase", by=666)
    until(lambda: stranger in api.presses)
    assert plugins.calls(fleet.folder, "disk") == 0
    first, second = api.press(asked, "Allow erase"), api.press(asked, "Refuse")
    until(lambda: {first, second} <= api.presses.keys())
    assert answered(api, 2)[-1] == "Erased."
    assert plugins.calls(fleet.folder, "disk") == 1
    late = api.press(asked, "Allow erase")
    until(lambda: late in api.presses)
    assert "Only the person" in api.presses[stranger]
    assert api.presses[first] == "You answered: yes."
    assert api.presses[second] == api.presses[late] == "This question was answered already."
    assert asked.id in api.removed
    assert Turn.objects.filter(session__key=f"telegram:{CHAT}").count() == 2


def test_one_of_two_workers_polls_and_the_other_goes_on_after_a_kill(
    fleet: Fleet, api: BotApi, chat: int
) -> None:
    fleet.worker()
    fleet.worker()
    first = poller(fleet)
    until(lambda: tried_locks() == 2, what="both workers have tried the lock")
    api.say(CHAT, "one")
    answered(api)
    api.say(CHAT, "two")
    answered(api, 2)
    assert api.conflicts == 0
    assert sum("telegram_poll_began" in each.text() for each in fleet.processes) == 1
    with api.hanging("sendChatAction"):  # it stores the message, and cannot confirm it
        last = api.say(CHAT, "three")
        until(lambda: Turn.objects.filter(content="three").exists())
        assert last in api.updates
        first.kill()
    assert answered(api, 3)
    until(lambda: last not in api.updates, what="the other worker confirms it")
    other = poller(fleet)
    assert other is not first
    said = list(Message.objects.filter(role="user").order_by("seq").values_list("content", flat=True))
    assert said == ["one", "two", "three"]
    until(lambda: not Delivery.objects.exclude(state="sent").exists())
    assert len(api.texts(CHAT)) == 3


def test_a_stopped_worker_loses_its_polls_and_a_resumed_one_doubles_nothing(
    fleet: Fleet, api: BotApi, chat: int
) -> None:
    fleet.worker()
    fleet.worker()
    first = poller(fleet)
    first.signal(signal.SIGSTOP)
    end_connections("rondo telegram")  # as its idle session would end after a minute
    api.say(CHAT, "one")
    answered(api)
    first.signal(signal.SIGCONT)
    first.wait_for("telegram_locks_lost")
    api.say(CHAT, "two")
    answered(api, 2)
    assert Turn.objects.count() == 2


def tried_locks() -> int:
    """How many workers have a connection for locks on which a statement has ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rondo telegram' AND state = 'idle'"
            " AND (query LIKE '%%pg_try_advisory_lock%%' OR query = 'SELECT 1')",
            [],
        )
        return int(cursor.fetchone()[0])


def end_connections(name: str) -> None:
    with connection.cursor() as cursor:
        ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
        cursor.execute(ending, [name])


def test_a_blocked_bot_is_a_dead_letter_that_says_so(worker: Process, api: BotApi, chat: int) -> None:
    api.blocked.add(CHAT)
    api.say(CHAT, "Good morning!")
    until(lambda: Delivery.objects.filter(state="failed").exists())
    failed = Delivery.objects.get()
    assert (failed.attempts, failed.last_error) == (1, "the person has blocked the bot (403)")
    assert TelegramChat.objects.get().blocked_at is not None


def test_a_long_answer_comes_in_parts_and_goes_on_after_429(
    fleet: Fleet, with_model: ModelServer, api: BotApi, chat: int
) -> None:
    fleet.environ["RONDO_DELIVERY_RETRY_SECONDS"] = "1,1,1"
    fleet.worker()
    text = "\n\n".join(f"Paragraph {number} " + "🕘 words " * 60 for number in range(20))
    with_model.answer_with(says(text))
    api.fail("sendMessage", 429, after=2, retry_after=2)
    api.say(CHAT, "Tell me a story.")
    until(lambda: Delivery.objects.filter(state="sent").exists())
    assert len(api.texts(CHAT)) == 3  # the third failed at first
    assert "".join(api.texts(CHAT)) == Message.objects.get(role="assistant").content
    assert Delivery.objects.get().attempts == 2


def test_a_server_in_trouble_is_waited_for(fleet: Fleet, api: BotApi, bot: TelegramBot, chat: int) -> None:
    api.fail("getUpdates", 502, times=1)
    worker = fleet.worker()
    until(lambda: TelegramBot.objects.get().last_error, what="the page says why")
    api.say(CHAT, "Good morning!")
    answered(api)
    assert TelegramBot.objects.get().last_error == ""
    api.fail("getUpdates", 429, times=1, retry_after=3)
    api.say(CHAT, "Good evening!")  # what the poll that waits brings
    until(lambda: api.troubles["getUpdates"].times == 0)
    failed_at = time.monotonic()
    api.say(CHAT, "Good night!")
    answered(api, 3)
    assert time.monotonic() - failed_at > 2.5
    with api.hanging("getUpdates"):
        assert worker.stop(15) == 0


def test_a_bot_is_switched_off_on_and_deleted_meanwhile(
    worker: Process, api: BotApi, bot: TelegramBot, chat: int
) -> None:
    worker.wait_for("telegram_poll_began")
    # although nobody has written
    until(lambda: TelegramBot.objects.get().state_since, 15, what="it is known that the bot is read")
    update_bot(bot.pk, enabled=False)
    worker.wait_for("telegram_poll_ended")
    api.say(CHAT, "Good morning!")
    update_bot(bot.pk, enabled=True)
    answered(api)
    delete_bot(bot.pk)
    until(lambda: worker.text().count("telegram_poll_ended") == 2)
    assert Session.objects.filter(key=f"telegram:{CHAT}").exists()


def test_an_inactive_owner_is_not_served(worker: Process, api: BotApi, person: Person, chat: int) -> None:
    worker.wait_for("telegram_poll_began")
    _set_active(person, value=False)
    worker.wait_for("telegram_poll_ended")
    api.say(CHAT, "Good morning!")
    _set_active(person, value=True)
    assert answered(api)
    assert Turn.objects.count() == 1


def _set_active(person: Person, *, value: bool) -> Any:
    person.user.is_active = value
    person.user.save()
