"""Telegram from end to end: a Bot API server over HTTP, the real library, real worker processes."""

import signal
import time

import pytest
from django.contrib.auth.models import User

from sessions_app.models import Agent, Delivery, Message, Session, TelegramBot, TelegramChat, Turn
from sessions_app.telegram.bots import delete_bot, issue_code, update_bot
from tests import plugins
from tests.agent_core.planner.plans import says
from tests.bot_api import TOKEN, BotApi, Sent
from tests.conftest import Person
from tests.fleet import Fleet, Process, until
from tests.inside import call, makes
from tests.model_server import ModelServer
from tests.races import backends_that, selected
from tests.sessions_app.telegram.conftest import CHAT

pytestmark = [pytest.mark.processes, pytest.mark.rule("9.5")]
PLUGIN = {"RONDO_PLUGINS": "tests.sessions_app.telegram.plugin"}


@pytest.fixture
def fleet(fleet: Fleet, api: BotApi) -> Fleet:
    fleet.environ |= PLUGIN | {"RONDO_TELEGRAM_URL": api.url}
    return fleet


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


@pytest.mark.long("a worker starts and answers five updates, one after the other")
def test_somebody_connects_a_chat_writes_is_answered_and_presses_a_button(
    fleet: Fleet, model_server: ModelServer, api: BotApi, bot: TelegramBot
) -> None:
    Agent.objects.update(model="openai-chat:test")
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
    erase = makes(call("erase", name="disk"))
    model_server.answer_with(erase, says("May I?"))
    api.say(CHAT, "Tidy up.")
    answered(api, 4)
    asked: Sent = api.sent[-1]
    assert [label for label, _ in asked.buttons] == ["Allow erase", "Refuse"]
    model_server.answer_with(erase, says("Erased."))
    first, second = api.press(asked, "Allow erase"), api.press(asked, "Refuse")
    until(lambda: {first, second} <= api.presses.keys())
    assert answered(api, 5)[-1] == "Erased."
    assert plugins.calls(fleet.folder, "disk") == 1
    assert api.presses[first] == "You answered: yes."
    assert api.presses[second] == "This question was answered already."
    assert asked.id in api.removed
    assert Turn.objects.count() == 3
    # nothing of the token is logged, on DEBUG neither
    assert "telegram_poll_began" in worker.text()
    assert TOKEN not in worker.text()
    assert TOKEN.partition(":")[2] not in worker.text()


@pytest.mark.full
def test_one_worker_polls_and_another_goes_on_after_a_kill(fleet: Fleet, api: BotApi, chat: int) -> None:
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


@pytest.mark.full
def test_a_stopped_worker_loses_its_polls_and_doubles_nothing(fleet: Fleet, api: BotApi, chat: int) -> None:
    fleet.worker()
    fleet.worker()
    first = poller(fleet)
    first.signal(signal.SIGSTOP)
    idle = backends_that("application_name = 'rondo telegram'")  # as its session would end after a minute
    assert idle
    assert all(selected("SELECT pg_terminate_backend(unnest(%s))", idle))
    api.say(CHAT, "one")
    answered(api)
    first.signal(signal.SIGCONT)
    first.wait_for("telegram_locks_lost")
    api.say(CHAT, "two")
    answered(api, 2)
    assert Turn.objects.count() == 2


def tried_locks() -> int:
    """How many workers have a connection for locks on which a statement has ended."""
    tried = "state = 'idle' AND (query LIKE '%pg_try_advisory_lock%' OR query = 'SELECT 1')"
    return len(backends_that(f"application_name = 'rondo telegram' AND {tried}"))


@pytest.mark.full
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


@pytest.mark.full
def test_a_bot_and_its_owner_are_switched_off_and_on_and_the_bot_is_deleted(
    fleet: Fleet, api: BotApi, person: Person, bot: TelegramBot, chat: int
) -> None:
    worker = fleet.worker()
    ends = 0

    def polls_no_more() -> None:
        nonlocal ends
        ends += 1
        until(lambda: worker.text().count("telegram_poll_ended") == ends)

    worker.wait_for("telegram_poll_began")
    # although nobody has written
    until(lambda: TelegramBot.objects.get().state_since, 15, what="it is known that the bot is read")
    update_bot(bot.pk, enabled=False)
    polls_no_more()
    api.say(CHAT, "Good morning!")
    update_bot(bot.pk, enabled=True)
    answered(api)
    User.objects.filter(pk=person.user.pk).update(is_active=False)
    polls_no_more()
    api.say(CHAT, "Good evening!")
    User.objects.filter(pk=person.user.pk).update(is_active=True)
    answered(api, 2)
    assert Turn.objects.count() == 2
    delete_bot(bot.pk)
    polls_no_more()
    assert Session.objects.filter(key=f"telegram:{CHAT}").exists()
