"""Answers as the official client gets them: streams, usage, errors, disconnects and a worker that dies."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx2
import openai
import pytest

from automations.firing.fire_jobs import fire_due_jobs
from automations.models import JobClock
from interfaces.openai_api.requests import answer_task
from sessions_app.models import ApiToken, ConsentQuestion, Message, Session, Turn, TurnState
from sessions_app.tokens.issue import revoke_tokens
from tests import plugins
from tests.agent_core.planner.plans import says
from tests.api.conftest import for_each, web_process
from tests.fleet import until
from tests.model_server.oddities import chat
from tests.openai_api.conftest import Chatter, turns
from tests.past import ago, ticking
from tests.sessions_app.turns.test_consent import erase
from tests.up import ROOT
from tests.yardstick import within

pytestmark = pytest.mark.processes

TOOL: Any = {"type": "function", "function": {"name": "f", "parameters": {}}}
TITLE, LIBRECHAT = (  # the prompts of two front ends
    (ROOT / f"tests/data/{name}_title.txt").read_text().rstrip() for name in ("openwebui", "librechat")
)
FOLLOW_UPS = TITLE.replace('"title": "your concise title here"', '"follow_ups": ["1", "2"]')
FOLLOW_UPS = FOLLOW_UPS.replace('- { "title": "Stock Trends" }', "")
TAGS = FOLLOW_UPS.replace("follow_ups", "tags")


def text_of(stream: Any) -> str:
    return "".join(each.choices[0].delta.content or "" for each in stream if each.choices)


def test_a_stream_has_the_chunks_of_the_api(ada: Chatter) -> None:
    chunks = list(ada.say("[[reply:Good morning.]]hi", stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of(chunks) == "Good morning."
    assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
    assert chunks[-1].choices == []
    [turn] = Turn.objects.all()
    assert chunks[-1].usage.prompt_tokens == turn.usage["input_tokens"] > 0
    assert chunks[-1].usage.completion_tokens == turn.usage["output_tokens"] > 0
    assert len({each.id for each in chunks}) == 1


def test_reasoning_is_streamed_beside_the_answer(ada: Chatter) -> None:
    with ada.say("[[hold:thought]][[think:let me see]][[reply:Blue.]]hi", stream=True) as stream:
        until(lambda: ada.site.metric("rondo_event_subscribers") >= 1, 10, "a late stream hears no thoughts")
        ada.site.model.release("thought")
        chunks = list(stream)
    deltas = [each.choices[0].delta for each in chunks if each.choices]
    assert "".join(getattr(each, "reasoning_content", None) or "" for each in deltas) == "let me see"
    assert text_of(chunks) == "Blue."


def test_reasoning_that_only_its_end_tells_apart_breaks_no_stream(ada: Chatter) -> None:
    ada.site.model.answer_with(chat("let me see", "</think>", "Blue."))
    chunks = list(ada.say("hi", stream=True))
    assert text_of(chunks).endswith("Blue.")
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert Message.objects.get(role="assistant").content == "Blue."
    assert ada.hear("[[reply:Green.]]hi", chat="c") == "Green.", "after which the model is not known for this"


@pytest.mark.rule("3.6")
def test_an_answer_that_is_not_whole_says_how_it_ended(ada: Chatter) -> None:
    def check(ends: str, reason: str, whole_reason: str) -> None:
        text = f"[[ends:{ends}]][[reply:Half of]]{ends}"
        chunks = list(ada.say(text, stream=True))
        assert text_of(chunks) == "Half of"
        assert chunks[-1].choices[0].finish_reason == reason
        [choice] = ada.say(f"again {text}").choices
        content, refusal = choice.message.content, choice.message.refusal
        assert (content, refusal) == ((None, "Half of") if ends == "refusal" else ("Half of", None))
        assert choice.finish_reason == whole_reason

    for_each(
        [
            ("length", "length", "length"),
            ("filter", "content_filter", "content_filter"),
            ("refusal", "content_filter", "stop"),
        ],
        check,
    )
    refused = ada.say("[[ends:refusal]][[reply:I will not.]]one").choices[0].message
    history = [{"role": "user", "content": "[[ends:refusal]][[reply:I will not.]]one"}, refused.model_dump()]
    answer = ada.send([*history, {"role": "user", "content": "[[reply:Two.]]two"}])
    assert answer.choices[0].message.content == "Two."
    assert [len(ada.said(each)) for each in ada.sessions()][-1] == 2
    history[1]["content"] = [{"type": "refusal", "refusal": "I will not."}]
    answer = ada.send([*history, {"role": "user", "content": "[[reply:Three.]]three"}])
    assert answer.choices[0].message.content == "Three."


def test_a_wrong_key_and_an_unknown_model_are_refused(ada: Chatter) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        ada.client.with_options(api_key="wrong").models.list()
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError):
        ada.client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.NotFoundError):
        ada.client.models.retrieve("nobody")


def test_what_is_not_served_is_refused_with_its_name(ada: Chatter) -> None:
    def check(param: str, more: dict[str, Any]) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            ada.say("hi", **more)
        assert refused.value.param == param
        assert turns() == 0

    def said(*messages: Any) -> dict[str, Any]:
        return {"extra_body": {"messages": messages}}

    for_each(
        [
            ("tool_choice", {"tools": [TOOL], "tool_choice": "required"}),
            ("n", {"n": 2}),
            ("response_format", {"response_format": {"type": "json_object"}}),
            ("stop", {"stop": ["x"]}),
            ("metadata", {"extra_body": {"metadata": "x"}}),
            ("chat_id", {"extra_body": {"metadata": {"chat_id": 7}}}),
            ("stream_options", {"extra_body": {"stream_options": "x"}}),
            ("messages", said()),
            ("messages", said({"role": "assistant", "content": "x"})),
            ("messages[0].role", said({"role": "function", "content": "x"})),
            ("messages", said({"role": "tool", "content": "x"})),
            ("messages[0].tool_calls", said({"role": "assistant", "tool_calls": [{"function": "x"}]})),
            ("messages[0].content", said({"role": "user", "content": [{"type": "input_audio"}]})),
            ("X-OpenWebUI-Chat-Id", {"chat": "x" * 501}),
        ],
        check,
    )


def test_what_is_harmless_is_accepted(ada: Chatter) -> None:
    parts: Any = [{"type": "text", "text": "[[reply:Heard.]]"}, {"type": "text", "text": "both"}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    answer = ada.send(
        messages, temperature=0.2, top_p=0.5, max_tokens=100, n=1, tools=[TOOL], tool_choice="auto"
    )
    assert (answer.object, answer.choices[0].finish_reason) == ("chat.completion", "stop")
    assert answer.choices[0].message.content == "Heard."
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_what_a_model_began_before_it_broke_off_is_sent_to_a_client_that_comes_later(ada: Chatter) -> None:
    ada.api("PATCH", "agents/demo/", json={"policy": {"max_attempts": 1}})
    text = "[[hold:it]][[drop]][[reply:Some words and no end.]]hi"
    with ada.say(text, chat="c", stream=True) as stream:
        next(iter(stream))
    ada.site.model.release("it")
    until(Turn.objects.filter(state=TurnState.FAILED).exists, what="the turn fails")
    said: list[str] = []
    again = ada.say(text, chat="c", stream=True)
    with pytest.raises(openai.APIError):
        said.extend(chunk.choices[0].delta.content or "" for chunk in again)
    assert "".join(said) == Message.objects.get(metadata__partial=True).content.strip()
    assert turns() == 1


@pytest.mark.parametrize("streams", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_turn_that_succeeds_without_an_answer_says_so(ada: Chatter, streams: bool) -> None:
    answer = ada.say("[[empty]]hi", stream=streams)
    said = text_of(answer) if streams else answer.choices[0].message.content
    assert Turn.objects.get().state == TurnState.SUCCEEDED
    assert said == Message.objects.get(metadata__has_key="closure").content != ""


@pytest.mark.rule("9.4")
def test_a_disconnect_is_no_cancel(ada: Chatter) -> None:
    with ada.say("[[pause:gone]][[reply:It goes on.]]hi", chat="c", stream=True) as stream:
        next(piece for piece in stream if piece.choices[0].delta.content)
    ada.site.model.release("gone")
    until(lambda: Turn.objects.get().state == TurnState.SUCCEEDED, what="the turn ends")
    assert Message.objects.filter(role="assistant").get().content == "It goes on."
    assert ada.hear("[[pause:gone]][[reply:It goes on.]]hi", chat="c") == "It goes on."
    assert turns() == 1


def test_a_token_that_is_revoked_while_the_answer_is_awaited_is_refused(ada: Chatter) -> None:
    with ThreadPoolExecutor() as others:
        asked = others.submit(ada.once.say, "[[pause:revoked]]hi")
        try:
            until(lambda: Turn.objects.filter(state=TurnState.RUNNING).exists(), 20, "the turn runs")
            revoke_tokens(ApiToken.objects.filter(user=ada.user))
            with pytest.raises(openai.AuthenticationError) as refused:
                asked.result(20)
        finally:
            ada.site.model.release("revoked")
    assert refused.value.code == "invalid_api_key"
    assert "not valid any more" in refused.value.message


def test_an_address_that_does_not_exist_is_refused_in_the_form_of_this_api(ada: Chatter) -> None:
    for method in ("GET", "POST"):
        answer = httpx2.request(method, f"{ada.site.url}/v1/nix")
        text = f"There is nothing at this address: {method} /v1/nix"
        error = {"message": text, "type": "invalid_request_error", "param": None, "code": "not_found"}
        assert (answer.status_code, answer.json()) == (404, {"error": error})


def test_a_thread_of_a_unified_agent_streams_the_primary_session(ada: Chatter) -> None:
    ada.api("PATCH", "agents/demo/", json={"unified_session": True})
    with ada.say("[[pause:unified]][[reply:In one conversation.]]hi", chat="c", stream=True) as stream:
        pieces = iter(stream)
        early = next(piece for piece in pieces if piece.choices[0].delta.content)
        ada.site.model.release("unified")
        assert early.choices[0].delta.content + text_of(pieces) == "In one conversation."


def test_a_front_ends_own_request_is_answered_without_a_turn(ada: Chatter) -> None:
    def check(prompt: str, answer: str) -> None:
        assert ada.hear(prompt, chat="c") == answer
        assert text_of(ada.say(prompt, stream=True)) == answer
        assert turns() == Session.objects.filter(type="sub").count() == 0

    for_each(
        [
            (TITLE, '{"title": "Where is the report?"}'),
            (TAGS, '{"tags": []}'),
            (FOLLOW_UPS, '{"follow_ups": []}'),
            (LIBRECHAT, "Where is the report?"),
        ],
        check,
    )


def test_a_persons_message_is_not_taken_for_one(ada: Chatter) -> None:
    def check(text: str) -> None:
        ada.say(text)
        assert Turn.objects.latest("pk").content == text

    for_each(
        [
            "### Task:\nGenerate a concise title for my essay",
            f"What does this prompt do?\n{TITLE}",
            f"{TITLE}\nPlease translate it.",
            TITLE.replace("</chat_history>", ""),
            TITLE.replace('"title":', "title"),
            "Please generate a concise, 5-word-or-less title for my essay",
        ],
        check,
    )


def test_the_title_of_a_known_chat_is_that_of_its_session(ada: Chatter) -> None:
    ada.say("plan the trip to Rome", chat="c")
    assert ada.hear(TITLE, chat="c") == '{"title": "plan the trip to Rome"}'


def answered_automation(session: Session) -> Message:
    """What the automation `news` has said there."""
    JobClock.objects.filter(job=ticking(session, name="news")).update(next_run_at=ago(0.001))
    fire_due_jobs()
    said = Message.objects.filter(session=session, role="assistant", metadata__has_key="source")
    until(said.exists, what="the automation has answered")
    return said.get()


@pytest.mark.rule("9.4")
def test_an_automations_answer_comes_first_in_the_next_answer_and_once(ada: Chatter) -> None:
    ada.say("hello", chat="c")
    [session] = ada.sessions()
    said = answered_automation(session)
    answer = ada.hear("hello", "[[reply:Fine.]]and?", chat="c")
    assert answer.startswith("**news** (")
    assert answer.endswith("---\n\nFine.")
    assert said.content in answer
    assert ada.hear("hello", "[[reply:Fine.]]and?", "[[reply:Bye.]]ok", chat="c") == "Bye."


@pytest.mark.rule("9.4")
@pytest.mark.parametrize("streams", [pytest.param(False, marks=pytest.mark.full), True])
def test_an_automations_answer_is_told_although_the_next_answer_failed(ada: Chatter, streams: bool) -> None:
    ada.say("hello", chat="c")
    [session] = ada.sessions()
    answered_automation(session)
    told = ""
    with suppress(openai.APIError):
        for chunk in ada.say("hello", "[[fail:401]]and?", chat="c", stream=streams):
            told += chunk.choices[0].delta.content or ""
    assert Turn.objects.latest("pk").state == TurnState.FAILED
    told += ada.hear("hello", "[[fail:401]]and?", "[[reply:Bye.]]ok", chat="c")
    assert told.count("**news** (") == 1
    assert told.endswith("Bye.")


def test_too_many_streams_are_refused_and_nothing_is_stored(ada: Chatter, tmp_path: Any) -> None:
    message: Any = {"role": "user", "content": "[[hold:one]]hi"}
    with (
        web_process(tmp_path, RONDO_STREAMS_PER_USER="1") as (url, _),
        openai.OpenAI(base_url=f"{url}/v1", api_key=ada.token, max_retries=0) as client,
    ):
        with client.chat.completions.create(model="demo", messages=[message], stream=True):
            with pytest.raises(openai.RateLimitError):
                client.chat.completions.create(model="demo", messages=[message], stream=True)
            assert turns() == 1
        ada.site.model.release("one")


def test_an_error_outside_of_the_views_has_its_status(ada: Chatter) -> None:
    with pytest.raises(openai.APIStatusError) as refused:
        ada.say("x" * 9_000_000)
    assert refused.value.status_code == 413
    with pytest.raises(openai.BadRequestError) as too_long:
        ada.say("x" * 100_001)
    assert too_long.value.code == "message_too_long"


@pytest.mark.rule("3.5")
@pytest.mark.parametrize("word", [pytest.param("yes", marks=pytest.mark.full), "yes #"])
def test_a_yes_in_the_chat_is_no_consent_but_one_to_our_own_api_is(ada: Chatter, word: str) -> None:
    folder, model = ada.site.fleet.folder, ada.site.model
    before = plugins.calls(folder, "disk")
    model.answer_with(erase("disk"), says("I may not yet."))
    answer = ada.hear("Tidy up.", chat="c")
    [session] = ada.sessions()
    assert answer.endswith(f"{ada.site.url}/sessions/{session.pk}/")
    question = ConsentQuestion.objects.get()
    said = word.replace("#", f"#{question.pk}")
    model.answer_with(erase("disk"), says("Still not."))
    ada.say("Tidy up.", said, chat="c")
    assert plugins.calls(folder, "disk") == before
    model.answer_with(erase("disk"), says("Erased."))
    address = f"questions/{ConsentQuestion.objects.get(state='open').pk}/answer/"
    ended = ada.api("POST", address, json={"content": "yes"}, headers={"Prefer": "wait=20"})
    assert ended["state"] == "succeeded"
    assert plugins.calls(folder, "disk") == before + 1


MANY = 100_000
SLOW = {
    "marks of the output and of the history": "### Task:\n"
    + "### Output: " * MANY
    + "<chat_history>\n" * MANY,
    "histories that do not end": TITLE.replace("</chat_history>", "<chat_history>\n" * MANY),
    "a completion that does not end": "### Task:\nYou are an autocompletion system."
    + "<chat_history></chat_history>" * MANY,
    "empty lines": TITLE.replace("USER: Where", "\n" * 10 * MANY + "Where"),
    "empty lines of a title": LIBRECHAT.replace("User: Where", "\n" * 10 * MANY),
}


@pytest.mark.rule("10.0")
@pytest.mark.parametrize("name", SLOW)
def test_no_text_takes_long(name: str) -> None:
    with within(100):
        answer_task((("user", SLOW[name]),), "")
