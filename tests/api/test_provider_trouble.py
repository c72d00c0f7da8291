"""A model provider that refuses, breaks off or changes its mind, and a worker that dies: through every protocol.

The client of each protocol sees the error that its protocol has for it, and the turn says what has happened.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import openai
import pytest
from ag_ui import core

from agent_core.llm.protocol import ModelReply
from sessions_app.models import Agent, Message, Turn, TurnState
from tests.api.test_ag_ui import Thread, shown_after, text_of
from tests.conftest import Person
from tests.fleet import until
from tests.openai_api.conftest import Chatter, ada

__all__ = ["ada"]
pytestmark = [pytest.mark.processes, pytest.mark.rule("3.6")]

KEY = "sk-proj-Abcdefgh1234567890Abcdefgh"
SAYS = "Once upon a time there was a long answer."


@dataclass(kw_only=True)
class Heard:
    """What the client of a protocol got: an answer, or an error in the form of its protocol with its code."""

    answer: str = ""
    error: str = ""
    code: str = ""


def by_stream(ada: Chatter, text: str) -> Heard:
    said = ""
    try:
        for chunk in ada.say(text, stream=True):
            said += chunk.choices[0].delta.content or ""
    except openai.APIError as error:
        return Heard(answer=said, error=error.message, code=str(error.code))
    return Heard(answer=said)


def by_ag_ui(ada: Chatter, text: str) -> Heard:
    person = Person(user=ada.user, agent=Agent.objects.get())
    thread = Thread(site=ada.site, person=person, token=ada.token)
    events = thread.run(text)
    end = events[-1]
    if end.type is core.EventType.RUN_ERROR:
        return Heard(answer=text_of(events), error=end.message, code=end.code or "")
    (_, asked), (role, answer) = shown_after(thread.messages, events)
    assert (asked, role) == (text, "assistant")
    return Heard(answer=answer)


Ask = Callable[[Chatter, str], Heard]
PROTOCOLS: dict[str, Ask] = {"openai, streamed": by_stream, "ag-ui": by_ag_ui}


@pytest.fixture(params=["openai, streamed", pytest.param("ag-ui", marks=pytest.mark.full)])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def failed(ada: Chatter, protocol: str, text: str, code: str, words: str) -> Heard:
    """The client gets the error that the turn ended with, and the conversation shows it; nothing is done twice."""
    Agent.objects.update(policy={"max_attempts": 1})
    heard = PROTOCOLS[protocol](ada, text)
    turn = Turn.objects.get()
    assert (turn.state, turn.error_code, turn.attempt) == (TurnState.FAILED, code, 1)
    assert words in turn.error
    assert heard.code == code
    assert turn.error.rstrip(".") in heard.error
    seen = "".join(Message.objects.values_list("content", flat=True))
    assert turn.error in seen
    assert KEY not in f"{heard} {turn.error} {turn.error_detail} {seen}"
    return heard


def test_a_provider_that_refuses_the_key(ada: Chatter, protocol: str) -> None:
    ada.site.model.fail_with(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    failed(ada, protocol, "hello", "model_auth", "401: invalid API key")


def test_a_provider_that_breaks_off_in_the_middle(ada: Chatter, protocol: str) -> None:
    heard = failed(ada, protocol, f"[[drop]] [[reply:{SAYS}]]", "model_unavailable", "")
    begun = Message.objects.get(metadata__partial=True).content
    assert begun
    assert SAYS.startswith(begun)
    assert heard.answer.startswith(begun.strip())
    assert Turn.objects.get().usage.get("output_tokens", 0) == 0


def test_a_provider_that_changes_its_mind_in_the_middle(ada: Chatter, protocol: str) -> None:
    Agent.objects.update(policy={"backoff_seconds": 0.01})
    ada.site.model.answer_with(ModelReply(text="One thing or other."), ModelReply(text="Something else."))
    heard = PROTOCOLS[protocol](ada, "[[drop:x1]] hello")
    # the stream of `/v1` ends where the answer begins anew, before the turn does
    until(lambda: Turn.objects.get().finished_at, what="the turn is over")
    turn = Turn.objects.get()
    assert (turn.state, turn.attempt) == (TurnState.SUCCEEDED, 1)
    assert Message.objects.get(role="assistant").content == "Something else."
    if protocol == "openai, streamed":  # what was sent cannot be taken back
        assert heard.code == "answer_restarted"
    else:
        assert heard == Heard(answer="Something else.")


@pytest.mark.rule("1.9")
def test_a_worker_that_is_killed_in_the_middle(ada: Chatter, protocol: str) -> None:
    model = ada.site.model
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(PROTOCOLS[protocol], ada, f"[[pause:killed]] [[reply:{SAYS}]]")
        until(lambda: model.held.get("killed"), what="the model is in the middle of its answer")
        ada.site.worker.kill()
        model.release("killed")
        ada.site.fleet.worker()
        heard = asked.result(60)
    assert heard.answer.strip() == SAYS
    assert heard.error == ""
    turn = Turn.objects.get()
    assert (turn.state, turn.attempt) == (TurnState.SUCCEEDED, 2)
    assert Message.objects.get(role="assistant").content == SAYS
