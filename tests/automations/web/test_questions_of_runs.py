"""Questions of runs on the pages: answered on `/upcoming/`, and marked in the conversation once they are closed."""

from typing import Any

import pytest
from django.urls import reverse

from interfaces.web.transcript import SETTLED, newest, settled
from sessions_app.models import ClosedBecause, ConsentQuestion, ConsentState, Turn
from tests.agent_core.planner.plans import says
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
    assert settled(new_person(str(len(Turn.objects.all()))).user, session.pk, told) == {}
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
    inside.model.answer_with(says("It is gone."))
    inside.run(session)
    assert inside.did("disk") == 1
