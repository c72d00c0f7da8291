"""How an answer ended is stored and shown, in people's words and in programs' own shapes."""

from itertools import product
from typing import Any

import pytest

from agent_core.llm.protocol import ModelReply
from agent_core.types import EMPTY, NOTES, Ended
from interfaces.web.transcript import ENDED, newest
from sessions_app.deliveries.send import _parcel
from sessions_app.models import Delivery, Message, Session, Turn
from tests.deletion import caller
from tests.inside import Inside, call

pytestmark = pytest.mark.rule("3.6")


def shown(inside: Inside, turn: Turn) -> dict[str, Any]:
    found: dict[str, Any] = caller(inside.person).get(f"/api/turns/{turn.pk}/").json()
    return found


def test_an_answer_that_is_not_whole_says_so(inside: Inside) -> None:
    for ended, text in product((Ended.LENGTH, Ended.FILTER, Ended.REFUSAL), ("Half an ans", "")):
        session = inside.person.session()
        turn = inside.say(session, "hello", ModelReply(text=text, ended_by=ended))
        expected = text or EMPTY[ended]
        assert (turn.state, turn.ended_by) == ("succeeded", ended)
        message = Message.objects.filter(turn=turn, role="assistant").get()
        assert (message.content, message.metadata["ended_by"]) == (expected, ended)
        api = shown(inside, turn)
        assert (api["reply"], api["ended_by"]) == (expected, ended)
        [entry] = [each for each in newest(inside.person.user, session.pk).entries if each.who == "agent"]
        assert ENDED[ended] in entry.chips


def test_a_whole_answer_has_no_note(inside: Inside, session: Session) -> None:
    turn = inside.say(session, "hello")
    assert (turn.ended_by, shown(inside, turn)["ended_by"]) == ("stop", "stop")
    assert "ended_by" not in Message.objects.filter(turn=turn, role="assistant").get().metadata
    failed = inside.say(session, "again", RuntimeError("broken"))
    assert (failed.ended_by, shown(inside, failed)["ended_by"]) == ("", None)


@pytest.mark.rule("9.3")
def test_a_delivery_says_it_below_the_text_and_in_its_own_field(inside: Inside) -> None:
    session = inside.person.session(channel="webhook", address="https://8.8.8.8/hook")
    inside.say(session, "hello", ModelReply(text="Half", ended_by=Ended.LENGTH))
    made = _parcel(Delivery.objects.get())
    assert made is not None
    assert (made.text, made.about["ended_by"]) == ("Half", "length")
    assert made.shown_text == f"Half\n\n({NOTES[Ended.LENGTH]})"


def test_a_planned_answer_says_so_and_a_form_that_is_not_whole_is_not_used(planner: Inside) -> None:
    form = call("make_plan", steps=[{"type": "respond", "instruction": "x"}])
    session = planner.person.session()
    planner.model.answer_with(
        ModelReply(text="", calls=(form,), ended_by=Ended.LENGTH),
        ModelReply(text="", calls=(form,)),
        ModelReply(text="Half", ended_by=Ended.FILTER),
    )
    turn = planner.say(session, "hello")
    assert NOTES[Ended.LENGTH] in planner.model.shown(1)
    assert (turn.state, turn.ended_by) == ("succeeded", "filter")
    planner.model.answer_with(ModelReply(text="", calls=(form,)), ModelReply(text="", ended_by=Ended.REFUSAL))
    turn = planner.say(session, "again please")
    assert (turn.state, turn.error_code, turn.error) == ("failed", "no_answer", EMPTY[Ended.REFUSAL])
    assert session.executions.latest("created_at").status == "failed", "nothing is left at work"
