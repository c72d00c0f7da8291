"""What is dangerous needs a person's plain yes to just that call; where nobody is, the home is told (rule 3.5)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent_core.llm.protocol import ModelReply
from agent_core.tool_spec import Effect, ToolSpec
from agent_core.turn.consent import LONGEST_IN_FULL, call_to_json, is_the_call, question_of
from agent_core.types import ToolCall
from sessions_app.models import ConsentQuestion, MailboxEvent, Message, OnBusy, Session
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import says
from tests.automations.turn_kinds.test_isolated import job_of
from tests.inside import Inside, call, makes
from tests.sessions_app.turns.test_receive import automation
from tests.talk import last_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5")]


def erase(*names: str) -> ModelReply:
    """One response that erases these."""
    return makes(*(call("erase", f"{number}", name=name) for number, name in enumerate(names)))


def speak(inside: Inside, session: Session, text: str) -> None:
    """An automation's turn."""
    automation(session, text, datetime.now(UTC))
    inside.run(session)


def test_the_server_itself_asks_for_what_a_yes_lets_happen(inside: Inside) -> None:
    """The model's words may ask for something else: what is answered is the question below them, which is a row."""
    session = inside.person.session()
    turn = inside.say(session, "Tidy up.", erase("disk", "tape"), says("Shall I continue with the summary?"))
    asked = ConsentQuestion.objects.get()
    message = Message.objects.filter(turn=turn, role="assistant").latest("seq")
    assert message.content == f"Shall I continue with the summary?\n\n{asked.text}"
    assert message.metadata["consent_question"] == asked.pk
    assert message.model_content == message.content.replace(
        asked.pk, "…"
    )  # no model leads a person to name it
    assert '    1. erase with {"name": "disk"}\n    2. erase with {"name": "tape"}\n' in asked.text
    assert f"#{asked.pk}" in asked.text
    assert (asked.turn_id, asked.asked_seq, asked.state) == (turn.pk, message.seq, "open")
    expected = [("erase", {"name": "disk"}), ("erase", {"name": "tape"})]
    assert [(each["name"], each["arguments"]) for each in asked.calls] == expected


def test_a_yes_permits_each_call_of_one_response_once(inside: Inside) -> None:
    session = inside.person.session()
    inside.model.answer_with(erase("early"), erase("disk", "tape"), says("I would like to."))
    inside.say(session, "\u6e05\u7406\u4e00\u4e0b")
    assert "\u53ef\u4ee5\u4f7f\u7528" in last_said(session)  # asked in the language that was spoken
    turn = inside.say(session, "\u662f", erase("disk", "tape", "early"), erase("disk"), says("Erased."))
    done = [inside.did(name) for name in ("disk", "tape", "early")]
    assert done == [1, 1, 0]
    told = inside.model.shown(3)
    assert told.startswith("## Consent")
    assert '- erase {"name": "disk"}' in told
    answered, again = ConsentQuestion.objects.order_by("asked_seq")
    assert (answered.state, answered.answered_by_id) == ("granted", turn.pk)
    assert (again.state, [each["arguments"] for each in again.calls]) == ("open", [{"name": "disk"}])


def test_a_yes_sent_before_the_question_does_not_count(inside: Inside) -> None:
    session = inside.person.session()
    inside.model.answer_with(erase("disk"), says("Tidy?"), erase("disk"), says("I must not."))
    receive(session.pk, MessageInput(content="Tidy up."))
    receive(session.pk, MessageInput(content="yes", on_busy=OnBusy.ENQUEUE))
    inside.run(session)
    assert inside.did("disk") == 0
    inside.say(session, "yes", erase("disk"), says("Erased."))
    assert inside.did("disk") == 1


def test_an_ambiguous_yes_repeats_the_question(inside: Inside) -> None:
    for number, how in enumerate(("automation", "on its way", "chat")):
        session = inside.person.session()
        inside.say(session, "Tidy up.", erase("disk"), says("Tidy?"))
        asked = ConsentQuestion.objects.get(session=session)
        if how == "automation":
            inside.model.answer_with(says("Shall I order milk?"), says("I ordered it."))
            speak(inside, session, "milk")
            inside.say(session, "yes")
        elif how == "chat":
            inside.model.answer_with(says("Shall I order milk?"), erase("disk"), says("I must not."))
            inside.say(session, "What about the milk?")
            inside.say(session, "yes")
        else:
            inside.model.answer_with(says("Shall I order milk?"), says("I ordered it."))
            receive(session.pk, MessageInput(content="What about the milk?"))
            receive(session.pk, MessageInput(content="yes", on_busy=OnBusy.ENQUEUE))
            inside.run(session)
        assert inside.did("disk") == number, how
        assert 'erase with {"name": "disk"}' in last_said(session), how
        moved = ConsentQuestion.objects.get(session=session)
        assert (moved.pk, moved.state) == (asked.pk, "open"), how
        assert moved.asked_seq > asked.asked_seq, how
        inside.say(session, "yes", erase("disk"), says("Erased."))
        assert inside.did("disk") == number + 1, how


def test_a_yes_naming_the_question_counts_despite_later_messages(inside: Inside) -> None:
    done = 0
    for answer, state in {
        "yes #{}": "granted",
        "#{} OK!": "granted",
        "\u597d #{}": "granted",
        "yes #{}?": "open",
        "no #{}": "refused",
        "yes #abcdefgh": "open",
    }.items():
        session = inside.person.session()
        inside.say(session, "Tidy up.", erase("disk"), says("Tidy?"), says("Shall I order milk?"))
        speak(inside, session, "milk")
        inside.model.answer_with(erase("disk"), says("Well."))
        asked = ConsentQuestion.objects.get(session=session)
        inside.say(session, answer.format(asked.pk))
        asked = ConsentQuestion.objects.get(pk=asked.pk)
        done += state == "granted"
        assert (inside.did("disk"), asked.state) == (done, state), answer


ERASE = ToolSpec(name="erase", description="Erases.", parameters={"type": "object"}, effect=Effect.DANGEROUS)


def test_a_question_shows_full_arguments_or_links_to_them() -> None:
    def asked(text: str) -> str:
        call = ToolCall(id="1", name="erase", arguments={"name": text})
        return question_of([call_to_json(call, ERASE)], question_id="abcd2345", like="hello")

    assert asked("x" * 1000).count("x") == 1000
    long = asked("x" * LONGEST_IN_FULL)
    assert "xx" not in long
    assert "SHA-256" in long
    assert "/api/questions/abcd2345/" in long
    assert asked("x" * LONGEST_IN_FULL + "y") != long
    assert "\\u202e" in asked("\u202etxt.exe")  # what turns a line round is spelled out
    assert asked("a\nMay I?").count("\n") == asked("a").count("\n")


def test_a_tool_that_changed_is_another_one() -> None:
    call = ToolCall(id="1", name="erase", arguments={"name": "disk", "n": 1})
    asked = call_to_json(call, ERASE)
    again = ToolCall(id="2", name="erase", arguments={"n": 1, "name": "disk"})
    assert is_the_call(asked, again, ERASE)
    changed = ToolSpec(
        name="erase", description="Erases all.", parameters=ERASE.parameters, effect=ERASE.effect
    )
    assert not is_the_call(asked, again, changed)
    assert not is_the_call(asked, ToolCall(id="2", name="erase", arguments={"name": "disk"}), ERASE)


def test_a_background_job_reports_consent_requests_to_its_home_session(inside: Inside) -> None:
    home = inside.person.session()
    job_of(inside.person, "tidy up", name="tidy", home=home)
    inside.beat(erase("disk"), says("Nothing was erased."))
    assert MailboxEvent.objects.filter(event_type="job_completed").exists()
    assert inside.did("disk") == 0
    asked = MailboxEvent.objects.get(event_type="consent_needed")
    assert asked.target_id == home.pk
    said = asked.detail or asked.summary
    assert "erase" in said
    assert "disk" in said
