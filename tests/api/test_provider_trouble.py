"""A model provider that is down, slow, wrong or changes its mind, and a worker that dies: through every door.

The client of each door sees the error that its protocol has for it, and the turn says what has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from ag_ui import core
from django.contrib.auth.models import User

from agent_core.llm.protocol import ModelReply
from sessions_app.connections.edit import add_connection
from sessions_app.models import Agent, Connection, Message, Turn, TurnState
from tests.api.conftest import Site
from tests.api.test_ag_ui import Thread, shown_after, text_of
from tests.conftest import Person
from tests.fleet import until
from tests.tokens import token_of
from tests.up import free_port

pytestmark = [pytest.mark.processes, pytest.mark.rule("3.6")]

KEY = "sk-proj-Abcdefgh1234567890Abcdefgh"
SAYS = "Once upon a time there was a long answer."


@dataclass(kw_only=True)
class Asker:
    """Somebody with an agent `demo` on the model server."""

    site: Site
    user: User
    token: str

    def set(self, **columns: Any) -> None:
        Agent.objects.filter(owner=self.user).update(**columns)


@dataclass(kw_only=True)
class Heard:
    """What the client of a door got: an answer, or an error in the form of its protocol with its code."""

    answer: str = ""
    error: str = ""
    code: str = ""
    status: int = 0


def by_stream(asker: Asker, text: str) -> Heard:
    with _openai(asker) as client:
        said = ""
        try:
            stream = client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": text}], stream=True
            )
            for chunk in stream:
                said += chunk.choices[0].delta.content or ""
        except openai.APIError as error:
            return Heard(answer=said, error=error.message, code=str(error.code))
        return Heard(answer=said)


def whole(asker: Asker, text: str) -> Heard:
    with _openai(asker) as client:
        try:
            found = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": text}])
        except openai.InternalServerError as error:
            return Heard(error=error.message, code=str(error.code), status=error.status_code)
        return Heard(answer=found.choices[0].message.content or "")


def _openai(asker: Asker) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{asker.site.url}/v1", api_key=asker.token, timeout=60)


def by_ag_ui(asker: Asker, text: str) -> Heard:
    person = Person(user=asker.user, agent=Agent.objects.get(owner=asker.user))
    thread = Thread(site=asker.site, person=person, token=asker.token)
    events = thread.run(text)
    end = events[-1]
    if end.type is core.EventType.RUN_ERROR:
        return Heard(answer=text_of(events), error=end.message, code=end.code or "")
    (_, asked), (role, answer) = shown_after(thread.messages, events)
    assert (asked, role) == (text, "assistant")
    return Heard(answer=answer)


Ask = Callable[[Asker, str], Heard]
DOORS: dict[str, Ask] = {
    "openai, streamed": by_stream,
    "openai, whole": whole,
    "ag-ui": by_ag_ui,
}
STREAMS = {"openai, streamed", "ag-ui"}


@pytest.fixture
def asker(site: Site) -> Iterator[Asker]:
    site.model.reset()
    user = User.objects.create_user("ada")
    token = token_of(user)
    with site.client(token) as http:
        made = {"name": "demo", "model": "openai-chat:test", "policy": {"max_attempts": 1}}
        assert http.post("/api/agents/", json=made).status_code == 201
    yield Asker(site=site, user=user, token=token)
    site.model.reset()


def _only_with_all(door: str) -> tuple[pytest.MarkDecorator, ...]:
    return () if door == "openai, streamed" else (pytest.mark.full,)


@pytest.fixture(params=[pytest.param(each, marks=_only_with_all(each)) for each in DOORS])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def failed(asker: Asker, door: str, text: str, code: str, words: str) -> Heard:
    """The client gets the error that the turn ended with, and the conversation shows it; nothing is done twice."""
    heard = DOORS[door](asker, text)
    turn = Turn.objects.get()
    assert (turn.state, turn.error_code, turn.attempt) == (TurnState.FAILED, code, 1)
    assert words in turn.error
    assert heard.code == code
    assert turn.error.rstrip(".") in heard.error
    seen = "".join(Message.objects.values_list("content", flat=True))
    assert turn.error in seen
    assert KEY not in f"{heard} {turn.error} {turn.error_detail} {seen}"
    assert heard.status in {0, 500}
    return heard


def test_a_provider_that_is_down(asker: Asker, door: str) -> None:
    there = {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{free_port()}/v1", "secret": KEY}
    add_connection(None, "gone", there)
    asker.set(model="gone:m")
    failed(asker, door, "hello", "model_unavailable", "cannot be reached (connection refused)")
    assert "connection refused" in Connection.objects.get().last_error


def test_a_provider_that_is_slow(asker: Asker, door: str) -> None:
    asker.set(policy={"max_attempts": 1, "timeout_seconds": 1})
    failed(asker, door, "[[hold:slow]] hello", "timeout", "time")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "model_auth", "401: invalid API key"),
        (429, "rate_limited", "429"),
        (200, "model_unavailable", "The model provider failed"),
    ],
    ids=["refuses the key", "asks to wait for long", "answers something else"],
)
def test_a_provider_that_is_wrong(asker: Asker, door: str, status: int, code: str, words: str) -> None:
    asker.site.model.fail_with(status, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    asker.site.model.failure_headers["Retry-After"] = "3000"
    failed(asker, door, "hello", code, words)


def test_a_provider_that_breaks_off_in_the_middle(asker: Asker, door: str) -> None:
    heard = failed(asker, door, f"[[drop]] [[reply:{SAYS}]]", "model_unavailable", "")
    begun = Message.objects.get(metadata__partial=True).content
    assert begun
    assert SAYS.startswith(begun)
    if door in STREAMS:
        assert heard.answer.startswith(begun.strip())
    assert Turn.objects.get().usage.get("output_tokens", 0) == 0


def test_a_provider_that_changes_its_mind_in_the_middle(asker: Asker, door: str) -> None:
    asker.set(policy={"backoff_seconds": 0.01})
    asker.site.model.answer_with(ModelReply(text="One thing or other."), ModelReply(text="Something else."))
    heard = DOORS[door](asker, "[[drop:x1]] hello")
    # the stream of `/v1` ends where the answer begins anew, before the turn does
    until(lambda: Turn.objects.get().finished_at, what="the turn is over")
    turn = Turn.objects.get()
    assert (turn.state, turn.attempt) == (TurnState.SUCCEEDED, 1)
    assert Message.objects.get(role="assistant").content == "Something else."
    if door == "openai, streamed":  # what was sent cannot be taken back
        assert heard.code == "answer_restarted"
    else:
        assert heard == Heard(answer="Something else.")


@pytest.mark.rule("1.9")
def test_a_worker_that_is_killed_in_the_middle(asker: Asker, door: str) -> None:
    model = asker.site.model
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(DOORS[door], asker, f"[[pause:killed]] [[reply:{SAYS}]]")
        until(lambda: model.held.get("killed"), what="the model is in the middle of its answer")
        asker.site.worker.kill()
        model.release("killed")
        asker.site.fleet.worker()
        heard = asked.result(60)
    assert heard.answer.strip() == SAYS
    assert heard.error == ""
    turn = Turn.objects.get()
    assert (turn.state, turn.attempt) == (TurnState.SUCCEEDED, 2)
    assert Message.objects.get(role="assistant").content == SAYS
