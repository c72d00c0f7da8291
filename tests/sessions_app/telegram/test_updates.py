"""Who may write by a bot, and that each update counts once: attempts to trick it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.functions import Now

from agent_core import process
from interfaces.telegram import updates
from interfaces.telegram.polling import Poll, Served
from interfaces.telegram.updates import NotServed
from sessions_app.models import Message, Session, TelegramBot, TelegramChat, TelegramUpdate, Turn
from sessions_app.telegram.bots import (
    CheckedToken,
    add_bot,
    check_token,
    connected_chat,
    disconnect,
    issue_code,
    redeem,
    update_bot,
)
from tests.bot_api import TOKEN, BotApi
from tests.conftest import Person, new_person
from tests.fleet import until
from tests.races import UPDATE, in_line
from tests.sessions_app.telegram.conftest import CHAT, take

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.5")]
OTHER_CHAT = 5002
OTHER_TOKEN = "987654321:AAF-the-token-of-another-bot-for-the-tests"


@pytest.fixture
def other_bot(bot: TelegramBot, settings: Any) -> Any:
    """The bot of somebody else."""
    with BotApi(bot_id=987654321, token=OTHER_TOKEN, username="other_bot") as other:
        settings.RONDO_TELEGRAM_URL = other.url
        return add_bot(new_person("eve").agent, check_token(OTHER_TOKEN))


def code(bot: TelegramBot) -> str:
    return issue_code(bot.pk).code


def text_of(reply: updates.Reply | None) -> str:
    return reply.text if reply is not None else ""


def test_a_code_connects_one_chat_once_and_is_never_said_to_the_agent(api: BotApi, bot: TelegramBot) -> None:
    given = code(bot)
    bot.refresh_from_db()
    assert given not in str(vars(bot)), "it is stored as a hash"
    assert "connected to the agent demo" in text_of(take(bot, api.say(CHAT, f"/start {given}")))
    assert "not valid" in text_of(take(bot, api.say(OTHER_CHAT, f"/start {given}")))
    assert [each.chat_id for each in TelegramChat.objects.all()] == [CHAT]
    take(bot, api.say(CHAT, f"/start {code(bot)}"))  # once more, in a chat that is connected
    assert not Turn.objects.exists()


def test_of_two_chats_with_one_code_at_once_one_is_connected(bot: TelegramBot) -> None:
    given = code(bot)
    chats = (partial(redeem, bot.pk, chat, given, "") for chat in (CHAT, OTHER_CHAT))
    first, second = in_line(bot, UPDATE, *chats)
    assert first == ""
    assert "not valid" in second
    assert [each.chat_id for each in TelegramChat.objects.all()] == [CHAT]


def test_an_old_replaced_or_foreign_code_connects_nothing(bot: TelegramBot, other_bot: TelegramBot) -> None:
    replaced, last = code(bot), code(bot)
    assert redeem(bot.pk, CHAT, replaced, "")
    assert redeem(other_bot.pk, CHAT, last, "")
    TelegramBot.objects.filter(pk=bot.pk).update(code_expires_at=Now() - timedelta(minutes=10))
    assert redeem(bot.pk, CHAT, last, "")
    assert redeem(bot.pk, CHAT, "", "")
    assert not TelegramChat.objects.exists()


def test_codes_are_tried_a_few_times_only(bot: TelegramBot) -> None:
    given = code(bot)
    for _ in range(5):
        assert "not valid" in redeem(bot.pk, CHAT, "x" * 22, "")
    assert "Too many" in redeem(bot.pk, CHAT, given, "")
    assert redeem(bot.pk, OTHER_CHAT, given, "") == ""  # what a stranger tries holds up nobody else


def test_a_group_is_neither_connected_nor_heard(api: BotApi, bot: TelegramBot, chat: int) -> None:
    group = -100123
    given = code(bot)
    assert text_of(take(bot, api.say(group, f"/start {given}", sender=CHAT))) == updates.GROUPS
    assert take(bot, api.say(group, "Tell me all.", sender=CHAT)) is None  # told once
    assert not Turn.objects.exists()
    assert TelegramChat.objects.count() == 1


def test_a_stranger_gets_one_sentence_and_nothing_else(api: BotApi, bot: TelegramBot, chat: int) -> None:
    replies = [take(bot, api.say(OTHER_CHAT, text)) for text in ("hi", "/clear", "yes", "/start", "hi")]
    assert [text_of(each) for each in replies] == [updates.NOT_CONNECTED, "", "", "", ""]
    assert not Turn.objects.exists()
    assert not Session.objects.filter(key=f"telegram:{OTHER_CHAT}").exists()


def test_strangers_together_get_a_bounded_number_of_sentences(api: BotApi, bot: TelegramBot) -> None:
    with transaction.atomic():  # at one instant of the database, however long it takes
        replies = [take(bot, api.say(9_000 + number, "hi")) for number in range(40)]
    assert sum(each is not None for each in replies) == updates.ALL_STRANGERS.limit


def test_nobody_else_speaks_in_a_connected_chat(
    api: BotApi, bot: TelegramBot, chat: int, other_bot: TelegramBot
) -> None:
    assert take(bot, api.say(CHAT, "Tell me all.", sender=OTHER_CHAT)) is None
    assert text_of(take(other_bot, api.say(CHAT, "Tell me all."))) == updates.NOT_CONNECTED
    disconnect(bot.pk, CHAT)
    assert text_of(take(bot, api.say(CHAT, "Tell me all."))) == updates.NOT_CONNECTED
    assert not Turn.objects.exists()


def test_an_update_that_comes_again_causes_nothing(api: BotApi, bot: TelegramBot, chat: int) -> None:
    message, photo = api.say(CHAT, "Good morning!"), api.say(CHAT, photo=[])
    for _ in range(3):
        take(bot, message)
    assert Turn.objects.count() == 1
    assert [text_of(take(bot, photo)) for _ in range(3)] == [updates.UNSUPPORTED, "", ""]
    TelegramUpdate.objects.update(created_at=Now() - updates.KEPT - timedelta(minutes=1))
    take(bot, api.say(CHAT, "two"))
    assert TelegramUpdate.objects.count() == 1, "old ones are forgotten"


@pytest.mark.rule("10.0")
def test_a_server_that_does_not_wait_for_updates_is_not_asked_without_a_pause(
    api: BotApi, bot: TelegramBot
) -> None:
    api.is_hasty = True
    served = Served(agent_id=bot.pk, revision=bot.revision, token=TOKEN)
    with ThreadPoolExecutor(1) as threads:
        poll = process.submit(Poll(served, threads).run())
        until(lambda: api.calls["getUpdates"] >= 2)
        with suppress(TimeoutError):
            poll.result(0.6)
        poll.cancel()
    assert api.calls["getUpdates"] == 2


def test_of_two_polls_with_one_update_one_handles_it(api: BotApi, bot: TelegramBot, chat: int) -> None:
    update = api.say(CHAT, photo=[])
    # at the end of its transaction each looks whether the bot is there
    came = in_line(bot, UPDATE, *[partial(take, bot, update)] * 2)
    assert [text_of(each) for each in came] == [updates.UNSUPPORTED, ""]


def test_numbers_may_begin_anew_and_be_those_of_another_bot(api: BotApi, bot: TelegramBot, chat: int) -> None:
    for number in (9_000, 7):
        take(bot, api.say(CHAT, f"number {number}") | {"update_id": number})
    update_bot(bot.pk, checked=CheckedToken(token=OTHER_TOKEN, telegram_id=987654321, username="other_bot"))
    redeem(bot.pk, CHAT, code(bot), "Ada")
    take(bot, api.say(CHAT, "to the other") | {"update_id": 7})
    said = Turn.objects.order_by("pk").values_list("content", flat=True)
    assert list(said) == ["number 9000", "number 7", "to the other"]


def test_an_update_that_fails_is_not_counted(
    api: BotApi, bot: TelegramBot, chat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = api.say(CHAT, "Good morning!")
    with monkeypatch.context() as broken:
        broken.setattr(updates, "receive", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            take(bot, update)
    assert not TelegramUpdate.objects.exists()
    take(bot, update)
    assert Turn.objects.count() == 1


def test_what_is_unserved_waits_at_telegram(api: BotApi, bot: TelegramBot, chat: int, person: Person) -> None:
    update = api.say(CHAT, "Good morning!")
    bots, owner = TelegramBot.objects.all(), get_user_model().objects.filter(pk=person.user.pk)
    for off, on in (
        (partial(bots.update, enabled=False), partial(bots.update, enabled=True)),
        (partial(owner.update, is_active=False), partial(owner.update, is_active=True)),
    ):
        off()
        with pytest.raises(NotServed):
            take(bot, update)
        on()
    assert not TelegramUpdate.objects.exists()
    assert take(bot, update) is not None


def test_what_is_no_text_is_answered_with_one_sentence(api: BotApi, bot: TelegramBot, chat: int) -> None:
    about: dict[str, Any] = {"file_id": "f", "file_unique_id": "u"}
    size = {"width": 1, "height": 1}
    for more in (
        {"photo": [about | size]},
        {"voice": about | {"duration": 1}},
        {"sticker": about | size | {"is_animated": False, "is_video": False, "type": "regular"}},
        {"document": about},
    ):
        assert text_of(take(bot, api.say(CHAT, None, **more))) == updates.UNSUPPORTED, more
    assert text_of(take(bot, api.edit(CHAT, "Good evening!"))) == updates.EDITED
    assert not Turn.objects.exists()


def test_forwarded_words_are_marked_as_somebody_elses(api: BotApi, bot: TelegramBot, chat: int) -> None:
    origin = {"type": "hidden_user", "date": 1, "sender_user_name": "Eve"}
    take(bot, api.say(CHAT, "yes", forward_origin=origin))
    turn = Turn.objects.get()
    assert turn.content == "Forwarded message:\n\nyes"
    assert turn.input.by_program


def test_a_closed_conversation_says_so(api: BotApi, bot: TelegramBot, chat: int) -> None:
    take(bot, api.say(CHAT, "Good morning!"))
    Session.objects.filter(key=f"telegram:{CHAT}").archive()
    assert "archived" in text_of(take(bot, api.say(CHAT, "Good evening!")))
    assert not Message.objects.exists()


def test_the_tenth_chat_is_the_last(bot: TelegramBot) -> None:
    for number in range(10):
        assert redeem(bot.pk, 9_000 + number, code(bot), "") == ""
    assert "10 chats" in redeem(bot.pk, 9_999, code(bot), "")
    assert connected_chat(bot.pk, 9_999) is None
