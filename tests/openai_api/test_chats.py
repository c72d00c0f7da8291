"""Chats of programs that resend their history: each is one session, and nothing is mixed or done twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from agent_core.llm.protocol import ModelReply
from sessions_app.models import ClientChat, Turn
from tests.openai_api.conftest import Chatter, turns

pytestmark = [pytest.mark.processes, pytest.mark.rule("9.4")]


def test_a_chat_goes_on_in_its_session(ada: Chatter) -> None:
    assert ada.hear("[[reply:One.]]first", chat="c1") == "One."
    assert ada.hear("[[reply:One.]]first", "[[reply:Two.]]second", chat="c1") == "Two."
    assert ada.hear("[[reply:Else.]]first", chat="c2") == "Else."
    one, two = ada.sessions()
    assert ada.said(one) == ["[[reply:One.]]first", "[[reply:Two.]]second"]
    assert ada.said(two) == ["[[reply:Else.]]first"]


@pytest.mark.parametrize("where", ["metadata", "header", "none"])
def test_a_chat_without_the_usual_header_goes_on_too(ada: Chatter, where: str) -> None:
    more: dict[str, Any] = {
        "metadata": {"metadata": {"chat_id": "m"}},
        "header": {"extra_headers": {"X-Conversation-Id": "m"}},
        "none": {},
    }[where]
    ada.say("hello", **more)
    ada.say("hello", "and more", **more)
    [session] = ada.sessions()
    assert ada.said(session) == ["hello", "and more"]


def test_sources_of_a_chat_id_do_not_meet(ada: Chatter) -> None:
    ada.say("hello", chat="x")
    ada.say("hello", metadata={"chat_id": "x"})
    ada.say("hello", metadata={"session_id": "x"})
    ada.say("hello", extra_headers={"X-Conversation-Id": "x"})
    assert len(ada.sessions()) == 4


def test_two_users_with_one_chat_id_never_meet(ada: Chatter, bob: Chatter) -> None:
    ada.say("mine", chat="c")
    with pytest.raises(openai.ConflictError) as refused:
        bob.say("mine", "and now?", chat="c")
    assert refused.value.code == "history_diverged"
    bob.say("mine", chat="c")
    assert len({session.owner_id for session in ada.sessions()}) == 2


def test_concurrent_first_requests_of_a_chat_make_one_session(ada: Chatter) -> None:
    with ThreadPoolExecutor(4) as pool:
        asked = "[[hold:all]][[reply:Once.]]now"
        streams = list(pool.map(lambda _: ada.say(asked, chat="c", stream=True), range(4)))
    ada.site.model.release("all")
    for stream in streams:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Once."
    assert turns() == ClientChat.objects.count() == 1


@pytest.mark.parametrize("first", ["new", "{{LIBRECHAT_BODY_CONVERSATIONID}}", ""])
def test_a_chat_that_gets_its_id_later_goes_on(ada: Chatter, first: str) -> None:
    ada.site.model.answer_with(*(ModelReply(text=text) for text in ("I am one.", "I am two.")))
    ada.say("Hi", chat=first)
    ada.say("Hi", chat=first)
    ada.say("Hi", "more", chat="c7", heard="I am two.")
    ada.say("Hi", "more", "and more", chat="c7")
    assert [ada.said(session) for session in ada.sessions()] == [["Hi"], ["Hi", "more", "and more"]]


def test_an_edited_message_begins_a_branch(ada: Chatter) -> None:
    ada.say("[[reply:1]]a", chat="c")
    ada.say("[[reply:1]]a", "[[reply:2]]b", chat="c")
    ada.say("[[reply:1]]a", "[[reply:2]]b", "[[reply:3]]c", chat="c")
    ada.say("[[reply:1]]a", "[[reply:4]]other", chat="c")
    first, branch = ada.sessions()
    assert ada.said(first) == ["[[reply:1]]a", "[[reply:2]]b", "[[reply:3]]c"]
    assert ada.said(branch) == ["[[reply:1]]a", "[[reply:4]]other"]
    assert list(branch.messages.order_by("seq").values_list("content", flat=True))[1] == "1"
    ada.say("[[reply:1]]a", "[[reply:4]]other", "[[reply:5]]more", chat="c")
    assert ada.said(branch)[-1] == "[[reply:5]]more"
    asked = ada.site.model.requests[-1].body["messages"]
    assert "[[reply:2]]b" not in str(asked)


def test_an_answer_that_was_delivered_is_given_again_in_a_branch(ada: Chatter) -> None:
    ada.say("a", chat="c")
    ada.say("a", "b", chat="c")
    ada.say("a", "b", chat="c")
    assert [ada.said(session) for session in ada.sessions()] == [["a", "b"], ["a", "b"]]


def test_a_history_that_nobody_sent_is_refused(ada: Chatter) -> None:
    ada.say("a", chat="c")
    before = turns()
    with pytest.raises(openai.ConflictError) as refused:
        ada.say("never said", "b", chat="c")
    assert refused.value.code == "history_diverged"
    assert turns() == before


def test_an_idempotency_key_stands_for_one_turn(ada: Chatter) -> None:
    key = {"Idempotency-Key": "k1"}
    assert ada.hear("[[reply:x]]hello", extra_headers=key) == "x"
    assert ada.hear("[[reply:x]]hello", extra_headers=key) == "x"
    assert turns() == 1
    with pytest.raises(openai.UnprocessableEntityError):
        ada.say("something else", extra_headers=key)


def test_unified_mode_refuses_to_branch(ada: Chatter) -> None:
    with ada.site.client(ada.token) as http:
        assert http.patch("/api/agents/demo/", json={"unified_session": True}).status_code == 200
    ada.say("a", chat="c")
    ada.say("a", "b", chat="c")
    with pytest.raises(openai.ConflictError):
        ada.say("a", "other", chat="c")
    assert Turn.objects.filter(session__key="unified:default").count() == 2
