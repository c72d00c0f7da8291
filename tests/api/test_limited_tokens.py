"""What a token of one agent or one session learns, uses and takes of its owner's."""

from __future__ import annotations

from typing import Any

import pytest

from automations.appointments.jobs import job_rows
from sessions_app.connections.edit import add_connection
from sessions_app.exceptions import TooManyStreams
from sessions_app.models import Agent, Session
from sessions_app.sessions.open import primary_session
from sessions_app.streams.rights import OpenStreams, Right
from sessions_app.tokens import tickets
from sessions_app.tokens.limits import Limit, put_limit
from tests.api.conftest import Caller, problem
from tests.api.test_lists import delivery, found
from tests.tokens import new_token

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.6")]

AGENT = "/api/agents/demo/"


def limited(ada: Caller, *scopes: str, **limits: Any) -> Caller:
    limits = limits or {"agent": Agent.objects.get(name="demo", owner=ada.user)}
    return Caller(user=ada.user, token=new_token(ada.user, *scopes, **limits))


@pytest.mark.parametrize("setting", ["model", "fallback_model"])
def test_a_limited_token_uses_and_learns_no_other_connection(ada: Caller, setting: str) -> None:
    for name in ("secret-conn", "used-conn", "spare-conn"):
        add_connection(ada.user, name, {"provider": "openai-chat", "base_url": "https://models.example/v1"})
    add_connection(None, "servers-conn", {"provider": "openai-chat", "base_url": "https://models.example/v1"})
    used = {"model": "used-conn:small", "fallback_model": "spare-conn:small"}
    assert ada.patch(AGENT, used).status_code == 200
    mine = limited(ada, "manage")
    for model in ("secret-conn:gpt-4o", "servers-conn:gpt-4o", "nix:zz"):
        text = problem(mine.patch(AGENT, {setting: model}), 400, f"bad_{setting}")["detail"]
        prefix = model.partition(":")[0]
        assert f"there is no connection {prefix!r} that this token reaches" in text
        others = {"secret-conn", "servers-conn", "used-conn", "spare-conn"} - {prefix}
        assert not [name for name in others if name in text]
    assert mine.get(AGENT).json()[setting] == used[setting]
    swapped = {"model": "spare-conn:large", "fallback_model": "used-conn:large"}
    assert mine.patch(AGENT, swapped).status_code == 200
    assert ada.patch(AGENT, {setting: "secret-conn:gpt-4o"}).status_code == 200
    assert "spare-conn" in problem(ada.patch(AGENT, {setting: "nix:zz"}), 400, f"bad_{setting}")["detail"]


def test_a_limited_token_leaves_half_of_the_rate_to_its_owner(ada: Caller, settings: Any) -> None:
    mine = limited(ada, "read")
    settings.RONDO_THROTTLE = (5, 60)  # another rate counts anew
    shown = [mine.get(AGENT).headers["RateLimit"] for _ in range(3)]
    assert shown == ['"requests";r=2;t=20', '"requests";r=1;t=40', '"requests";r=0;t=60']
    refused = mine.get(AGENT)
    problem(refused, 429, "throttled")
    assert refused.headers["RateLimit-Policy"] == '"requests";q=3;w=60'
    assert refused.headers["Retry-After"] == "20"
    answers = [ada.get(AGENT) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["RateLimit-Policy"] == '"requests";q=5;w=60'


def test_the_owners_bound_counts_for_a_limited_token_too(ada: Caller, settings: Any) -> None:
    mine = limited(ada, "read")
    settings.RONDO_THROTTLE = (5, 60)
    for _ in range(4):
        assert ada.get(AGENT).status_code == 200
    assert mine.get(AGENT).headers["RateLimit"] == '"requests";r=0;t=60'
    problem(mine.get(AGENT), 429, "throttled")


def test_a_limited_token_leaves_half_of_the_tickets_to_its_owner(
    ada: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "MOST_OPEN", 4)
    mine = limited(ada, "read", session=Session.objects.get(pk=ada.session()))
    statuses = [mine.post("/api/stream-tickets/").status_code for _ in range(3)]
    statuses += [ada.post("/api/stream-tickets/").status_code for _ in range(3)]
    assert statuses == [201, 201, 429, 201, 201, 429]


def test_a_limited_token_leaves_half_of_the_streams_to_its_owner(settings: Any) -> None:
    settings.RONDO_STREAMS_PER_USER = 4
    slots, owner = OpenStreams(), Right(user_id=7, token="all")
    mine = Right(user_id=7, token="limited", is_limited=True)
    held = [slots.take(mine), slots.take(mine)]
    with pytest.raises(TooManyStreams, match="This token has 2"):
        slots.take(mine)
    held += [slots.take(owner), slots.take(owner)]
    with pytest.raises(TooManyStreams, match="You have 4"):
        slots.take(owner)
    held[0]()
    held[0]()  # a second call frees nothing
    slots.take(mine)
    assert slots.taken(7) == 4


def test_a_token_of_one_session_is_not_shown_where_the_agents_events_go(ada: Caller) -> None:
    session = ada.session()
    sent = {"channel": "events", "address": "https://hooks.example/secret"}
    event = delivery(session, 1, **sent, event={"type": "run.failed", "data": {}})
    answer = delivery(session, 2)
    of_session = limited(ada, "read", session=Session.objects.get(pk=session))
    for address in ("/api/deliveries/", f"/api/sessions/{session}/deliveries/"):
        assert found(of_session, address) == [answer]
        assert found(limited(ada, "read"), address) == [answer, event]
    assert found(of_session, "/api/deliveries/?search=secret") == []
    assert of_session.get(f"/api/deliveries/{event}/").status_code == 404


def test_a_token_of_one_session_reaches_no_routine_and_no_heartbeat_as_an_appointment(ada: Caller) -> None:
    agent = Agent.objects.get(owner=ada.user)
    primary = primary_session(agent)
    bound = ada.automation(str(primary.pk))["id"]
    routine = ada.post(f"{AGENT}routines/", {"title": "secret", "schedule": "1d"}).json()["id"]
    assert {bound, routine} < set(job_rows(ada.user).values_list("pk", flat=True))
    put_limit(ada.user, Limit(session_id=primary.pk))
    assert list(job_rows(ada.user).values_list("pk", flat=True)) == [bound]
