"""Chats of programs that resend their history: each is one session, and nothing is mixed or done twice."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from agent_core.llm.protocol import ModelReply
from interfaces.openai_api.requests import LONGEST_TOOL_TEXT
from sessions_app.models import ClientChat, Session, Turn
from sessions_app.queue.receive import LONGEST_MESSAGE
from tests.openai_api.conftest import Chatter, turns

pytestmark = [pytest.mark.processes, pytest.mark.rule("9.4")]


def test_a_chat_goes_on_in_its_session(ada: Chatter) -> None:
    assert ada.hear("[[reply:One.]]first", chat="c1") == "One."
    assert ada.hear("[[reply:One.]]first", "[[reply:Two.]]second", chat="c1") == "Two."
    assert ada.hear("[[reply:Else.]]first", chat="c2") == "Else."
    one, two = ada.sessions()
    assert ada.said(one) == ["[[reply:One.]]first", "[[reply:Two.]]second"]
    assert ada.said(two) == ["[[reply:Else.]]first"]


@pytest.mark.parametrize("where", ["metadata", pytest.param("header", marks=pytest.mark.full), "none"])
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
    bob.say("mine", "and now?", chat="c")
    bob.say("mine", chat="c")
    assert [session.owner_id for session in ada.sessions()] == [ada.user.pk, bob.user.pk, bob.user.pk]


def test_concurrent_first_requests_of_a_chat_make_one_session(ada: Chatter) -> None:
    with ThreadPoolExecutor(4) as pool:
        asked = "[[hold:all]][[reply:Once.]]now"
        streams = list(pool.map(lambda _: ada.say(asked, chat="c", stream=True), range(4)))
    ada.site.model.release("all")
    for stream in streams:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Once."
    assert turns() == ClientChat.objects.count() == 1


@pytest.mark.parametrize(
    "first", ["new", "", pytest.param("{{LIBRECHAT_BODY_CONVERSATIONID}}", marks=pytest.mark.full)]
)
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


def of_person(*texts: str) -> list[Any]:
    """A history without an answer."""
    return [{"role": "user", "content": text} for text in texts]


def history(session: Session) -> list[tuple[str, str, bool]]:
    """Role and text of each message, and whether it is marked as the client's."""
    rows = session.messages.order_by("seq").values_list("role", "content", "metadata")
    return [(role, text, "by_client" in about) for role, text, about in rows]


def test_a_history_that_is_not_ours_is_kept_as_the_clients(ada: Chatter) -> None:
    """Examples and the start of a chat elsewhere open a session, which goes on and is edited as any other."""

    def say(*more: tuple[str, str]) -> None:
        examples = [("assistant", "Welcome."), ("user", "2+2"), ("assistant", "4")]
        said = [("system", "Be brief."), *examples, *more]
        ada.send([{"role": role, "content": text} for role, text in said])

    say(("user", "[[reply:6]]3+3"))
    say(("user", "[[reply:6]]3+3"), ("assistant", "6"), ("user", "[[reply:8]]4+4"))
    examples = [("assistant", "Welcome.", True), ("user", "2+2", True), ("assistant", "4", True)]
    own = [("user", "[[reply:6]]3+3", False), ("assistant", "6", False)]
    asked = ada.site.model.requests[-1].body["messages"]
    assert [each["content"] for each in asked[2:6]] == ["Welcome.", "2+2", "4", "[[reply:6]]3+3"]
    say(("user", "[[reply:0]]1-1"))  # the same examples, another question
    first, branch = ada.sessions()
    assert history(first)[:5] == examples + own
    assert ada.said(first)[-1] == "[[reply:8]]4+4"
    assert history(branch)[:4] == [*examples, ("user", "[[reply:0]]1-1", False)]


def test_calls_of_a_foreign_history_are_kept_as_texts_of_the_client(ada: Chatter) -> None:
    arguments = '{"city": "Rome"}'
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    long = call | {"id": "call_2", "function": {"name": "weather", "arguments": "x" * 50_000}}
    messages: Any = [
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": None, "tool_calls": [long] * 3},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "y" * 50_000}]},
        {"role": "user", "content": "[[reply:Yes.]]Is it warm?"},
    ]
    ada.send(messages)
    messages += [
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "[[reply:Sure.]]Sure?"},
    ]
    ada.send(messages)
    [session] = ada.sessions()
    found = history(session)
    assert [(role, mark) for role, _, mark in found[:5]] == [("user", True), *[("assistant", True)] * 4]
    called, result, *cut = [text for _, text, _ in found[1:5]]
    assert called.startswith("I look.")
    assert all(word in called for word in ("weather", "call_1", arguments))
    assert all(word in result for word in ("call_1", "sunny"))
    assert [len(text) <= LONGEST_TOOL_TEXT for text in cut] == [True, True]
    assert not any("calls" in row.parts or "results" in row.parts for row in session.messages.all())
    assert ada.said(session)[1:] == ["[[reply:Yes.]]Is it warm?", "[[reply:Sure.]]Sure?"]


def test_an_archived_chat_says_how_it_is_opened_again(ada: Chatter) -> None:
    ada.say("a", chat="c")
    [session] = ada.sessions()
    address = f"sessions/{session.pk}/"
    ada.api("PATCH", address, json={"archived": True})
    with pytest.raises(openai.ConflictError) as refused:
        ada.say("a", "b", chat="c")
    assert refused.value.code == "session_closed"
    assert f"/api/{address}" in refused.value.message
    ada.api("PATCH", address, json={"archived": False})
    ada.say("a", "b", chat="c")
    assert ada.said(session) == ["a", "b"]


def test_a_message_that_was_refused_does_not_end_its_chat(ada: Chatter) -> None:
    """Front ends keep it, and the error below it, and send both with each later message."""
    refused = "x" * (LONGEST_MESSAGE + 1)
    ada.say("[[reply:1]]a", chat="c")
    with pytest.raises(openai.BadRequestError):
        ada.say("[[reply:1]]a", refused, chat="c", heard="1")
    for said in ([refused, "b"], [refused, "b", "c"]):
        ada.say("[[reply:1]]a", *said, chat="c", heard="Error 400")
    [session] = ada.sessions()
    before = [("assistant", "1", False), ("user", refused[:-1], True), ("assistant", "Error 400", True)]
    assert history(session)[1:4] == before
    assert ada.said(session) == ["[[reply:1]]a", refused[:-1], "b", "c"]


def test_a_failed_turn_does_not_end_its_chat(ada: Chatter) -> None:
    ada.say("[[reply:1]]a", chat="c")
    with pytest.raises(openai.APIStatusError):
        ada.once.send(of_person("[[reply:1]]a", "[[fail:400x1]]b"), chat="c")
    for said in (["[[fail:400x1]]b", "[[reply:3]]c"], ["[[reply:4]]d"], ["[[reply:4]]d", "e"]):
        ada.say("[[reply:1]]a", *said, chat="c")
    assert [ada.said(session)[-1] for session in ada.sessions()] == ["[[reply:3]]c", "e"]


def test_a_chat_that_loses_its_oldest_messages_goes_on_in_its_session(ada: Chatter) -> None:
    for said in (["a"], ["a", "b"], ["b", "c"], ["c", "d"]):
        ada.site.model.answer_with(ModelReply(text=f"To {said[-1]}."))
        ada.say(*said, chat="c", heard=f"To {said[0]}.")
    [session] = ada.sessions()
    assert ada.said(session) == ["a", "b", "c", "d"]


def test_two_requests_that_race_are_told(ada: Chatter) -> None:
    ada.say("a", chat="c")
    running = ada.say("a", "[[hold:b]]b", chat="c", stream=True)
    with pytest.raises(openai.ConflictError) as refused:
        ada.once.send(of_person("a", "[[hold:b]]b", "unknown", "c"), chat="c")
    assert refused.value.code == "session_busy"
    ada.site.model.release("b")
    list(running)
    assert turns() == 2


def test_a_chat_of_unified_mode_is_not_ended_by_what_is_not_known_and_begins_no_branch(ada: Chatter) -> None:
    ada.api("PATCH", "agents/demo/", json={"unified_session": True})
    ada.say("a", chat="c")
    ada.say("a", "refused", "b", chat="c")
    ada.say("never said", "c", chat="c2")
    of_primary = Turn.objects.filter(session__key="unified:default").order_by("pk")
    said = of_primary.values_list("content", flat=True)
    assert list(said) == ["a", "b", "c"]
    with pytest.raises(openai.ConflictError):
        ada.say("a", "other", chat="c")
    assert list(said.all()) == ["a", "b", "c"]


def test_an_idempotency_key_stands_for_one_turn(ada: Chatter) -> None:
    key = {"Idempotency-Key": "k1"}
    assert ada.hear("[[reply:x]]hello", extra_headers=key) == "x"
    assert ada.hear("[[reply:x]]hello", extra_headers=key) == "x"
    assert turns() == 1
    with pytest.raises(openai.UnprocessableEntityError):
        ada.say("something else", extra_headers=key)
