"""Caps and prices over the API, and what was used (rule 11.1)."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sessions_app.models import Agent, Spending, Turn
from sessions_app.spending.caps import period_of
from tests.api.conftest import Caller, made, problem

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.1")]

LIMITS = {"run": {"tokens": 20_000, "usd": "0.50"}, "month": {"usd": "12.50"}}
DAILY = {"kind": "cron", "expr": "0 9 * * *"}


def resources(caller: Caller) -> list[str]:
    """An agent, an automation, a routine and a connection."""
    automation = caller.automation(caller.session(), schedule=DAILY, limits={})
    task = {"title": "tea", "schedule": "1d", "limits": {"day": {"tokens": 9}}}
    routine = made(caller.post("/api/agents/demo/routines/", task))
    assert routine["limits"]["day"]["tokens"] == 9
    given = {"name": "work", "provider": "openai-chat", "secret": "key-of-a-test"}
    made(caller.post("/api/connections/", given))
    of_jobs = [f"/api/automations/{automation['id']}/", f"/api/routines/{routine['id']}/"]
    return ["/api/agents/demo/", *of_jobs, "/api/connections/work/"]


def test_caps_are_merged_and_shown_with_what_is_spent(ada: Caller) -> None:
    paths = resources(ada)
    prices = {"gpt": {"input": "1.25", "output": "10"}, "*": {"input": "0", "output": "0"}}
    assert ada.patch(paths[-1], {"prices": prices}).json()["prices"] == prices
    for path in paths:
        assert ada.patch(path, {"limits": LIMITS}).status_code == 200, path
        answer = ada.patch(path, {"limits": {"run": {"tokens": None}, "day": {"tokens": 5}}})
        limits = answer.json()["limits"]
        limits.pop("requests_per_minute", None)
        assert limits["run"] == {"usd": "0.50"}
        assert limits["day"]["spent"] == {"tokens": 0, "usd": "0.000000"}
        assert datetime.fromisoformat(limits["month"]["resets_at"]) > datetime.now(UTC)
        answer = ada.patch(path, {"limits": {"run": None, "day": None, "month": None}})
        assert answer.json()["limits"] in ({}, {"requests_per_minute": 0})


def test_lists_read_what_is_spent_once(ada: Caller, django_assert_max_num_queries: Any) -> None:
    for number in range(5):
        ada.agent(f"a{number}")
    Agent.objects.update(limits={"day": {"tokens": 9}})
    day, _ = period_of("day", "UTC", datetime.now(UTC))
    for agent in Agent.objects.all():
        Spending.objects.create(key=f"agent:{agent.pk}:day:{day}", spent_tokens=agent.pk)
    with django_assert_max_num_queries(8):
        shown = ada.get("/api/agents/").json()["results"]
    spent = {agent.name: agent.pk for agent in Agent.objects.all()}
    assert {each["name"]: each["limits"]["day"]["spent"]["tokens"] for each in shown} == spent


def used(caller: Caller, session: str, model: str, **usage: Any) -> None:
    counts = {"input_tokens": 70, "output_tokens": 30, "requests": 1} | usage
    of = {"session_id": session, "owner_id": caller.user.pk, "kind": "automation", "lane": "auto"}
    run = {"origin_run": "abc:1", "metadata": {"automation_name": "news"}}
    ended = {"state": "succeeded", "finished_at": datetime.now(UTC)}
    Turn.objects.create(**of, **run, **ended, model=model, usage=counts)


def test_usage_is_summed_by_what_is_asked_and_is_ones_own(ada: Caller, bob: Caller) -> None:
    session = ada.session()
    used(ada, session, "work:gpt-5", usd="0.500000")
    used(ada, session, "work:gpt-5", usd="0.250000")
    used(ada, session, "nowhere")
    used(bob, bob.session(), "work:gpt-5", usd="9.000000")
    today = datetime.now(UTC).date().isoformat()
    whole = {"calls": 3, "input_tokens": 210, "output_tokens": 90, "usd": "0.750000", "unpriced_tokens": 100}
    priced = {"calls": 2, "input_tokens": 140, "output_tokens": 60, "usd": "0.750000", "unpriced_tokens": 0}
    for by, key, name, sums in (
        ("agent", "demo", "demo", whole),
        ("automation", "abc", "news", whole),
        ("day", today, today, whole),
        ("session", session, None, whole),
        ("model", "work:gpt-5", "work:gpt-5", priced),
        ("connection", "work", "work", priced),
    ):
        answer = ada.get(f"/api/usage/?by={by}").json()
        row = answer["results"][0]
        assert row | {"name": name or row["name"]} == {"key": key, "name": name or row["name"], **sums}, by
        assert len(answer["results"]) == 1 + (by == "model")


def test_usage_takes_a_bounded_span(ada: Caller) -> None:
    problem(ada.get("/api/usage/?since=2020-01-01T00:00:00Z&until=2027-01-01T00:00:00Z"), 400, "bad_since")
    problem(ada.get("/api/usage/?since=2027-01-02T00:00:00Z&until=2027-01-01T00:00:00Z"), 400, "bad_since")
    assert ada.get("/api/usage/?until=0001-01-01T00:00:00Z").json()["results"] == []
