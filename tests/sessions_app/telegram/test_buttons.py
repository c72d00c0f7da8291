"""A button answers the question that it names, once, for the person of its chat: attempts to trick it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now

from interfaces.telegram.channel import Telegram
from interfaces.telegram.updates import ANSWERED, NOT_YOURS, buttons_of
from sessions_app.channels import base
from sessions_app.models import ConsentQuestion, ExecutionState, Session, TelegramBot, Turn
from sessions_app.questions.questions import answer_consent
from sessions_app.telegram.bots import disconnect
from tests.agent_core.planner.plans import RESPOND, answers, ask, plan, says
from tests.bot_api import BotApi, Sent
from tests.inside import Inside
from tests.sessions_app.deliveries.test_send import sent as sent_to
from tests.sessions_app.telegram.conftest import CHAT, take
from tests.sessions_app.turns.test_consent import erase
from tests.stories.test_main_job import due

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5")]


@pytest.fixture
def person(inside: Inside) -> Any:
    return inside.person


@pytest.fixture
def session(api: BotApi, inside: Inside, chat: int) -> Session:
    """The session of the connected chat."""
    base.register(Telegram())
    opened: Session = inside.person.session(key=f"telegram:{chat}")
    return opened


def asked_to_erase(inside: Inside, session: Session, *names: str) -> Sent:
    """The message with the question, as it was sent."""
    return shown(inside.say(session, "Tidy up.", erase(*names), says("May I?")))


def shown(turn: Turn) -> Sent:
    return Sent(id=turn.pk, chat=CHAT, text="May I?", buttons=tuple(buttons_of(turn.pk)))


def pressed(api: BotApi, bot: TelegramBot, sent: Sent, label: str, **more: Any) -> str:
    api.press(sent, label, **more)
    reply = take(bot, api.updates[-1])
    assert reply is not None
    return reply.text


def test_a_button_names_its_question_whatever_was_said_since(
    api: BotApi, bot: TelegramBot, inside: Inside, session: Session
) -> None:
    first = asked_to_erase(inside, session, "disk")
    asked_to_erase(inside, session, "tape")
    inside.model.answer_with(erase("disk"), says("Erased."))
    assert pressed(api, bot, first, "Allow erase") == "You answered: yes."
    inside.run(session)
    assert (inside.did("disk"), inside.did("tape")) == (1, 0)
    states = ConsentQuestion.objects.order_by("asked_seq").values_list("state", flat=True)
    assert list(states) == ["granted", "open"]


def test_a_question_is_answered_once(api: BotApi, bot: TelegramBot, inside: Inside, session: Session) -> None:
    sent = asked_to_erase(inside, session, "disk", "tape")
    assert [label for label, _ in sent.buttons] == ["Allow erase and 1 more", "Refuse"]
    assert pressed(api, bot, sent, "Refuse") == "You answered: no."
    assert take(bot, api.updates[-1]) is None, "the same press comes again"
    assert pressed(api, bot, sent, "Allow erase and 1 more") == ANSWERED
    assert Turn.objects.filter(content="no").count() == 1
    inside.run(session)
    assert pressed(api, bot, sent, "Allow erase and 1 more") == ANSWERED
    assert ConsentQuestion.objects.get().state == "refused"
    on_the_web = asked_to_erase(inside, session, "disk")
    answer_consent(ConsentQuestion.objects.get(state="open"), "no")
    assert pressed(api, bot, on_the_web, "Allow erase") == ANSWERED
    inside.run(session)
    assert inside.did("disk") == 0


def test_nobody_else_presses(api: BotApi, bot: TelegramBot, inside: Inside, session: Session) -> None:
    sent = asked_to_erase(inside, session, "disk")
    assert pressed(api, bot, sent, "Allow erase", by=666) == NOT_YOURS
    disconnect(bot.pk, CHAT)
    assert pressed(api, bot, sent, "Allow erase") == NOT_YOURS
    assert ConsentQuestion.objects.get().state == "open"


def test_a_forged_press_answers_no_question_of_another_agent(
    api: BotApi, bot: TelegramBot, inside: Inside, session: Session
) -> None:
    from tests.conftest import new_person

    sent = asked_to_erase(inside, session, "disk")
    theirs = new_person("eve").session()
    question = ConsentQuestion.objects.get()
    Session.objects.filter(pk=theirs.pk).update(channel="telegram")
    ConsentQuestion.objects.filter(pk=question.pk).update(session=theirs)
    assert pressed(api, bot, sent, "Allow erase") == ANSWERED
    for data in ("", "yes", "yes:", "yes:zzzzzzzz", "maybe:1", f"yes:{question.pk}:1", "yes:\x00", "y" * 64):
        assert pressed(api, bot, sent, "", data=data or " ") == ANSWERED
    assert ConsentQuestion.objects.get().state == "open"
    assert Turn.objects.filter(state="queued").count() == 0


def test_a_plans_confirmation_has_buttons_and_its_open_question_none(
    api: BotApi, bot: TelegramBot, inside: Inside, session: Session
) -> None:
    inside.planner()
    assert shown(inside.say(session, "Paint it.", plan(ask("Which colour?"), RESPOND))).buttons == ()
    ExecutionState.objects.all().delete()
    sent = shown(inside.say(session, "Paint it.", plan(ask("Shall I go on?", confirm=True), RESPOND)))
    assert [label for label, _ in sent.buttons] == ["Yes", "No"]
    inside.model.answer_with(answers("Painted."))
    assert pressed(api, bot, sent, "Yes") == "You answered: yes."
    inside.run(session)
    assert ExecutionState.objects.get().status == "completed"
    assert pressed(api, bot, sent, "No") == ANSWERED


@pytest.mark.rule("11.4")
def test_the_question_of_a_scheduled_turn_has_buttons_until_its_time_is_over(
    api: BotApi, bot: TelegramBot, inside: Inside, session: Session
) -> None:
    def asked(name: str) -> Sent:
        inside.model.answer_with(erase(name), says("I may not erase it."))
        due(session, "Tidy up.")
        inside.beat()
        sent_to(session, "telegram")
        return api.sent[-1]

    sent = asked("disk")
    assert [label for label, _ in sent.buttons] == ["Allow erase", "Refuse"]
    assert pressed(api, bot, sent, "Allow erase") == "You answered: yes."
    inside.run(session, says("Erased."))
    assert pressed(api, bot, sent, "Allow erase") == ANSWERED
    assert pressed(api, bot, asked("tape"), "Refuse") == "You answered: no."
    inside.run(session)
    late = asked("tape")
    ConsentQuestion.objects.filter(state="open").update(expires_at=Now())
    assert pressed(api, bot, late, "Allow erase") == ANSWERED
    assert (inside.did("disk"), inside.did("tape")) == (1, 0)


def replying_to(number: int) -> dict[str, Any]:
    chat = {"id": CHAT, "type": "private", "first_name": "Ada"}
    return {"reply_to_message": {"message_id": number, "date": 1, "chat": chat, "text": "Tidy up?"}}


def test_a_typed_yes_counts_if_telegram_got_it_after_the_question(
    api: BotApi, bot: TelegramBot, inside: Inside, session: Session
) -> None:
    def deliver() -> Sent:
        sent_to(session, "telegram")
        return next(each for each in reversed(api.sent) if 'erase with {"name": "disk"}' in each.text)

    def say(text: str, **more: Any) -> None:
        inside.model.replies = [erase("disk"), says("I would like to.")]
        take(bot, api.say(CHAT, text, **more))
        inside.run(session)

    say("Tidy up.")
    early = api.say(CHAT, "ok")["message"]["message_id"]  # typed while the question was on its way
    hidden = {"type": "hidden_user", "date": 1, "sender_user_name": "Eve"}
    tricks: tuple[Callable[[Sent], dict[str, Any]], ...] = (
        lambda _asked: {"message_id": early},
        lambda asked: {"message_id": asked.id},
        lambda asked: {"message_id": asked.id - 1},
        lambda _asked: {"is_from_offline": True},  # a message that was scheduled before
        lambda _asked: {"forward_origin": hidden},
        lambda _asked: replying_to(early),
        lambda _asked: {"external_reply": {"origin": hidden}},
    )
    for trick in tricks:
        more = trick(deliver())
        say("ok", **more)
        assert inside.did("disk") == 0, more
        assert ConsentQuestion.objects.get().state == "open"
    say("ok", **replying_to(deliver().id))
    assert inside.did("disk") == 1
