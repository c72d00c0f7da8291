"""The size of a request: all of it counts, the oldest observations give way first (rule 7.6)."""

from dataclasses import replace

import pytest

from agent_core.connections import hooks
from agent_core.llm import tokens
from agent_core.llm.protocol import ModelCall
from agent_core.turn import request_size
from agent_core.types import Entry, Role
from tests.agent_core.fakes import (
    Ports,
    built,
    calls,
    drive,
    made,
    request,
    says,
    script,
    spec,
    tool_call,
    user,
)

pytestmark = pytest.mark.rule("7.6")

LIMIT = 6000
TOOL = spec("look", description="Looks.")


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "context_tokens", lambda: LIMIT)
    # not the one of the last turn in this thread, which may have a smaller context
    request_size.use_model("", ())


def looked(number: int, output: str) -> tuple[Entry, Entry]:
    return made(tool_call("look", n=number), output)


def size(call: ModelCall) -> int:
    spent = tokens.of_text(call.system_prompt) + request_size.of_tools(call.tools)
    return spent + sum(map(tokens.of_entry, call.entries))


def call_of(*entries: Entry, kept: int = 3, system: str = "s") -> ModelCall:
    return ModelCall(system_prompt=system, entries=entries, tools=(TOOL,), kept=kept)


def test_the_oldest_observations_give_way_first_and_say_so() -> None:
    words = "word " * 2000
    entries = [entry for number in range(6) for entry in looked(number, f"result {number}: {words}")]
    fitting = call_of(user("go"), *looked(1, "word " * 1000))
    assert request_size.fit_call(fitting) is fitting
    call = call_of(user("go"), *entries, kept=len(entries) + 1)
    cut = request_size.fit_call(call)
    assert size(cut) <= LIMIT
    assert len(cut.entries) == len(call.entries)
    outputs = [result.output for entry in cut.entries for result in entry.results]
    assert outputs[-1] == call.entries[-1].results[0].output, "the newest is whole"
    assert "characters left out" in outputs[0]
    lengths = [len(output) for output in outputs]
    assert lengths == sorted(lengths), "the older, the shorter"


def test_the_oldest_messages_are_dropped_and_results_keep_their_call() -> None:
    past = [
        user("first " + "word " * 1000),
        *looked(1, "short"),
        *(user(f"{n} " + "word " * 1000) for n in range(8)),
    ]
    cut = request_size.fit_call(call_of(*past, user("now"), kept=1))
    assert size(cut) <= LIMIT
    assert cut.entries[-1].content == "now"
    assert cut.entries[0].role is not Role.TOOL
    assert cut.entries[:-1] == tuple(past[-len(cut.entries) + 1 :])


def test_what_was_held_stays_however_long_the_past_is() -> None:
    held = replace(user("Fact: the cat is Tom"), stays=True)
    past = [user(f"{n} " + "word " * 1000) for n in range(12)]
    cut = request_size.fit_call(call_of(held, *past, user("now"), kept=1))
    assert size(cut) <= LIMIT
    assert cut.entries[0] is held
    assert cut.entries[1:-1] == tuple(past[-len(cut.entries) + 2 :])
    assert request_size.fit_call(call_of(held, user("short"), user("now"), kept=1)).entries[0] is held


def test_the_newest_observations_are_cut_in_the_end() -> None:
    cut = request_size.fit_call(call_of(user("go"), *looked(1, "begin " + "word " * 30_000 + "end"), kept=3))
    assert size(cut) <= LIMIT
    output = cut.entries[-1].results[0].output
    assert output.startswith("begin word")
    assert output.endswith("word end")


def test_a_long_system_prompt_leaves_a_quarter_to_the_rest() -> None:
    past = [user(f"{n} " + "word " * 200) for n in range(40)]
    cut = request_size.fit_call(call_of(*past, system="word " * 20_000))
    assert LIMIT // 8 < sum(map(tokens.of_entry, cut.entries)) <= LIMIT // 4


def test_a_turn_that_reads_much_stays_within_it() -> None:
    """Each result has its 50,000 characters; the request has 6,000 tokens."""
    model = script(*(calls(tool_call("read", n=n)) for n in range(5)), says("done"))
    ports = Ports(on_call=lambda _call: "word " * 10_000)
    drive(request(), ports)
    assert [size(call) <= LIMIT for call in model.calls] == [True] * 6


def test_documents_take_at_most_half_and_the_longest_are_shortened() -> None:
    documents = {"AGENTS.md": "Be brief.", "MEMORY.md": "begin " + "word " * 40_000 + "end"}
    prompts = [built("primary", documents=documents).system_prompt for _ in range(2)]
    assert prompts[0] == prompts[1]
    assert tokens.of_text(prompts[0]) < LIMIT // 2 + 1000
    assert "\nBe brief.\n" in prompts[0]
    assert "begin word" in prompts[0]
    assert "word end\n" in prompts[0]
