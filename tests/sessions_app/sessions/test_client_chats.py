"""Chats of programs without an id: however many began alike, the right one is found at the same cost."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agent_core.llm.protocol import ModelReply
from sessions_app.models import ClientChat, Session
from sessions_app.sessions.client_chats import AcceptedMessage, accept
from sessions_app.sessions.client_places import ClientHistory
from tests.inside import Inside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("9.4")]


def send(inside: Inside, *said: str, heard: str = "") -> AcceptedMessage:
    """What the program of a chat without an id sends."""
    history = ClientHistory(protocol="openai", said=said, text=said[-1], heard=heard)
    return accept(inside.person.user, inside.person.agent, history)


def begin(inside: Inside, *answers: str) -> list[Session]:
    """Chats that all begin with "Hi", and are answered so."""
    sessions = []
    for answer in answers:
        inside.model.answer_with(ModelReply(text=answer))
        session = send(inside, "Hi").row.chat.session
        inside.run(session)
        sessions.append(session)
    return sessions


def test_a_chat_is_found_among_many_that_began_alike_at_the_same_cost(inside: Inside) -> None:
    begin(inside, "I am one.", "I am two.", "I am three.\n")
    with CaptureQueriesContext(connection) as of_few:
        send(inside, "Hi", "more", heard="I am two.")
    more = begin(inside, *(f"100% of {number}_" for number in range(8)))
    with CaptureQueriesContext(connection) as of_many:
        found = send(inside, "Hi", "more", heard="News\x00 before it.\n\n100% of 1_ \n")
    assert found.row.chat_id == more[1].pk
    assert len(of_many) <= len(of_few)


@pytest.mark.parametrize("answers", [("The same.",) * 12, ("One.", "Two.")])
def test_a_chat_that_could_be_any_of_several_is_a_copy(inside: Inside, answers: tuple[str, ...]) -> None:
    begun = begin(inside, *answers)
    found = send(inside, "Hi", "more", heard="The same.")
    assert found.row.chat_id not in {session.pk for session in begun}
    assert ClientChat.objects.count() == len(begun) + 1
