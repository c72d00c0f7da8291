"""The channel `telegram`: the kit of channels, parts of long answers, and who can be written to."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfaces.telegram.channel import LONGEST, Telegram, split, units
from sessions_app.channels.base import Unsent
from sessions_app.channels.testing import TEXTS, ChannelContract, Stage, Taken, parcel
from sessions_app.models import Session, TelegramBot, TelegramChat
from sessions_app.telegram import client as bot_client
from sessions_app.telegram.bots import disconnect
from tests.bot_api import BotApi
from tests.conftest import Person, new_person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.3")]
KIT = uuid.UUID("00000000-0000-0000-0000-000000000001")


@pytest.fixture
def stage(api: BotApi, person: Person, chat: int) -> Stage:
    """The session of the kit's parcels, in a connected chat."""
    Session.objects.create(
        id=KIT, agent=person.agent, owner=person.user, key=f"telegram:{chat}", channel="telegram"
    )
    return Stage(
        channel=Telegram(),
        address=str(chat),
        bad=("", "-100123", "ada", "0", "1.5", "12 3", "9" * 17),
        taken=lambda: joined(api.texts(chat)),
        trouble=lambda kind: trouble(api, kind),
    )


def joined(parts: list[str]) -> list[Taken]:
    """The kit's texts, of which the server got parts."""
    found, begun = [], ""
    for part in parts:
        begun += part
        if begun in TEXTS:
            found.append(Taken(key=None, text=begun))
            begun = ""
    assert begun == ""
    return found


@contextmanager
def trouble(api: BotApi, kind: str) -> Iterator[None]:
    if kind == "hangs":
        with api.hanging("sendMessage"):
            yield
        return
    api.fail("sendMessage", 503, times=100 if kind == "refuses" else 0)
    api.is_gone = kind == "gone"
    yield
    api.troubles.clear()
    api.is_gone = False


class TestTelegram(ChannelContract):
    """The kit."""


@given(st.text(alphabet=st.sampled_from("a🕘 \n.字"), max_size=400), st.integers(8, 50))
def test_parts_fit_and_are_the_text_again(text: str, longest: int) -> None:
    parts = split(text, longest)
    assert "".join(parts) == text
    assert all(units(part) <= longest for part in parts)
    assert all(parts) or text == ""


def test_a_text_is_cut_at_paragraphs_lines_sentences_or_words() -> None:
    for place in ("\n\n", "\n", ". ", " "):
        parts = split(f"{'x' * 3_000}{place}{'y' * 3_000}")
        assert parts == ["x" * 3_000 + place, "y" * 3_000]
    assert [units(part) for part in split("🕘" * 3_000)] == [LONGEST, 2 * 3_000 - LONGEST]


def test_only_the_chats_of_the_sessions_agent_are_written_to(
    api: BotApi, stage: Stage, bot: TelegramBot, chat: int
) -> None:
    stranger = new_person("eve")
    theirs = stranger.session()
    from dataclasses import replace

    refused = failure(lambda: stage.channel.send(replace(parcel(stage), session_id=str(theirs.pk))))
    assert refused.final
    assert "not connected" in str(refused)
    disconnect(bot.pk, chat)
    assert failure(lambda: stage.channel.send(parcel(stage))).final
    assert api.sent == []


def test_a_bot_that_is_off_keeps_its_answers(api: BotApi, stage: Stage) -> None:
    TelegramBot.objects.update(enabled=False)
    refused = failure(lambda: stage.channel.send(parcel(stage)))
    assert "switched off" in str(refused)
    assert not refused.final


def test_each_refusal_is_said_and_hides_the_token(api: BotApi, stage: Stage) -> None:
    final_by_status = {400: True, 401: False, 409: False, 500: False, 403: True}
    for status, final in final_by_status.items():
        api.fail("sendMessage", status)
        refused = failure(lambda: stage.channel.send(parcel(stage)))
        assert (refused.final, refused.wait) == (final, 0), status
        assert api.token not in str(refused)
        assert ("the person has blocked the bot" in str(refused)) is (status == 403)
        assert TelegramChat.objects.filter(blocked_at=None).exists() is (status != 403)


def test_429_names_its_wait_and_an_absurd_one_is_cut(api: BotApi, stage: Stage) -> None:
    for asked, wait in ((7, 8.0), (10**9, bot_client.LONGEST_WAIT)):
        api.fail("sendMessage", 429, retry_after=asked)
        assert failure(lambda: stage.channel.send(parcel(stage))).wait == wait


def test_another_attempt_goes_on_after_the_parts_that_were_sent(api: BotApi, stage: Stage, chat: int) -> None:
    api.fail("sendMessage", 500, after=1)
    failure(lambda: stage.channel.send(parcel(stage, TEXTS[2])))
    stage.channel.send(parcel(stage, TEXTS[2], attempt=2))
    assert "".join(api.texts(chat)) == TEXTS[2]
    stage.channel.send(parcel(stage, TEXTS[2], key="msg_2"))  # another answer begins at its beginning
    assert "".join(api.texts(chat)) == 2 * TEXTS[2]


def failure(send: Callable[[], Any]) -> Unsent:
    with pytest.raises(Unsent) as caught:
        send()
    return caught.value
