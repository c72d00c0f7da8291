"""A token that is limited to an agent or a session talks there, and shows nothing else."""

from dataclasses import replace
from typing import Any

import openai
import pytest

from sessions_app.models import Message, Session, Turn
from tests.openai_api.conftest import Chatter, turns
from tests.tokens import new_token

pytestmark = [pytest.mark.processes, pytest.mark.rule("10.6")]


def limited_to(session: Session, ada: Chatter) -> Chatter:
    """Ada with a token of this session alone."""
    token = new_token(ada.user, "talk", session=session)
    return replace(ada, token=token, client=ada.client.with_options(api_key=token, max_retries=0))


def session_of(chatter: Chatter, **fields: Any) -> Session:
    made = chatter.api("POST", "sessions/", json={"agent": "demo"} | fields)
    return Session.objects.get(pk=made["id"])


def test_all_chats_of_a_token_of_a_session_are_that_session(ada: Chatter) -> None:
    session = session_of(ada, title="Home")
    ada.api("POST", "agents/", json={"name": "other"})
    limited = limited_to(session, ada)
    assert [each.id for each in limited.client.models.list()] == ["demo"]
    with pytest.raises(openai.NotFoundError):
        limited.client.models.retrieve("other")
    assert limited.hear("[[reply:One.]]first", chat="c1") == "One."
    assert limited.hear("[[reply:One.]]first", "[[reply:Two.]]second", chat="c1", stream=False) == "Two."
    assert limited.hear("[[reply:Three.]]third") == "Three."
    assert limited.hear("[[reply:Three.]]third", "[[reply:Four.]]fourth") == "Four."
    assert limited.said(session) == [
        "[[reply:One.]]first", "[[reply:Two.]]second", "[[reply:Three.]]third", "[[reply:Four.]]fourth",
    ]  # fmt: skip
    assert set(Turn.objects.values_list("session", flat=True)) == {session.pk}
    asked = '### Task:\nName it.\n### Output:\nJSON format: {"title": ""}\n<chat_history>\nUSER: x\n</chat_history>'
    assert limited.hear(asked, chat="c1") == '{"title": "Home"}'


def test_a_chat_that_is_behind_the_session_is_refused_and_begins_no_branch(ada: Chatter) -> None:
    limited = limited_to(session_of(ada), ada)
    limited.say("a", chat="c")
    limited.say("a", "b", chat="c")
    before = turns(), Session.objects.count()
    for history in (["a", "other"], ["a", "b"]):
        with pytest.raises(openai.ConflictError, match="start a new chat") as refused:
            limited.say(*history, chat="c")
        assert refused.value.code == "history_diverged"
    assert (turns(), Session.objects.count()) == before
    limited.say("anew", chat="c2")
    limited.say("never said", "x", chat="c3")  # nothing of the session, so it goes on as a new chat does
    assert limited.said(Session.objects.get(client_chat__isnull=False)) == ["a", "b", "anew", "x"]


def test_news_come_from_the_session_alone(ada: Chatter) -> None:
    ada.say("a", chat="c")
    ada.say("a", "b", chat="c")
    ada.say("a", "c", chat="c")  # a branch: both are sessions of one chat
    first, branch = ada.sessions()
    news = {first.pk: "News of the first.", branch.pk: "News of the branch."}
    for session in (first, branch):
        tell(session, news[session.pk])
    limited = limited_to(branch, ada)
    heard = limited.hear("hello", chat="c9")
    assert "News of the branch." in heard
    assert "News of the first." not in heard


def test_a_session_with_a_past_has_no_news(ada: Chatter) -> None:
    session = session_of(ada)
    said = {"json": {"content": "hi"}, "headers": {"Prefer": "wait=30"}}
    ada.api("POST", f"sessions/{session.pk}/messages/", **said)
    tell(session, "Old news.")
    limited = limited_to(session, ada)
    assert "Old news." not in limited.hear("hello")
    tell(session, "New news.")
    assert "New news." in limited.hear("and now?")


def tell(session: Session, text: str) -> None:
    """What an automation says in it."""
    row = Session.objects.get(pk=session.pk)
    source = {"kind": "automation", "id": "x", "name": "daily", "run_id": "x:1"}
    Message.objects.create(
        session=row, seq=row.last_seq + 1, role="assistant", content=text, metadata={"source": source}
    )
    Session.objects.filter(pk=session.pk).update(last_seq=row.last_seq + 1)
