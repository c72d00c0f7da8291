"""Long answers as tasks (SEP-2663): the handle outlives every process, and belongs to its owner."""

from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, EmptyResult

from agent_core.llm.protocol import ModelReply
from agent_core.text.formats import utc_text
from sessions_app.models import Agent, ConsentQuestion, ConsentState, Engine, Turn
from tests.api.conftest import Site
from tests.automations.mcp_server.conftest import Human, McpCaller, TasksOfClient, task_request
from tests.automations.mcp_server.test_questions import COLOUR, accept, erase, erased, will_erase
from tests.fleet import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def begin(caller: McpCaller, message: str) -> str:
    """A task that asks the agent: its id."""
    given = {"message": message}
    task = caller.talk(lambda client: client.session.call_tool("ask", given, allow_claimed=True), tasks=True)
    assert (task.result_type, task.status) == ("task", "working")
    return str(task.task_id)


def get(caller: McpCaller, task_id: str) -> Any:
    return caller.talk(lambda client: task_request(client.session, "get", task_id), tasks=True)


def update(caller: McpCaller, task_id: str, **responses: ElicitResult) -> None:
    given = {key: each.model_dump(by_alias=True, mode="json") for key, each in responses.items()}
    more: Any = {"input_responses": given}
    caller.talk(
        lambda client: task_request(client.session, "update", task_id, EmptyResult, **more), tasks=True
    )


def finish(caller: McpCaller, task_id: str) -> Any:
    """The result, once the task has ended."""
    return caller.talk(lambda client: TasksOfClient().poll(client.session, task_id), tasks=True)


def refusal(
    caller: McpCaller, method: str, task_id: str, *, tasks: bool = True, mode: Any = "auto", **more: Any
) -> int:
    """The code of the error."""

    async def work(client: Client) -> int:
        with pytest.raises(MCPError) as error:
            await task_request(client.session, method, task_id, **more)
        return error.value.code

    code: int = caller.talk(work, tasks=tasks, mode=mode)
    return code


def test_a_client_with_tasks_gets_a_handle_at_once_and_the_answer_by_it(ada: McpCaller, site: Site) -> None:
    task_id = begin(ada, "[[hold:t1]] [[reply:At last]]")
    assert get(ada, task_id).status == "working"
    site.model.release("t1")
    result = finish(ada, task_id)
    assert (result.is_error, result.content[0].text) == (False, "At last")
    ended = get(ada, task_id)
    assert (ended.status, ended.ttl_ms) == ("completed", 90 * 24 * 3600 * 1000)
    turn = Turn.objects.get()
    assert ended.result["structuredContent"]["turn"] == turn.pk
    times = (utc_text(turn.queued_at), utc_text(turn.finished_at))  # type: ignore[arg-type]
    assert (ended.created_at, ended.last_updated_at) == times


def test_a_turn_that_failed_is_a_completed_task_with_an_error(ada: McpCaller) -> None:
    result = finish(ada, begin(ada, "[[fail:400]]"))
    assert result.is_error
    assert "rejected the request" in result.content[0].text


def test_a_cancelled_task_stops_its_turn(ada: McpCaller, site: Site) -> None:
    task_id = begin(ada, "[[pause:t2]] [[reply:One two three]]")

    def cancel(client: Client) -> Any:
        return task_request(client.session, "cancel", task_id, EmptyResult)

    ada.talk(cancel, tasks=True)
    until(lambda: Turn.objects.get().state == "cancelled")
    assert get(ada, task_id).status == "cancelled"
    ada.talk(cancel, tasks=True)  # again: acknowledged, and nothing changes
    site.model.release("t2")


@pytest.mark.rule("3.5")
def test_a_question_of_a_task_is_input_required_and_answered_once(ada: McpCaller, site: Site) -> None:
    will_erase(site, "task")
    task_id = begin(ada, "erase it")
    until(lambda: ConsentQuestion.objects.exists() and Turn.objects.get().state == "succeeded")
    waiting = get(ada, task_id)
    assert waiting.status == "input_required"
    [(key, asked)] = waiting.input_requests.items()
    assert 'erase with {"name": "task"}' in asked.params.message
    update(ada, task_id, **{"another.1": accept(allow=True), f"{key}0": accept(allow=True)})
    assert get(ada, task_id).status == "input_required"
    assert Turn.objects.count() == 1
    update(ada, task_id, **{key: accept(allow=True)})
    update(ada, task_id, **{key: accept(allow=False)})  # a second answer, and the same again
    update(ada, task_id, **{key: accept(allow=True)})
    assert finish(ada, task_id).content[0].text == "Gone."
    assert erased(site, "task") == 1
    assert Turn.objects.count() == 2
    update(ada, task_id, **{key: accept(allow=True)})  # the question is closed now
    assert Turn.objects.count() == 2
    assert ConsentQuestion.objects.get().state == ConsentState.GRANTED


@pytest.mark.rule("3.5")
def test_an_answer_to_an_earlier_question_does_not_answer_the_next(ada: McpCaller, site: Site) -> None:
    site.model.answer_with(
        erase("one"), ModelReply(text="May I?"), erase("one"), erase("two"), ModelReply(text="And that?")
    )
    task_id = begin(ada, "erase it")
    until(lambda: ConsentQuestion.objects.exists() and Turn.objects.get().state == "succeeded")
    [first] = get(ada, task_id).input_requests
    update(ada, task_id, **{first: accept(allow=True)})
    until(lambda: ConsentQuestion.objects.count() == 2 and not Turn.objects.filter(finished_at=None).exists())
    [second] = get(ada, task_id).input_requests
    assert second != first
    update(ada, task_id, **{first: accept(allow=True)})
    assert get(ada, task_id).status == "input_required"
    assert (erased(site, "one"), erased(site, "two")) == (1, 0)
    assert Turn.objects.count() == 2


def test_a_plan_that_asks_goes_on_as_the_same_task(ada: McpCaller) -> None:
    Agent.objects.update(engine=Engine.PLANNER)
    human = Human(answers=[accept(answer="blue")])
    found = ada.call("ask", {"message": COLOUR}, tasks=True, human=human)
    assert human.asked == ["Which colour?"]
    assert found["state"] == "succeeded"
    assert Turn.objects.filter(content="blue", state="succeeded").exists()


def test_tasks_of_somebody_else_and_of_nothing_are_not_found(ada: McpCaller, bob: McpCaller) -> None:
    task_id = begin(ada, "hello")
    session, _, turn = task_id.partition(".")
    finish(ada, task_id)
    nobodys = (f"{session}.{int(turn) + 1}", turn, f".{turn}", f"{session}.{10**19}", f"{session}.1e3")
    for wrong in (task_id, *nobodys, "a.b", "x\x00.1", "."):
        for method in ("get", "cancel", "update"):
            more: dict[str, Any] = {"input_responses": {}} if method == "update" else {}
            assert refusal(bob, method, wrong, **more) == -32602, (method, wrong)
    assert refusal(ada, "get", f"{'0' * 8}-0000-4000-8000-{'0' * 12}.{turn}") == -32602
    assert refusal(ada, "get", "x" * 65) == -32602
    assert refusal(ada, "list", task_id) == -32601


def test_tasks_need_the_extension(ada: McpCaller) -> None:
    task_id = begin(ada, "hello")
    assert refusal(ada, "get", task_id, tasks=False) == -32021
    assert refusal(ada, "get", task_id, tasks=False, mode="legacy") == -32601
    finish(ada, task_id)
