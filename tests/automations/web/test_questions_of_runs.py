"""Questions of runs on the pages: answered on `/upcoming/`, and marked in the conversation once they are closed."""

from typing import Any

import pytest
from django.urls import reverse
from django.utils.html import escape

from agent_core.exceptions import ModelRefused
from automations.appointments.notices import attention
from automations.jobs.edit import delete_job
from interfaces.web.transcript import SETTLED, newest, settled
from sessions_app.connections.usable import CURES
from sessions_app.exceptions import NotFound, NotWaiting
from sessions_app.models import ClosedBecause, ConsentQuestion, ConsentState, Event, Turn
from sessions_app.questions.questions import answer_consent
from tests.agent_core.planner.plans import says
from tests.automations.jobs.made import new
from tests.automations.web.test_addresses import signed_in
from tests.conftest import new_person
from tests.inside import Inside
from tests.sessions_app.turns.test_unattended import asked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.4")]


def marks(inside: Inside, session: Any) -> list[str]:
    """Of each message that asks, what it says of its question; an open page is told the same."""
    entries = [each for each in newest(inside.person.user, session.pk).entries if each.asked]
    told = settled(inside.person.user, session.pk, [each.id for each in entries])
    assert told == {each.id: each.settled for each in entries if each.settled}
    return [each.settled for each in entries]


def test_a_closed_question_says_so_in_the_conversation(inside: Inside) -> None:
    session = inside.person.session()
    asked(inside, session)
    assert marks(inside, session) == [""]
    asked(inside, session)
    newer = f"{SETTLED[ConsentState.CLOSED]}: {ClosedBecause.NEWER.label}"
    assert marks(inside, session) == [newer, ""]
    inside.say(session, f"no #{ConsentQuestion.objects.latest('asked_at').pk}", says("Then not."))
    assert marks(inside, session) == [newer, SETTLED[ConsentState.REFUSED]]
    with pytest.raises(NotFound):
        settled(new_person("bob").user, session.pk, [1])


def test_a_question_about_an_appointment_that_is_deleted_closes_by_itself(inside: Inside) -> None:
    """It leaves the lists, the open windows and the counts, and an answer to it says why."""
    session = inside.person.session()
    bins, other = new(session, name="Bins"), inside.person.session()
    calls = [
        {"id": "1", "name": "cron", "arguments": {"action": "remove", "job_id": bins.pk}, "version": "1"}
    ]
    about: dict[str, Any] = {"session": other, "turn_id": 1, "text": "May I?", "asked_seq": 1, "calls": calls}
    mine = ConsentQuestion.objects.create(pk="mine", **about)
    theirs = ConsentQuestion.objects.create(pk="theirs", **about | {"session": new_person("eve").session()})
    kept = ConsentQuestion.objects.create(pk="kept", **about | {"calls": [calls[0] | {"arguments": {}}]})
    assert len([each for each in attention(inside.person.user) if each.question]) == 2
    delete_job(bins.pk)
    found = ConsentQuestion.objects.in_bulk()
    assert [found[each.pk].state for each in (mine, theirs, kept)] == ["closed", "open", "open"]
    assert found["mine"].closed_because == ClosedBecause.GONE
    assert [each.question for each in attention(inside.person.user) if each.question] == ["kept"]
    [told] = Event.objects.filter(content__status="question_closed")
    assert (told.session_id, told.content["question"]) == (other.pk, "mine")
    with pytest.raises(NotWaiting, match=ClosedBecause.GONE.label):
        answer_consent(found["mine"], "yes")


def test_a_question_is_answered_on_the_page_of_what_comes(inside: Inside) -> None:
    session, client = inside.person.session(), signed_in(inside.person)
    question = asked(inside, session)
    [notice] = [each for each in client.get("/upcoming/").context["attention"] if each.question]
    assert (notice.question, notice.expires_at) == (question.pk, question.expires_at)
    address = reverse("answer-consent", args=[question.pk])
    shown = client.get("/upcoming/").content.decode()
    assert (address in shown, f"#{question.pk}" in shown) == (True, False)
    assert notice.calls[0]["arguments"] == [("name", '"disk"')]
    answered: Any = client.post(address, {"answer": "yes", "week": ""}, headers={"HX-Request": "true"})
    assert 'role="status"' in answered.content.decode()
    outcome = reverse("outcome", args=[Turn.objects.latest("pk").pk])
    assert outcome in answered.content.decode()
    assert client.get(outcome).status_code == 204, "it is asked for again"
    inside.model.answer_with(says("It is gone."))
    inside.run(session)
    assert inside.did("disk") == 1
    over: Any = client.get(outcome)
    assert ("It is gone." in over.content.decode(), outcome in over.content.decode()) == (True, False)
    assert over.headers["HX-Trigger"] == "list-changed", "which counts the questions"


@pytest.mark.rule("11.5")
def test_what_failed_at_the_model_says_what_to_do_in_the_chat_and_at_the_model(inside: Inside) -> None:
    session, client = inside.person.session(), signed_in(inside.person)
    turn = inside.say(session, "hello", ModelRefused("no", code="model_auth"))
    cure = escape(CURES["model_auth"])
    chat = client.get(reverse("conversation", args=[session.pk])).content.decode()
    assert (cure in chat, reverse("again", args=[session.pk, turn.pk]) in chat) == (True, True)
    model = reverse("agent", args=[inside.person.agent.name]) + "?check=model"
    assert cure in client.get(model).content.decode()
    inside.say(session, "and now?", says("It is well."))
    assert cure not in client.get(model).content.decode()
