"""What is dangerous needs a person's plain yes to just that call, and ways round it (rule 3.5)."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ModelRefused
from agent_core.llm.protocol import ModelReply
from agent_core.tool_spec import ToolSpec
from agent_core.tools import Effect, Tool
from agent_core.turn.consent import LONGEST_IN_FULL, call_to_json, is_the_call, question_of
from agent_core.types import ToolCall
from sessions_app.agents.edit import update_agent
from sessions_app.exceptions import QuestionTaken
from sessions_app.hooks.edit import update_hook
from sessions_app.models import (
    ConsentQuestion,
    Delivery,
    DeliveryState,
    ExecutionState,
    Message,
    OnBusy,
    Session,
    Turn,
    TurnInput,
)
from sessions_app.questions.questions import answer_consent, answer_question
from sessions_app.queue.receive import MessageInput, receive
from tests.agent_core.planner.plans import RESPOND, plan, says, tool
from tests.inside import Inside, call, listening, makes
from tests.sessions_app.turns.test_consent_forms import bridge
from tests.sessions_app.turns.test_receive import automation
from tests.talk import fresh, last_said

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("3.5")]


def erase(*names: str) -> ModelReply:
    """One response that erases these."""
    return makes(*(call("erase", f"{number}", name=name) for number, name in enumerate(names)))


def speak(inside: Inside, session: Session, text: str) -> None:
    """An automation's turn."""
    automation(session, text, datetime.now(UTC))
    inside.run(session)


def test_the_server_itself_asks_for_what_a_yes_lets_happen(inside: Inside, session: Session) -> None:
    """The model's words may ask for something else: what is answered is the question below them, which is a row."""
    turn = inside.say(session, "Tidy up.", erase("disk", "tape"), says("Shall I continue with the summary?"))
    asked = ConsentQuestion.objects.get()
    message = Message.objects.filter(turn=turn, role="assistant").latest("seq")
    assert message.content == f"Shall I continue with the summary?\n\n{asked.text}"
    assert message.metadata["consent_question"] == asked.pk
    # no model leads a person to name it
    assert message.model_content == message.content.replace(asked.pk, "…")
    assert '    1. erase with {"name": "disk"}\n    2. erase with {"name": "tape"}\n' in asked.text
    assert f"#{asked.pk}" in asked.text
    assert (asked.turn_id, asked.asked_seq, asked.state) == (turn.pk, message.seq, "open")
    expected = [("erase", {"name": "disk"}), ("erase", {"name": "tape"})]
    assert [(each["name"], each["arguments"]) for each in asked.calls] == expected


def test_a_yes_permits_each_call_of_one_response_once(inside: Inside, session: Session) -> None:
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


HIDDEN = "\u202e\u3164\uffa0\u2800\ufe0f\U000e0101\u034f\u180b"  # what turns a line round, or is not seen
SPEC = ToolSpec(name="erase", description="Erases.", parameters={"type": "object"}, effect=Effect.DANGEROUS)


def test_a_question_shows_full_arguments_or_links_to_them() -> None:
    def asked(text: str) -> str:
        call = ToolCall(id="1", name="erase", arguments={"name": text})
        return question_of([call_to_json(call, SPEC)], question_id="abcd2345", like="hello")

    assert asked("x" * 1000).count("x") == 1000
    long = asked("x" * LONGEST_IN_FULL)
    assert "xx" not in long
    assert "SHA-256" in long
    assert "/api/questions/abcd2345/" in long
    assert asked("x" * LONGEST_IN_FULL + "y") != long
    for hidden in HIDDEN:
        assert hidden not in asked(f"\U0001f600{hidden}.exe"), ascii(hidden)
        assert "\\u" in asked(f"\U0001f600{hidden}.exe"), ascii(hidden)
    assert '{"name": "é 漢字 한글 \U0001f600"}' in asked("é 漢字 한글 \U0001f600")
    assert asked("a\nMay I?").count("\n") == asked("a").count("\n")


def test_a_tool_that_changed_is_another_one() -> None:
    call = ToolCall(id="1", name="erase", arguments={"name": "disk", "n": 1})
    asked = call_to_json(call, SPEC)
    again = ToolCall(id="2", name="erase", arguments={"n": 1, "name": "disk"})
    assert is_the_call(asked, again, SPEC)
    assert not is_the_call(asked, again, replace(SPEC, description="Erases all."))
    assert not is_the_call(asked, ToolCall(id="2", name="erase", arguments={"name": "disk"}), SPEC)


CHAT = {"channel": "telegram", "chat_id": "42", "meta": {}}


ERASE = makes(call("erase", name="disk"))


def asked(inside: Inside, session: Session, **more: Any) -> ConsentQuestion:
    """A chat's question for the disk."""
    inside.say(session, "Tidy up.", ERASE, says("I would like to."), **more)
    return ConsentQuestion.objects.latest("asked_seq")


def asked_in_plan(inside: Inside) -> Session:
    """The session in which a plan asks for the disk."""
    inside.planner()
    session: Session = inside.person.session()
    inside.say(session, "Tidy up.", plan(tool("erase", name="disk"), RESPOND))
    return session


def test_a_yes_sent_to_one_question_naming_another_grants_neither(inside: Inside) -> None:
    for word in ("yes", "好"):
        session = inside.person.session()
        disk = asked(inside, session)
        inside.say(session, "And the tape.", makes(call("erase", name="tape")), says("That, too."))
        tape = ConsentQuestion.objects.latest("asked_seq")
        answer_consent(disk, f"{word} #{tape.pk}")
        both = makes(call("erase", name="disk"), call("erase", "2", name="tape"))
        inside.run(session, both, says("No."))
        assert (inside.did("disk"), inside.did("tape")) == (0, 0), word


@pytest.mark.parametrize("named", [True, False])
def test_a_yes_naming_another_question_runs_no_plan_step(inside: Inside, *, named: bool) -> None:
    inside.planner()
    session = inside.person.session()
    for name in ("disk", "tape"):
        inside.model.answer_with(plan(tool("erase", name=name), RESPOND))
        inside.say(session, f"Please erase the {name} now.", on_busy=OnBusy.ENQUEUE)
        if name == "disk":  # a second plan: what waits is not what the next message is about
            ExecutionState.objects.update(asked_seq=10_000)
    ExecutionState.objects.filter(asked_seq=10_000).update(asked_seq=2)
    disk, tape = ConsentQuestion.objects.order_by("asked_seq")
    execution = ExecutionState.objects.get(pk=disk.execution)
    answer_question(execution, f"yes #{tape.pk}", question=disk.pk if named else "")
    inside.run(session, plan(RESPOND), says("Which one?"))
    assert (inside.did("disk"), inside.did("tape")) == (0, 0)


def test_an_unread_message_after_the_yes_revokes_it(inside: Inside) -> None:
    listen, disk = call("listen", "l"), call("erase", name="disk")
    for on_busy, replies in (
        (OnBusy.INJECT, [makes(listen, disk)]),
        (OnBusy.ENQUEUE, [makes(listen, disk)]),
        (OnBusy.INJECT, [makes(listen), makes(disk)]),
    ):
        session = inside.person.session()
        asked(inside, session)
        wait = partial(receive, session.pk, MessageInput(content="No, wait!", on_busy=on_busy))
        with listening(wait):
            inside.say(session, "yes", *replies, says("I must ask again."), says("Well."))
        inside.model.replies.clear()
        assert inside.did("disk") == 0, (on_busy, len(replies))
        assert ConsentQuestion.objects.filter(session=session, state="open").exists()


def test_a_repeated_yes_revokes_nothing_and_runs_the_call_once(inside: Inside, session: Session) -> None:
    asked(inside, session)
    for _ in range(2):
        receive(session.pk, MessageInput(content="yes", on_busy=OnBusy.ENQUEUE))
    inside.run(session, ERASE, says("Erased."), ERASE, says("Again?"))
    assert inside.did("disk") == 1


def test_who_stops_the_turn_has_taken_the_yes_back(inside: Inside, session: Session) -> None:
    asked(inside, session)
    erase = tools.get("erase")

    def stopped(_arguments: Any) -> Effect:
        Turn.objects.request_cancel(Turn.objects.latest("pk").pk)
        return Effect.DANGEROUS

    tools.unregister("erase")
    tools.register(
        Tool(name="erase", description="erase", parameters=erase.parameters, run=erase.run, effect_of=stopped)
    )
    try:
        inside.say(session, "yes", ERASE, says("Erased."))
    finally:
        tools.unregister("erase")
        tools.register(erase)
    assert inside.did("disk") == 0


@pytest.mark.parametrize("who", ["system", "automation"])
def test_others_messages_make_a_yes_ambiguous_even_after_failed_turns(inside: Inside, who: str) -> None:
    session = inside.person.session()
    question = asked(inside, session)
    inside.model.answer_with(ModelRefused("no quota"))
    if who == "system":
        via = {"hook": "h", "name": "CI", "sender": "", "as_person": False}
        about = TurnInput(message={"via": via})
        receive(session.pk, MessageInput(content="Build 7 is red. Roll it back?", about=about))
    else:
        automation(session, "Shall I order milk?", datetime.now(UTC))
    inside.run(session)
    assert Turn.objects.filter(session=session).latest("pk").state == "failed"
    inside.say(session, "yes", ERASE, says("I must not."))
    assert inside.did("disk") == 0
    assert (fresh(question).state, question.asked_seq) == ("open", session.last_seq)


def test_a_yes_counts_only_where_the_question_was_delivered(inside: Inside, session: Session) -> None:
    asked(inside, session, route=CHAT)
    assert Delivery.objects.get().state == DeliveryState.PENDING
    inside.say(session, "yes", ERASE, says("I must not."), route=CHAT)
    assert inside.did("disk") == 0
    assert 'erase with {"name": "disk"}' in last_said(session)
    inside.say(session, "yes", ERASE, says("Erased."))  # a window shows what is said, wherever it is sent
    assert inside.did("disk") == 1
    asked(inside, session, route=CHAT)
    Delivery.objects.update(state=DeliveryState.SENT, ended_at=datetime.now(UTC))
    inside.say(session, "yes", ERASE, says("Erased."), route=CHAT)
    assert inside.did("disk") == 2


def test_a_call_reusing_another_calls_id_is_not_a_repeat(inside: Inside, session: Session) -> None:
    """A model's ids may be those that the server would give."""
    asked(inside, session)
    with listening(lambda: "nothing"):
        inside.model.answer_with(
            makes(call("listen", "x"), call("erase", "call-2-1-x", name="disk")),
            makes(call("erase", "x", name="disk")),
            says("Erased."),
        )
        inside.say(session, "yes")
    assert inside.did("disk") == 1


def test_a_repeated_request_does_not_release_a_taken_question(inside: Inside) -> None:
    session = asked_in_plan(inside)
    execution = ExecutionState.objects.get()
    answer_question(execution, "what for?", "key")
    inside.run(session, plan(tool("erase", name="disk"), RESPOND))
    taken = answer_question(fresh(execution), "no")
    answer_question(execution, "what for?", "key")
    with pytest.raises(QuestionTaken):
        answer_question(execution, "yes")
    assert fresh(execution).turn_id == taken.pk


def test_a_demoted_bridges_yes_does_not_approve_a_plan(inside: Inside) -> None:
    session = asked_in_plan(inside)
    hook = bridge(session)
    via = {"hook": hook.pk, "name": "bridge", "sender": "", "as_person": True}
    question = ConsentQuestion.objects.get()
    receive(session.pk, MessageInput(content=f"yes #{question.pk}", about=TurnInput(message={"via": via})))
    update_hook(hook.pk, {"as_person": False})
    inside.run(session, plan(RESPOND), says("Noted."))
    assert (inside.did("disk"), fresh(question).state) == (0, "open")
    assert ExecutionState.objects.get(pk=question.execution).status == "waiting_confirmation"


def test_a_thread_yes_is_ambiguous_after_its_own_automation_spoke(inside: Inside) -> None:
    update_agent(inside.person.agent.pk, {"unified_session": True})
    thread, primary = inside.person.session(), Session.objects.get(key="unified:default")
    inside.model.answer_with(ERASE, says("I would like to."))
    receive(thread.pk, MessageInput(content="Tidy up."))
    inside.run(primary)
    inside.model.answer_with(says("Shall I order milk?"))
    automation(thread, "milk", datetime.now(UTC))
    inside.run(thread)
    for done in (0, 1):
        inside.model.answer_with(ERASE, says("Well."))
        receive(thread.pk, MessageInput(content="yes"))
        inside.run(primary)
        assert inside.did("disk") == done


def test_a_thread_yes_is_ambiguous_after_showing_the_primary_session(inside: Inside) -> None:
    thread, primary = inside.person.session(), Session.objects.get(key="unified:default")
    asked(inside, thread)
    update_agent(thread.agent_id, {"unified_session": True})
    inside.model.answer_with(says("Shall I order milk?"))
    receive(thread.pk, MessageInput(content="And the milk?"))
    inside.run(primary)
    update_agent(thread.agent_id, {"unified_session": False})
    for done in (0, 1):
        inside.say(thread, "yes", ERASE, says("Well."))
        assert inside.did("disk") == done


def test_consent_is_not_asked_for_a_tool_removed_meanwhile(inside: Inside, session: Session) -> None:
    """The turn is handed back after the call was refused, and goes on when the tool is gone."""
    erase = tools.get("erase")

    def remove() -> None:
        inside.handles[-1].control.stop()
        tools.unregister("erase")

    inside.model.answer_with(makes(call("erase", name="disk"), call("listen", "l")), says("It is gone."))
    try:
        with listening(remove):
            assert inside.say(session, "Tidy up.").attempt == 2
    finally:
        tools.register(erase)
    assert last_said(session) == "It is gone."
    assert not ConsentQuestion.objects.exists()
