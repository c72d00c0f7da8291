"""The judge of a reply that nobody waited for: whatever keeps it from judging means yes (rule 4.1)."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_core.exceptions import ModelRefused, Stale
from agent_core.llm.protocol import ModelReply
from agent_core.text import fence
from agent_core.turn.control import TurnControl
from agent_core.turn.judge import NO_REASON, evaluate_response, read_verdict
from agent_core.types import Ended, Ending, TurnResult, Usage, Verdict
from tests.agent_core.fakes import QUICK, assistant, request, says, script, user
from tests.agent_core.text.test_fence import RULE
from tests.fleet import until
from tests.model_server import ModelServer

pytestmark = pytest.mark.rule("4.1")

NETWORK = "openai-chat:local-model"
TALK = Usage(input_tokens=5, output_tokens=5, requests=1)


def said(reply: str) -> TurnResult:
    return TurnResult(ending=Ending.SUCCEEDED, entries=(assistant(reply),), usage=TALK)


def judged(
    reply: str, *, model: str = "scripted", task: str = "look", control: TurnControl | None = None
) -> TurnResult:
    return evaluate_response(
        said(reply), task=task, request=request(model=model), control=control or TurnControl()
    )


VERDICTS = {
    '{"notify": true, "reason": "It is news."}': (True, "It is news."),
    '{"notify": false, "reason": "Nothing\\nnew."}': (False, "Nothing new."),
    '```json\n{"reason": "routine", "notify": "no"}\n```': (False, "routine"),
    'I think {this}: {"notify": "Yes"} is right.': (True, NO_REASON),
    '{"verdict": 1} {"notify": false}': (False, NO_REASON),
    "No - a routine check.": (False, "a routine check"),
    "**Yes**": (True, NO_REASON),
}
UNREADABLE = (
    '{"notify": null, "reason": 7}',
    '{"notify": 1}',
    "Nobody knows.",
    "",
    "{" * 500,
    '{"a":' * 5000,
)


def test_a_verdict_is_read_only_from_json_or_plain_words() -> None:
    verdicts = {answer: Verdict(notify=notify, reason=why) for answer, (notify, why) in VERDICTS.items()}
    assert {answer: read_verdict(answer) for answer in VERDICTS} == verdicts
    assert [answer for answer in UNREADABLE if read_verdict(answer) is not None] == []


@pytest.mark.full
@given(st.text() | st.text(alphabet='{}[]":,notify truefals').map(lambda text: '{"notify":' + text))
def test_no_answer_breaks_the_reading(answer: str) -> None:
    verdict = read_verdict(answer)
    if verdict is not None:
        assert verdict.reason
        assert len(verdict.reason) <= 300


def test_an_error_or_an_unreadable_answer_means_yes() -> None:
    cut = ModelReply(text='{"notify": false, "reason": "It is"}', ended_by=Ended.LENGTH)
    for answer in (says("Who can tell?"), says(""), cut, ModelRefused("no"), RuntimeError("a bug")):
        script(answer)
        result = judged("the house is on fire")
        assert result.verdict is not None
        assert (result.verdict.notify, result.verdict.reason[:12]) == (True, "Not judged: ")
        assert (result.ending, result.reply) == (Ending.SUCCEEDED, "the house is on fire")


def test_the_judge_sees_only_task_and_reply_and_tokens_count() -> None:
    model = script(says('{"notify": false, "reason": "old"}'))
    given = request(history=(user("secret"),))
    control = TurnControl()
    result = evaluate_response(said("as before"), task="go and look", request=given, control=control)
    assert result.verdict == Verdict(notify=False, reason="old")
    [call] = model.calls
    assert call.tools == ()
    assert RULE in call.system_prompt
    task, answer = fence.fenced("task", "go and look"), fence.fenced("answer", "as before")
    assert [entry.content for entry in call.entries] == [f"## Task\n\n{task}\n\n## Answer\n\n{answer}"]
    assert control.used == Usage(input_tokens=10, output_tokens=2, requests=1)


@pytest.mark.parametrize("network", [False, True], ids=["offline", "over the network"])
def test_the_offline_rules_judge_also_over_the_network(server: ModelServer, network: bool) -> None:
    quiet = ("There is nothing to report today.", "I looked: no changes.", "All quiet.")
    news = ("Take the bread out of the oven!", "The nothing-burger is served.")
    for reply in quiet + news:
        verdict = judged(reply, model=NETWORK if network else "offline").verdict
        assert verdict is not None
        assert verdict.notify is (reply in news), reply
    assert len(server.requests) == (len(quiet + news) if network else 0)


def test_an_unavailable_judge_means_yes_after_the_policys_retries(server: ModelServer) -> None:
    result = judged("x", model=NETWORK, task="[[judge-fail:503]] look")
    reason = "Not judged: The model provider is overloaded (503: service unavailable)."
    assert result.verdict == Verdict(notify=True, reason=reason)
    assert [received.state for received in server.requests] == ["failed"] * QUICK.max_attempts


SIGNALS = {"cancel": (None, Ending.CANCELLED, "news"), "stop": (None, Ending.HANDED_BACK, ""), "lose": None}


@pytest.mark.parametrize("signal", SIGNALS)
def test_what_is_asked_of_the_turn_meanwhile_counts(server: ModelServer, signal: str) -> None:
    control = TurnControl()
    with ThreadPoolExecutor(1) as pool:
        task = "[[judge-hold:j]] look"
        judging = pool.submit(judged, "news", model=NETWORK, task=task, control=control)
        until(lambda: server.held.get("j"))
        getattr(control, signal)()
        if signal == "lose":
            with pytest.raises(Stale):
                judging.result(10)
        else:
            outcome = judging.result(10)
            assert (outcome.verdict, outcome.ending, outcome.reply) == SIGNALS[signal]
