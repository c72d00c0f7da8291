"""AG-UI over HTTP, read with the event models of the protocol's own package."""

import json
import uuid
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from ag_ui import core
from pydantic import TypeAdapter

from agent_core.llm.protocol import ModelReply
from agent_core.types import ToolCall
from sessions_app.models import ConsentQuestion, Engine, Message, Session, Turn
from tests.api.conftest import Caller, Site, for_each, problem
from tests.conftest import Person, new_person
from tests.fleet import until
from tests.plugins import calls
from tests.tokens import token_of

EVENT: TypeAdapter[core.Event] = TypeAdapter(core.Event)
STORY = "Once upon a time there was a very long answer."
MEANWHILE = ThreadPoolExecutor()  # reads runs in the background


@dataclass(kw_only=True)
class Thread:
    """A client of one thread, as a front end has it: it keeps the messages and sends all of them with each run."""

    site: Site
    person: Person
    token: str
    id: str = "trip to Lisbon"
    messages: list[dict[str, Any]] = field(default_factory=list)

    def body(self, **more: Any) -> dict[str, Any]:
        named = {"threadId": self.id, "runId": uuid.uuid4().hex, "messages": self.messages}
        return named | {"tools": [], "context": [], "state": {}, "forwardedProps": {}} | more

    def say(self, text: str) -> None:
        self.messages.append({"id": uuid.uuid4().hex, "role": "user", "content": text})

    def post(self, body: dict[str, Any], hear: Callable[[core.Event], object] = lambda _: None) -> list[Any]:
        """Send a run and read its events until the stream ends. `hear` gets each as it comes."""
        with self.open(body) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            events = []
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    events.append(EVENT.validate_json(line.removeprefix("data: ")))
                    hear(events[-1])
        in_order(events)
        return events

    def open(self, body: dict[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        url = f"{self.site.url}/ag-ui/{self.person.agent.name}/"
        return httpx2.stream("POST", url, json=body, headers=headers, timeout=40)

    def run(self, text: str) -> list[Any]:
        self.say(text)
        return self.post(self.body())

    def resume(self, interrupt: str, payload: Any) -> dict[str, Any]:
        """The body of a run that answers an interrupt."""
        return self.body(resume=[{"interruptId": interrupt, "status": "resolved", "payload": payload}])

    def refused(self, body: dict[str, Any], status: int, code: str) -> None:
        with self.open(body) as answer:
            answer.read()
            problem(answer, status, code)


@pytest.fixture
def thread(site: Site) -> Thread:
    site.model.reset()
    person = new_person("ada", model="openai-chat:test")
    return Thread(site=site, person=person, token=token_of(person.user))


def in_order(events: list[Any]) -> None:
    """The protocol's order: one start, one end, and each text, call and step begins before it ends, once."""
    kinds = [event.type.value for event in events]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] in {"RUN_FINISHED", "RUN_ERROR"}
    assert not {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"} & set(kinds[1:-1])
    is_open: set[tuple[str, Any]] = set()
    for event in events:
        family, _, phase = event.type.value.rpartition("_")
        named = getattr(event, "message_id", None) or getattr(event, "tool_call_id", None)
        named = named or getattr(event, "step_name", "")
        paired = {"TEXT_MESSAGE", "TOOL_CALL", "STEP", "REASONING", "REASONING_MESSAGE"}
        if family in paired and phase != "RESULT":
            key = (family, named)
            assert (key in is_open) is (phase not in {"START", "STARTED"}), event
            is_open ^= {key} if phase in {"START", "STARTED", "END", "FINISHED"} else set()
    assert not is_open


def erase(name: str) -> ModelReply:
    return ModelReply(text="", calls=(ToolCall(id="c1", name="erase", arguments={"name": name}),))


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == core.EventType.TEXT_MESSAGE_CONTENT)


def snapshot_in(events: list[Any]) -> Any:
    """The history that a client keeps."""
    return [event for event in events if event.type == core.EventType.MESSAGES_SNAPSHOT][-1]


def shown_after(before: list[dict[str, Any]], events: list[Any]) -> list[tuple[str, str]]:
    """Roles and texts that the official client shows: a snapshot keeps known ids in their places, then adds others."""
    shown = {each["id"]: (each["role"], each["content"]) for each in before}
    for event in events:
        if event.type == core.EventType.TEXT_MESSAGE_CONTENT:
            role, text = shown.get(event.message_id, ("assistant", ""))
            shown[event.message_id] = (role, text + event.delta)
        elif event.type == core.EventType.MESSAGES_SNAPSHOT:
            given = {each.id: (each.role, each.content) for each in event.messages}
            shown = {name: given[name] for name in shown if name in given} | given
    return list(shown.values())


def test_an_answer_streams_and_the_thread_goes_on(thread: Thread) -> None:
    thread.say(f"[[pause:story]] [[reply:{STORY}]]")
    kinds: list[str] = []
    running = MEANWHILE.submit(thread.post, thread.body(), lambda event: kinds.append(event.type.value))
    until(lambda: "TEXT_MESSAGE_CONTENT" in kinds, 20, "the text comes while the model is still at work")
    thread.site.model.release("story")
    heard = running.result(45)
    assert text_of(heard) == STORY
    assert heard[-1].outcome.type == "success"
    assert heard[-1].usage[0].output_tokens > 0
    assert "very long answer" in text_of(thread.run("what did you say before?"))
    [session] = Session.objects.filter(agent=thread.person.agent, key__startswith="web:ag-ui-")
    assert heard[0].metadata["rondo"]["session"] == str(session.pk)
    assert Turn.objects.filter(session=session).count() == 2


def test_reasoning_is_streamed_beside_the_answer(thread: Thread) -> None:
    thread.say(f"[[hold:thought]] [[think:let me see]] [[reply:{STORY}]]")
    running = MEANWHILE.submit(thread.post, thread.body())
    until(lambda: thread.site.metric("rondo_event_subscribers") >= 1, 10, "a late stream hears no thoughts")
    thread.site.model.release("thought")
    events = running.result(45)
    thought = [event.delta for event in events if event.type == core.EventType.REASONING_MESSAGE_CONTENT]
    assert "".join(thought) == "let me see"
    assert text_of(events) == STORY


@pytest.mark.rule("3.6")
def test_a_run_says_how_an_answer_ended_that_is_not_whole(thread: Thread) -> None:
    assert thread.run("[[ends:length]][[reply:Half]]hi")[-1].result == {"ended_by": "length"}
    assert thread.run("[[reply:All]]hi")[-1].result is None


def test_two_first_runs_of_one_thread_open_one_session(thread: Thread) -> None:
    firsts = [[{"id": f"m{number}", "role": "user", "content": "hello"}] for number in range(4)]
    runs = [MEANWHILE.submit(thread.post, thread.body(messages=each)) for each in firsts]
    assert all(run.result(45)[-1].outcome.type == "success" for run in runs)
    assert Session.objects.filter(key__startswith="web:ag-ui-").count() == 1
    assert Turn.objects.filter(state="succeeded").count() == 4


def test_tool_calls_and_their_results_are_told(thread: Thread) -> None:
    thread.site.model.answer_with(
        ModelReply(text="", calls=(ToolCall(id="c1", name="count", arguments={"name": "sheep"}),)),
        ModelReply(text="There is one."),
    )
    events = thread.run("count the sheep")
    [begun] = [event for event in events if event.type == "TOOL_CALL_START"]
    [arguments] = [event for event in events if event.type == "TOOL_CALL_ARGS"]
    [result] = [event for event in events if event.type == "TOOL_CALL_RESULT"]
    assert (begun.tool_call_name, json.loads(arguments.delta)) == ("count", {"name": "sheep"})
    assert (result.tool_call_id, result.content) == (begun.tool_call_id, "counted sheep")
    assert text_of(events) == "There is one."


@pytest.mark.parametrize(("approved", "runs"), [(True, 1), pytest.param(False, 0, marks=pytest.mark.full)])
def test_consent_is_an_interrupt_that_names_the_call(thread: Thread, approved: bool, runs: int) -> None:
    name = f"agui{runs}"
    asked = erase(name)
    thread.site.model.answer_with(asked)
    [interrupt] = thread.run("erase the disk")[-1].outcome.interrupts
    [call] = interrupt.metadata["rondo"]["calls"]
    assert (call["name"], call["arguments"]) == ("erase", {"name": name})
    again = asked if approved else ModelReply(text="As you like.")
    thread.site.model.answer_with(again, ModelReply(text="Done."))
    events = thread.post(thread.resume(interrupt.id, {"approved": approved}))
    thread.site.model.forget_script()
    assert events[-1].outcome.type == "success"
    assert calls(thread.site.fleet.folder, name) == runs


def test_an_answer_with_a_question_and_a_failure_are_shown_once(thread: Thread) -> None:
    model = thread.site.model
    for said in ("I would like to. \n", "One.\n\nTwo.", ""):
        model.answer_with(replace(erase("once"), text="Let me see. "), ModelReply(text=said))
        events = thread.run("erase the disk")
        question = ConsentQuestion.objects.latest("asked_seq").text
        assert text_of(events).split() == f"Let me see. {said} {question}".split()
        assert events[-1].outcome.interrupts[0].message == question
    model.forget_script()
    thread.say("[[fail:400]] hello")
    body = thread.body()
    for _ in range(2):  # as it happens, and for a client that comes back
        events = thread.post(body)
        assert events[-1].type == core.EventType.RUN_ERROR
        shown = str([event for event in events[:-1] if event.type != core.EventType.RUN_STARTED])
        assert Turn.objects.latest("pk").error not in shown
    assert Turn.objects.latest("pk").error in str(snapshot_in(thread.post(thread.body(messages=[]))))


@pytest.mark.rule("3.5")
def test_a_yes_that_is_only_said_is_no_consent(thread: Thread) -> None:
    thread.site.model.answer_with(erase("never"), erase("never"))
    assert thread.run("erase the disk")[-1].outcome.type == "interrupt"
    thread.run("yes")
    assert ConsentQuestion.objects.filter(state="granted").count() == 0
    assert calls(thread.site.fleet.folder, "never") == 0


def test_only_a_payload_of_the_schema_and_of_the_thread_gives_consent(thread: Thread, bob: Caller) -> None:
    thread.site.model.answer_with(erase("never"))
    [interrupt] = thread.run("erase the disk")[-1].outcome.interrupts

    for_each(
        [None, "yes", {"approved": "true"}, {"approved": 1}, {"approved": True, "calls": []}, {}],
        lambda payload: thread.refused(thread.resume(interrupt.id, payload), 400, "bad_answer"),
    )
    other = Thread(site=thread.site, person=thread.person, token=thread.token, id="another thread")
    for client in (other, Thread(site=thread.site, person=_with_agent(bob), token=bob.token)):
        client.refused(client.resume(interrupt.id, {"approved": True}), 404, "not_found")
    assert ConsentQuestion.objects.get().state == "open"


def test_a_question_of_a_plan_is_answered_by_its_id_and_once(thread: Thread) -> None:
    thread.person.agent.engine = Engine.PLANNER
    thread.person.agent.save()
    events = thread.run("think about paint, then ask me which colour, then paint the door")
    assert {"ACTIVITY_SNAPSHOT", "STEP_STARTED"} <= {event.type.value for event in events}
    [interrupt] = events[-1].outcome.interrupts
    assert "Which colour?" in interrupt.message
    body = thread.resume(interrupt.id, {"answer": "blue"})
    assert "blue" in text_of(thread.post(body))
    assert thread.post(body)[-1].type == "RUN_FINISHED"
    assert Turn.objects.count() == 2
    thread.refused(thread.body(resume=body["resume"]), 409, "question_closed")


def test_a_history_that_another_window_left_behind_is_refused(thread: Thread) -> None:
    thread.run("first")
    stale = list(thread.messages)
    thread.run("second")
    thread.messages = stale
    thread.say("edited second")
    thread.refused(thread.body(), 409, "history_diverged")
    assert not Message.objects.filter(content="edited second").exists()


def test_a_client_that_disconnects_cancels_nothing(thread: Thread) -> None:
    thread.say(f"[[pause:gone]] [[reply:{STORY}]]")
    body = thread.body()
    with thread.open(body) as answer:
        for line in answer.iter_lines():
            if "TEXT_MESSAGE_CONTENT" in line:
                break
    thread.site.model.release("gone")
    until(lambda: Turn.objects.get().state == "succeeded", 20, "the turn ends")
    again = thread.post(body)
    assert (again[-1].outcome.type, Turn.objects.count()) == ("success", 1), "sent again it is the same turn"
    snapshot = snapshot_in(again)
    assert [(each.role, each.content) for each in snapshot.messages][1:] == [("assistant", STORY)]
    assert snapshot.messages[0].id == thread.messages[0]["id"]


def test_a_cancelled_turn_says_so(thread: Thread) -> None:
    thread.say("[[hold:stop]] hello")
    running = MEANWHILE.submit(thread.post, thread.body())
    until(lambda: Turn.objects.filter(state="running").exists(), 20, "the turn runs")
    with thread.site.client(thread.token) as http:
        assert http.post(f"/api/turns/{Turn.objects.get().pk}/cancel/").status_code == 202
    assert running.result(45)[-1].outcome.type == "cancelled"


def test_a_thread_without_a_new_message_gets_its_history(thread: Thread) -> None:
    thread.run(f"[[reply:{STORY}]]")
    started, _empty, snapshot, end = thread.post(thread.body(messages=[]))
    assert started.metadata["rondo"]["turn"] is None
    assert [each.role for each in snapshot.messages] == ["user", "assistant"]
    assert end.outcome.type == "success"
    assert Turn.objects.count() == 1


def test_an_image_reaches_the_model(thread: Thread) -> None:
    image = b64encode(b"\x89PNG\r\n\x1a\nfor-ag-ui").decode()
    source = {"type": "data", "value": image, "mimeType": "image/png"}
    parts = [{"type": "text", "text": "[[reply:A dog.]]what is it?"}, {"type": "image", "source": source}]
    thread.messages.append({"id": "i1", "role": "user", "content": parts})
    assert text_of(thread.post(thread.body())) == "A dog."
    assert image in str(thread.site.model.requests[-1].body)
    assert Message.objects.get(role="user").content == "[[reply:A dog.]]what is it?\n\n[image]"


def test_a_session_of_the_person_is_a_thread_by_its_id(thread: Thread, bob: Caller) -> None:
    session = thread.person.session()
    thread.id = str(session.pk)
    thread.run("hello")
    assert Turn.objects.get().session_id == session.pk
    other = Thread(site=thread.site, person=_with_agent(bob), token=bob.token, id=str(session.pk))
    other.run("mine")
    assert Turn.objects.filter(session=session).count() == 1, "another user's id names a thread of its own"


def test_what_is_no_run_is_refused_and_opens_nothing(ada: Caller) -> None:
    def check(more: dict[str, Any], code: str) -> None:
        body = {"threadId": "t", "runId": "r", "messages": []} | more
        problem(ada.post("/ag-ui/demo/", body, Accept="text/event-stream"), 400, code)
        assert not Turn.objects.exists()

    def said(content: Any, role: str = "user", **more: str) -> dict[str, Any]:
        return {"messages": [{"id": "1", "role": role, "content": content} | more]}

    def image(**source: str) -> dict[str, Any]:
        return said([{"type": "image", "source": source}])

    rows = [
        ({"messages": "no"}, "bad_run"),
        ({"threadId": ""}, "bad_run"),
        ({"threadId": "x" * 151}, "bad_run"),
        ({"threadId": "a\nb"}, "bad_run"),
        ({"runId": None}, "bad_run"),
        (said(""), "empty_message"),
        (said("x", role="tool", toolCallId="c"), "unsupported_message"),
        (image(type="url", value="https://a.example/b.png"), "unsupported_message"),
        (image(type="data", value="PHN2Zz4=", mimeType="image/png"), "bad_image"),
        ({"resume": [{"interruptId": "consent:none", "status": "resolved"}] * 2}, "bad_run"),
    ]
    for_each(rows, check)


def test_a_thread_needs_a_token_and_an_own_agent(ada: Caller, bob: Caller, nobody: Any) -> None:
    body = {"threadId": "t", "runId": "r", "messages": []}
    assert nobody.post("/ag-ui/demo/", body, content_type="application/json").status_code == 401
    ada.agent("other")
    problem(bob.post("/ag-ui/other/", body), 404, "not_found")


def _with_agent(caller: Caller) -> Person:
    agent = caller.user.agents.get()
    return Person(user=caller.user, agent=agent)
