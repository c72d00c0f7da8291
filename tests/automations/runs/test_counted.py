"""What turns used is what the caps counted: each model call that was made for a turn is in its usage (rule 11.1)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.urls import reverse

from agent_core.llm.protocol import ModelReply
from agent_core.prices import use_own_prices
from agent_core.types import Ended, Usage
from automations.jobs.explain import explain
from automations.models import CronJob, RunRecord
from automations.selectors import usage_of_runs
from sessions_app.connections.edit import add_connection
from sessions_app.connections.usable import model_warnings, unpriced_models
from sessions_app.models import Agent, Message, Turn
from sessions_app.reads.usage import usage_of
from tests.agent_core.planner.plans import RESPOND, plan
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.turn_kinds.test_heartbeat import awake, beat, inside
from tests.automations.turn_kinds.test_legacy import legacy_job
from tests.automations.web.test_addresses import signed_in
from tests.inside import MODEL, Inside, during
from tests.races import only_rows
from tests.sessions_app.spending.test_calls import FREE, USED, cap, priced, says, today
from tests.sessions_app.test_permits import stop
from tests.sessions_app.turns.test_compression import long_session

__all__ = ["awake", "inside", "priced"]  # fixtures

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.rule("11.1"),
    pytest.mark.usefixtures("priced"),
]

PLAIN = {"day": {"tokens": 10**9, "usd": "100.00"}}  # stops nothing, and counts
NOT_WHOLE = replace(says("I think that"), ended_by=Ended.LENGTH)


def reported(inside: Inside) -> int:
    """The micro-dollars of all turns, which are as many as the caps counted, and as many calls as were made."""
    turns = [Usage.from_json(turn.usage) for turn in Turn.objects.all()]
    assert sum(used.requests for used in turns) == len(inside.model.calls)
    assert sum(used.micro_usd for used in turns) == today(inside).spent_micro_usd
    until = datetime.now(UTC) + timedelta(minutes=1)
    [row] = usage_of(inside.person.user, "agent", until - timedelta(days=1), until).results
    assert (row.calls, row.usd) == (len(inside.model.calls), f"{today(inside).spent_micro_usd / 10**6:.6f}")
    return len(inside.model.calls)


@pytest.mark.parametrize("answer", [says("no JSON"), NOT_WHOLE], ids=["unreadable", "cut"])
def test_a_turn_used_the_summaries_that_nobody_could_use(
    inside: Inside, settings: Any, answer: ModelReply
) -> None:
    settings.RONDO_CONTEXT_TOKENS, settings.RONDO_WINDOW_MESSAGES = 6000, 10
    cap(inside, **PLAIN)
    inside.say(long_session(inside.person), "hi", says("Hello."), answer)
    assert reported(inside) == 2


def test_a_heartbeat_used_the_summaries_that_nobody_could_use_and_asks_once(
    inside: Inside, settings: Any
) -> None:
    settings.RONDO_WINDOW_MESSAGES = 8
    cap(inside, **PLAIN)
    chats = [inside.person.session() for _ in range(2)]
    for chat in chats:
        inside.say(chat, "hello", says("Hello."))
    inside.model.answer_with(says("no JSON"), NOT_WHOLE, says("HEARTBEAT_OK"))
    beat(inside)
    assert reported(inside) == 5
    inside.model.answer_with(says("HEARTBEAT_OK"))
    beat(inside)
    assert reported(inside) == 6, "the same messages are not summarised again"
    inside.say(chats[0], "more", says("Well."))
    inside.model.answer_with(says("HEARTBEAT_OK"))
    beat(inside)
    inside.say(chats[0], "and more", says("Well."))
    inside.model.answer_with(says("no JSON"), says("HEARTBEAT_OK"))
    beat(inside)
    assert reported(inside) == 11, "it is asked again after half a window of new messages"


def test_a_summary_that_reached_no_model_is_asked_for_at_the_next_heartbeat(inside: Inside) -> None:
    cap(inside, **PLAIN)
    inside.say(inside.person.session(), "hello", says("Hello."))
    for calls in (1, 2):
        inside.model.answer_with(FREE, says("HEARTBEAT_OK"))
        beat(inside)
        assert len(inside.model.calls) == 1 + 2 * calls


def test_a_run_used_its_judge_though_it_was_cut(inside: Inside) -> None:
    cap(inside, **PLAIN)
    legacy_job(inside.person)
    inside.model.answer_with(says("The sky is blue."), NOT_WHOLE)
    inside.beat()
    assert reported(inside) == 2
    assert RunRecord.objects.get().usage["requests"] == 2


def test_a_run_used_the_answer_that_a_stopping_worker_gave_back(inside: Inside) -> None:
    legacy_job(inside.person)
    answer = says("The sky is blue.")
    inside.model.answer_with(answer, during(partial(stop, inside), says("yes")), answer, says("yes"))
    inside.beat()
    assert (len(inside.model.calls), RunRecord.objects.get().usage["requests"]) == (4, 3)


@pytest.mark.parametrize("plans", [False, True], ids=["plain", "planned"])
def test_a_turn_whose_answer_could_not_be_stored_used_it(inside: Inside, plans: bool) -> None:
    if plans:
        inside.planner()
        inside.model.answer_with(replace(plan(RESPOND), usage=USED))
    cap(inside, **PLAIN)
    inside.model.replies.append(says("Unstorable."))
    with only_rows(Message, "content <> 'Unstorable.'"):
        turn = inside.say(inside.person.session(), "hello")
    assert turn.state == "failed"
    assert reported(inside) == 1 + plans


def test_a_cap_in_dollars_says_that_it_does_not_stop_a_model_without_a_price(inside: Inside) -> None:
    """And what such a model used is of unknown cost."""
    person = inside.person
    job = due_job(person.session(), limits={"run": {"usd": "0.10"}})
    client = signed_in(person)

    def said() -> dict[str, bool]:
        agent, url = person.agent, reverse("why", args=[job.session_id, "automation", job.pk])
        person.agent.refresh_from_db()
        shown: dict[str, Any] = {
            "automation": explain(person.user, job.pk).warnings,
            "agent": model_warnings(agent).caps,
            "agent's page": client.get(f"/agents/{agent.name}/").content.decode(),
            "its own page": client.get(url).content.decode(),
        }
        return {where: MODEL in str(text) and "no price" in str(text) for where, text in shown.items()}

    assert not any(said().values()), "it has a price"
    use_own_prices({})
    assert said() == {"automation": True, "agent": False, "agent's page": False, "its own page": True}
    inside.model.answer_with(says("Done."))
    inside.beat()
    used = usage_of_runs(job.pk)
    assert (used.runs, used.unpriced_tokens, used.is_unknown, "$" in used.words) == (1, 100, True, False)
    cap(inside, day={"usd": "1.00"})
    assert all(said().values())
    CronJob.objects.filter(pk=job.pk).update(limits={"run": {"tokens": 1000}})
    cap(inside, day={"tokens": 1000})
    assert not any(said().values()), "tokens are counted"


@pytest.mark.parametrize("limits", [{"day": {"usd": "0.005"}}, {"run": {"tokens": 4000}}])
def test_a_cap_that_is_less_than_one_reply_says_so(inside: Inside, limits: dict[str, Any]) -> None:
    job = due_job(inside.person.session(), limits=limits)
    [said] = explain(inside.person.user, job.pk).warnings
    assert "longest reply" in said
    assert ("$0.005 a day" in said) or ("4,000 tokens a run" in said)
    cap(inside, **limits)
    [of_agent] = model_warnings(inside.person.agent)[1]
    assert (of_agent.partition(", ")[2], "demo" in of_agent) == (said.partition(", ")[2], True)
    Agent.objects.update(model_settings={"max_tokens": 1000})
    assert not explain(inside.person.user, job.pk).warnings


def test_a_connection_says_which_of_its_models_its_cap_in_dollars_does_not_stop(inside: Inside) -> None:
    given: dict[str, Any] = {"provider": "openai-chat", "secret": "sk-12345", "models": ["good", "dear"]}
    given |= {"limits": {"day": {"usd": "1.00"}}, "prices": {"dear": {"input": "1", "output": "2"}}}
    row = add_connection(inside.person.user, "work", given)
    page = signed_in(inside.person).get(f"/agents/{inside.person.agent.name}/").content.decode()
    [text] = unpriced_models(row)
    assert "work:good" in text
    assert text in page
    row.allowed_models = []
    assert len(unpriced_models(row)) == 1
    row.prices["*"] = row.prices["dear"]
    assert unpriced_models(row) == []
