"""Whatever a model said, every provider takes the next request: the real clients against a strict server."""

import json
from itertools import chain, pairwise
from typing import Any

import pytest

from agent_core.types import Ending, Entry, Image, Role, ToolCall, ToolOutcome
from tests.agent_core.fakes import (
    TOOLS,
    Ports,
    assistant,
    calls,
    drive,
    made,
    request,
    result_of,
    returned,
    says,
    user,
)
from tests.agent_core.llm.test_connections import ask, work
from tests.model_server import ModelServer

NAMES = ("", "闹钟", "gone_since")
IDS = ("", "a" * 65, "call|1:2")
FAMILIES = ("openai-chat", "openai-responses", "anthropic", "google", "mistral")


def odd(name: str = "write", call_id: str = "1", **more: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments={"n": 1}, **more)


def histories() -> dict[str, tuple[Entry, ...]]:
    """Histories as sessions have them, each with one oddity."""
    plain, both = odd(), (odd("set alarm", "1"), odd("write", "2"))
    refused, out = ToolOutcome.REFUSED, returned(result_of(plain, "out"))
    photo = Image(media_type="image/png", content=b"x")
    return {
        **{f"name {name[:9]!r}": made(odd(name), "no such tool", refused) for name in NAMES},
        **{f"id {call_id[:9]!r}": made(odd(call_id=call_id), "done") for call_id in IDS},
        "one good and one bad": (assistant("", *both), returned(*(result_of(each, "out") for each in both))),
        "the same id twice": (*made(plain, "out") * 2, assistant("Done.")),
        "no result": (assistant("", plain),),
        "a result without its call": (out, assistant("Done.")),
        "a result after a message": (assistant("", plain), user("hm"), out),
        "empty texts": (user(""), assistant(" \n"), user("  "), *made(plain, "")),
        "no arguments": made(odd(unparsed="{oops"), "not a JSON object", refused),
        "the assistant first, and twice": (assistant("Take the cake out."), assistant("Did you?")),
        "an image alone": (Entry(role=Role.USER, content="", images=(photo,)),),
    }


def talk(count: int, words: int) -> tuple[Entry, ...]:
    """A history of so many questions of so many words."""
    return tuple(
        each for n in range(count) for each in (user(f"{n} " + "word " * words), assistant("Noted."))
    )


@pytest.mark.rule("3.3")
@pytest.mark.parametrize("provider", FAMILIES)
def test_a_strict_provider_takes_the_request_after_each_oddity(server: ModelServer, provider: str) -> None:
    server.strict = True
    each_odd = histories()
    every = {"all of them": (user("hello"), *chain.from_iterable(each_odd.values()))}
    for name, history in (each_odd | every).items():
        run = ask("and now?", work(server, provider), history=history, tools=TOOLS)
        assert (run.result.ending, server.rejected) == (Ending.SUCCEEDED, []), name


@pytest.mark.rule("3.3")
@pytest.mark.parametrize("provider", FAMILIES)
def test_a_strict_provider_takes_the_next_request_of_one_turn(server: ModelServer, provider: str) -> None:
    server.strict = True
    for number, name in enumerate(NAMES):
        server.answer_with(calls(odd(name, IDS[number])), calls(odd("write", IDS[number])), says("Done."))
        ports = Ports()
        run = drive(request("go", model="work:m", connections=(work(server, provider),)), ports)
        assert (run.result.reply, server.rejected) == ("Done.", []), name
        assert [each.name for each in ports.ran] == ["write"]


@pytest.mark.rule("3.3")
def test_each_request_begins_with_the_one_before_it_to_the_byte(server: ModelServer) -> None:
    for number, name in enumerate(NAMES):
        server.answer_with(calls(odd(name, IDS[number]), odd("write", "x")))
    server.answer_with(says("Done."))
    drive(request("go", model="work:m", connections=(work(server),)))
    sent = [json.dumps(each.body["messages"])[:-1] for each in server.requests]
    assert len(sent) > 2
    assert all(later.startswith(earlier) for earlier, later in pairwise(sent))


@pytest.mark.rule("7.6")
@pytest.mark.parametrize("provider", FAMILIES)
def test_a_context_that_is_too_short_is_learned_in_the_same_turn(server: ModelServer, provider: str) -> None:
    server.most_characters = 12_000
    given: dict[str, Any] = {"history": talk(40, 200), "model": f"work:{provider}", "tools": ()}
    run = ask("and now?", work(server, provider), **given)
    assert run.result.ending is Ending.SUCCEEDED
    assert len(server.rejected) > 1
    assert {event.content["status"] for event in run.events if event.type == "status"} == {"retrying"}
    rejected = len(server.rejected)
    assert ask("and then?", work(server, provider), **given).result.ending is Ending.SUCCEEDED
    assert len(server.rejected) == rejected
    kept = len(json.dumps(server.requests[-1].body["messages"]))
    assert server.most_characters / 2 < kept <= server.most_characters


@pytest.mark.rule("7.6")
def test_a_message_that_is_longer_than_the_context_fails_and_the_next_turn_works(server: ModelServer) -> None:
    server.most_characters = 12_000
    given: dict[str, Any] = {"model": "work:long", "tools": ()}
    huge = ask("word " * 5000, work(server), **given)
    assert (huge.result.error_code, len(server.rejected)) == ("context_too_long", 1)
    history = (user("word " * 5000), assistant("The turn failed."))
    assert ask("hello", work(server), history=history, **given).result.ending is Ending.SUCCEEDED


@pytest.mark.rule("7.6")
@pytest.mark.parametrize("shows", [True, False])
def test_what_does_not_lie_at_the_length_teaches_no_shorter_context(server: ModelServer, shows: bool) -> None:
    """A proxy refuses a large image, or everything."""
    given: dict[str, Any] = {"history": talk(9, 900), "model": f"work:proxy-{shows}", "tools": ()}
    image = (Image(media_type="image/png", content=b"x" * 90),)
    server.fail_with(413, {})
    failed = ask("look", work(server), images=image if shows else (), **given)
    assert failed.result.error_code == "context_too_long"
    server.fail_with(0, {})
    assert ask("hello", work(server), **given).result.ending is Ending.SUCCEEDED
    assert len(json.dumps(server.requests[-1].body["messages"])) > 9 * 900 * 5


@pytest.mark.rule("7.6")
def test_an_image_that_passes_without_the_history_teaches_no_shorter_context(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"history": talk(9, 900), "model": "work:bytes", "tools": ()}
    image = (Image(media_type="image/png", content=b"x" * 30_000),)
    too_large = property(lambda self: (413 if len(str(self.requests[-1].body)) > 60_000 else 0, {}))
    monkeypatch.setattr(ModelServer, "failure", too_large, raising=False)
    assert ask("look", work(server), images=image, **given).result.ending is Ending.SUCCEEDED
    assert len(server.requests) > 1
    assert ask("hello", work(server), **given).result.ending is Ending.SUCCEEDED
    assert len(json.dumps(server.requests[-1].body["messages"])) > 9 * 900 * 5
