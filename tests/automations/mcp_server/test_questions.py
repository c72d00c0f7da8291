"""Questions of agents: a person answers them at the client, each by its id."""

import time
from typing import Any

import pytest
from mcp_types import ElicitResult

from agent_core.llm.protocol import ModelReply
from agent_core.types import ToolCall
from sessions_app.models import Agent, ConsentQuestion, ConsentState, Engine, ExecutionState, Turn
from tests.api.conftest import Site
from tests.automations.mcp_server.conftest import Human, McpCaller
from tests.automations.mcp_server.test_hostile import post
from tests.fleet import until
from tests.plugins import calls

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.rule("3.5")]

COLOUR = "ask me which colour, then paint the door"


def erase(what: str) -> ModelReply:
    return ModelReply(text="", calls=(ToolCall(id="e", name="erase", arguments={"name": what}),))


def will_erase(site: Site, name: str) -> None:
    """The model wants to erase this, and does so again once it is allowed to."""
    site.model.answer_with(erase(name), ModelReply(text="May I?"), erase(name), ModelReply(text="Gone."))


def accept(**content: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


def erased(site: Site, name: str) -> int:
    return calls(site.fleet.folder, name)


@pytest.mark.parametrize("allow", [True, False])
def test_consent_is_asked_at_the_client_and_counts_for_its_call(
    ada: McpCaller, site: Site, allow: bool
) -> None:
    disk = f"disk-{allow}"
    after = ([erase(disk)] if allow else []) + [ModelReply(text="Done.")]
    site.model.answer_with(erase(disk), ModelReply(text="May I?"), *after)
    human = Human(answers=[accept(allow=allow)])
    found = ada.call("ask", {"message": "erase it"}, human=human)
    assert (found["state"], found["answer"]) == ("succeeded", "Done.")
    [asked] = human.asked
    assert f'erase with {{"name": "{disk}"}}' in asked
    assert erased(site, disk) == int(allow)
    assert ConsentQuestion.objects.get().state == (ConsentState.GRANTED if allow else ConsentState.REFUSED)


def test_clients_of_earlier_revisions_are_asked_within_their_request(ada: McpCaller, site: Site) -> None:
    will_erase(site, "early")
    human = Human(answers=[accept(allow=True)])
    assert ada.call("ask", {"message": "erase it"}, human=human, mode="legacy")["answer"] == "Gone."
    [asked] = human.asked
    assert 'erase with {"name": "early"}' in asked
    assert erased(site, "early") == 1
    site.model.forget_script()
    Agent.objects.update(engine=Engine.PLANNER)
    states = []
    for left in (ElicitResult(action="decline"), ElicitResult(action="cancel")):
        human, begun = Human(answers=[left]), time.monotonic()
        found = ada.call("ask", {"message": COLOUR, "wait_seconds": 20}, human=human, mode="legacy")
        assert time.monotonic() - begun < 15
        assert human.asked == ["Which colour?"]
        states.append(found["state"] == "input_required")
    assert states == [False, True]
    found = ada.call("ask", {"message": "hello"})
    handle = f"{found['session']}.{found['turn']}"
    for name, status in ((f"{handle}/another.1", 202), ("nobody.1/x", 404), (handle, 202)):
        reply = {"jsonrpc": "2.0", "id": name, "result": {"action": "accept", "content": {"allow": True}}}
        assert post(ada, reply).status_code == status, name


@pytest.mark.parametrize(
    "words", ["yes", "yes #{id}", *(pytest.param(each, marks=pytest.mark.full) for each in ("ok", "是"))]
)
@pytest.mark.parametrize("engine", [Engine.CHAT, Engine.PLANNER])
def test_words_of_a_program_are_never_consent(ada: McpCaller, site: Site, words: str, engine: str) -> None:
    name = f"words-{engine}-{words[:5]}".replace(" ", "-")
    Agent.objects.update(engine=engine)
    if engine == Engine.CHAT:
        site.model.answer_with(erase(name), ModelReply(text="May I?"))
        found = ada.call("ask", {"message": "erase it"})
    else:
        found = ada.call("ask", {"message": f'use tool erase with {{"name": "{name}"}}'})
    assert found["state"] == "input_required", found
    assert found["question"]["consent"] is True
    question = ConsentQuestion.objects.get()
    said = words.replace("{id}", question.pk)
    if engine == Engine.CHAT:
        site.model.answer_with(erase(name), ModelReply(text="Still not."))
    ada.call("ask", {"message": said})
    site.model.forget_script()
    given = {"turn": found["turn"], "question": question.pk, "answer": "yes"}
    refusal = ada.refused("answer_question", given)
    assert "needs_person" in refusal or "question_closed" in refusal
    assert erased(site, name) == 0
    assert not ConsentQuestion.objects.filter(state=ConsentState.GRANTED).exists()


def test_a_question_is_answered_by_its_id_in_earlier_revisions(ada: McpCaller) -> None:
    Agent.objects.update(engine=Engine.PLANNER)
    found = ada.call("ask", {"message": COLOUR}, mode="legacy")
    assert (found["state"], found["question"]["text"]) == ("input_required", "Which colour?")
    given = {"turn": found["turn"], "question": found["question"]["id"], "answer": "blue"}
    before = Turn.objects.count()
    assert "question_closed" in ada.refused("answer_question", given | {"question": "another"})
    assert Turn.objects.count() == before
    assert ada.call("answer_question", given, mode="legacy")["state"] == "succeeded"
    assert "question_closed" in ada.refused("answer_question", given | {"answer": "red"})
    assert Turn.objects.count() == before + 1


def test_a_question_that_a_person_dismisses_stays_open_and_one_declined_does_not(ada: McpCaller) -> None:
    Agent.objects.update(engine=Engine.PLANNER)
    ada.call("ask", {"message": COLOUR}, human=Human(answers=[ElicitResult(action="decline")]))
    assert ExecutionState.objects.get().status == "cancelled", "declined is given up"
    assert Turn.objects.count() == 1
    ExecutionState.objects.all().delete()
    found = ada.call("ask", {"message": COLOUR}, human=Human(answers=[ElicitResult(action="cancel")]))
    assert found["state"] == "input_required"
    assert ExecutionState.objects.get().status == "waiting_user"
    later = ada.call("get_answer", {"turn": found["turn"]}, human=Human(answers=[accept(answer="red")]))
    assert later["state"] == "succeeded"


def test_a_malformed_consent_is_refused_and_changes_nothing(ada: McpCaller, site: Site) -> None:
    contents: list[dict[str, Any]] = [{}, {"allow": "true"}, {"allow": 1}, {"answer": "yes"}, {"allow": None}]
    for number, content in enumerate(contents, 1):
        site.model.answer_with(erase("malformed"), ModelReply(text="May I?"))
        human = Human(answers=[ElicitResult(action="accept", content=content)])
        assert "allow must be" in ada.refused("ask", {"message": "erase it"}, human=human), content
        assert ConsentQuestion.objects.filter(state=ConsentState.OPEN).count() >= 1
        assert Turn.objects.count() == number
        site.model.forget_script()
    assert erased(site, "malformed") == 0


def test_a_state_of_somebody_else_or_of_nothing_is_refused(ada: McpCaller, bob: McpCaller) -> None:
    turn = ada.call("ask", {"message": "hello"})
    handle = f"{turn['session']}.{turn['turn']}"
    before = Turn.objects.count()

    def retried(caller: McpCaller, state: str) -> Any:
        hello = {"message": "hello"}
        return caller.talk(lambda client: client.call_tool("ask", hello, request_state=state))

    for state in (handle, "", "x" * 5000):  # the others are those of `test_tasks.py`: one function reads both
        found = retried(bob, state)
        assert found.is_error, state
        assert "no such" in found.content[0].text
    assert retried(ada, handle).structured_content["turn"] == turn["turn"]
    assert Turn.objects.count() == before


def test_an_answer_given_in_a_window_goes_on_with_the_request(ada: McpCaller, site: Site) -> None:
    will_erase(site, "window")
    found = ada.call("ask", {"message": "erase it"})
    with site.client(ada.token) as http:
        answered = http.post(f"/api/questions/{found['question']['id']}/answer/", json={"content": "yes"})
        assert answered.status_code == 202
    until(lambda: erased(site, "window") == 1)
    assert ada.call("get_answer", {"turn": found["turn"]})["answer"] == "Gone."
