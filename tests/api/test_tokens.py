"""Tokens: made, listed, revoked and tricked; what a limited one learns, uses and takes of its owner's."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils.dateparse import parse_datetime

from automations.appointments.jobs import job_rows
from sessions_app.agents.edit import update_agent
from sessions_app.connections.edit import add_connection
from sessions_app.exceptions import TooManyStreams
from sessions_app.models import Agent, ApiToken, Session, StreamTicket, Turn
from sessions_app.sessions.open import primary_session
from sessions_app.streams.rights import OpenStreams, Right
from sessions_app.tokens import issue
from sessions_app.tokens.issue import MOST_TOKENS, hashed, note_use
from sessions_app.tokens.reach import Limit, put_limit
from tests.api.conftest import Caller, made, problem
from tests.api.test_lists import delivery, found
from tests.tokens import new_token

pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.6")]

READER = {"name": "dashboard", "scopes": ["read"]}
KEY = {"Idempotency_Key": "the-same"}
AGENT = "/api/agents/demo/"


def caller(ada: Caller, *scopes: str, **limits: Any) -> Caller:
    return Caller(user=ada.user, token=new_token(ada.user, *scopes, **limits))


def demo() -> Any:
    return Agent.objects.get(name="demo", owner__username="ada")


def soon(**more: float) -> str:
    return (datetime.now(UTC) + timedelta(**more)).isoformat()


def expire(rows: QuerySet[Any]) -> None:
    """As if they had been made for a time that is over."""
    rows.update(created_at=Now() - timedelta(days=1), expires_at=Now() - timedelta(minutes=10))


def test_a_token_is_shown_once_and_stored_as_a_hash(ada: Caller) -> None:
    answer = ada.post("/api/tokens/", {**READER, "agent": "demo", "expires_at": soon(days=3)})
    body = made(answer)
    token = body.pop("token")
    assert answer.headers["Cache-Control"] == "no-store"
    assert body["scopes"] == ["read"]
    assert (body["agent"], body["session"], body["last_used_at"]) == ("demo", None, None)
    assert body == ada.get(answer.headers["Location"]).json()
    assert body in ada.get("/api/tokens/").json()["results"]
    row = ApiToken.objects.get(pk=body["id"])
    assert (row.token_sha256, row.prefix) == (hashed(token), token[:8])
    assert token not in str(ApiToken.objects.values()) + ada.get("/api/tokens/").content.decode()
    mine = Caller(user=ada.user, token=token)
    assert mine.get("/api/agents/").status_code == 200
    assert ada.delete(answer.headers["Location"]).status_code == 204
    problem(mine.get("/api/agents/"), 401, "not_authenticated")
    problem(ada.delete(answer.headers["Location"]), 404, "not_found")


def test_a_user_has_a_bounded_number_of_tokens(ada: Caller, bob: Caller) -> None:
    for number in range(MOST_TOKENS - 1):
        new_token(ada.user, "read", name=str(number))
    problem(ada.post("/api/tokens/", READER), 409, "too_many_tokens")
    made(bob.post("/api/tokens/", READER))


def test_a_token_makes_none_with_more_than_it_has(ada: Caller) -> None:
    """Neither by scope, nor by reach, nor by time."""
    for scopes in (["read"], ["talk", "schedule"]):
        problem(caller(ada, *scopes).post("/api/tokens/", READER), 403, "insufficient_scope")
    session = Session.objects.get(pk=ada.session())
    for limit in ({"agent": demo()}, {"session": session}):
        problem(caller(ada, "manage", **limit).post("/api/tokens/", READER), 403, "beyond_limit")
    end = datetime.now(UTC) + timedelta(hours=1)
    passing = caller(ada, "manage", expires_at=end)
    for later in (None, soon(hours=2)):
        problem(passing.post("/api/tokens/", READER | {"expires_at": later}), 400, "bad_expires_at")
    problem(passing.post("/api/tokens/", READER), 400, "bad_expires_at")
    made(passing.post("/api/tokens/", READER | {"expires_at": end.isoformat()}))


def test_only_a_token_that_manages_everything_sees_the_others(ada: Caller) -> None:
    others = [ada.user.api_tokens.get().pk]
    for reader in (caller(ada, "read", "talk", "schedule"), caller(ada, "manage", agent=demo())):
        [own] = reader.get("/api/tokens/").json()["results"]
        for each in others:
            problem(reader.get(f"/api/tokens/{each}/"), 404, "not_found")
            problem(reader.delete(f"/api/tokens/{each}/"), 404, "not_found")
        assert reader.delete(f"/api/tokens/{own['id']}/").status_code == 204  # itself
        problem(reader.get("/api/tokens/"), 401, "not_authenticated")
    assert list(ada.user.api_tokens.values_list("pk", flat=True)) == others


def test_nonsense_and_a_token_that_expired_or_whose_user_is_inactive_are_refused(
    ada: Caller, nobody: Any
) -> None:
    for given in ("x" * 100_000, "\x80", "rdo_", "'; DROP TABLE x"):
        answer = nobody.get("/api/agents/", headers={"Authorization": f"Token {given}"})
        problem(answer, 401, "not_authenticated")
    passing = caller(ada, "read", expires_at=datetime.now(UTC) + timedelta(minutes=5))
    assert passing.get("/api/agents/").status_code == 200
    expire(ApiToken.objects.filter(expires_at__isnull=False))
    problem(passing.get("/api/agents/"), 401, "not_authenticated")
    ada.user.is_active = False
    ada.user.save()
    problem(ada.get("/api/agents/"), 401, "not_authenticated")


def test_the_last_use_is_noted_to_the_minute_and_without_waiting(ada: Caller) -> None:
    row = ada.user.api_tokens.get()

    def noted(ago: timedelta | None) -> Any:
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=None if ago is None else Now() - ago)
        before = ApiToken.objects.get(pk=row.pk)
        assert ada.get("/api/agents/").status_code == 200
        after = ApiToken.objects.get(pk=row.pk)
        note_use(before)  # of a request that read the row before: it writes nothing again
        assert ApiToken.objects.get(pk=row.pk).last_used_at == after.last_used_at
        return after.last_used_at != before.last_used_at

    assert noted(None)
    assert noted(timedelta(seconds=61))
    assert not noted(timedelta(seconds=50))


def test_a_token_goes_with_its_agent_or_session(ada: Caller) -> None:
    session = ada.session()
    of_session = caller(ada, "read", session=Session.objects.get(pk=session))
    made(ada.post("/api/tokens/", READER | {"agent": "demo"}))
    assert of_session.get(f"/api/sessions/{session}/").status_code == 200
    Session.objects.filter(pk=session).delete()
    problem(of_session.get("/api/agents/"), 401, "not_authenticated")
    Agent.objects.filter(pk=demo().pk).delete()
    assert ApiToken.objects.get().name == "test"


def test_an_idempotency_key_does_not_show_what_another_token_made(ada: Caller) -> None:
    limited = caller(ada, "manage", agent=demo())
    ada.agent("other")
    first = made(ada.post("/api/sessions/", {"agent": "demo"}, **KEY))
    assert made(ada.post("/api/sessions/", {"agent": "demo"}, **KEY)) == first
    assert made(limited.post("/api/sessions/", {"agent": "demo"}, **KEY))["id"] != first["id"]
    made(ada.post("/api/sessions/", {"agent": "other"}, Idempotency_Key="elsewhere"))
    problem(limited.post("/api/sessions/", {"agent": "other"}, Idempotency_Key="elsewhere"), 404, "not_found")
    message = {"content": "hello"}
    away = ada.session("other")
    sent = ada.post(f"/api/sessions/{away}/messages/", message, **KEY)
    assert sent.status_code == 202
    problem(limited.post(f"/api/sessions/{away}/messages/", message, **KEY), 404, "not_found")


def test_neither_etags_nor_cursors_nor_nested_ids_lead_out_of_a_limit(ada: Caller) -> None:
    ada.agent("other")
    here, away = ada.session("demo"), ada.session("other")
    mine = caller(ada, "manage", session=Session.objects.get(pk=here))
    tag = ada.get(f"/api/sessions/{away}/").headers["ETag"]
    for given in (tag, "*", f'W/{tag}, "x"'):
        problem(mine.get(f"/api/sessions/{away}/", If_None_Match=given), 404, "not_found")
        problem(mine.patch(f"/api/sessions/{away}/", {"title": "x"}, If_Match=given), 404, "not_found")
    page = ada.get("/api/sessions/?page_size=1").json()["next"]
    assert page
    found = mine.get(page[page.index("/api/") :]).json()["results"]
    assert {each["id"] for each in found} <= {here}
    problem(mine.get(f"/api/sessions/{away}/events/", Last_Event_ID="1-1"), 404, "not_found")


def test_a_thread_shows_a_limited_token_the_conversation_that_it_shows_everybody(ada: Caller) -> None:
    """In unified mode a thread shows the primary session, whose other threads are not reached by their ids."""
    here, beside = ada.session(channel="web"), ada.session(channel="web")
    primary = ada.get("/api/agents/demo/").json()["primary_session"]
    update_agent(demo().pk, {"unified_session": True})
    mine = caller(ada, "talk", session=Session.objects.get(pk=here))
    sent = mine.post(f"/api/sessions/{here}/messages/", {"content": "hello"})
    assert sent.status_code == 202
    assert Turn.objects.get().session_id == Session.objects.get(pk=primary).pk
    assert mine.get(sent.headers["Location"]).status_code == 200
    for other in (primary, beside):
        problem(mine.get(f"/api/sessions/{other}/"), 404, "not_found")
        problem(mine.post(f"/api/sessions/{other}/messages/", {"content": "hello"}), 404, "not_found")
    update_agent(demo().pk, {"unified_session": False})
    problem(mine.get(sent.headers["Location"]), 404, "not_found")


def test_a_chat_id_names_only_a_chat_within_the_limit(ada: Caller) -> None:
    """The same id with another agent is another chat, and its answers are not found by it."""
    ada.agent("other")
    chat = {"messages": [{"role": "user", "content": "hello"}]}
    header = {"X_OpenWebUI_Chat_Id": "chat-1"}
    ada.post("/v1/chat/completions", chat | {"model": "other"}, **header)
    [away] = Turn.objects.all()
    mine = caller(ada, "talk", agent=demo())
    mine.post("/v1/chat/completions", chat | {"model": "demo"}, **header)
    [here] = Turn.objects.exclude(pk=away.pk)
    assert here.session.agent_id == demo().pk
    problem(mine.get(f"/api/turns/{away.pk}/"), 404, "not_found")
    assert mine.get(f"/api/turns/{here.pk}/").status_code == 200


def ticket_of(one: Caller) -> str:
    answer = one.post("/api/stream-tickets/")
    body = made(answer)
    assert answer.headers["Cache-Control"] == "no-store"
    left = parse_datetime(body["expires_at"])
    assert left is not None
    assert 50 < (left - datetime.now(UTC)).total_seconds() < 61
    return str(body["ticket"])


def test_a_ticket_is_for_streams_and_dies_with_its_token(ada: Caller, nobody: Any) -> None:
    session = ada.session()
    mine = caller(ada, "read", session=Session.objects.get(pk=session))
    ticket = ticket_of(mine)
    assert ticket not in str(StreamTicket.objects.values())
    for address in ("/api/agents/", f"/api/sessions/{session}/", "/v1/models"):
        assert nobody.get(f"{address}?ticket={ticket}").status_code == 401
    problem(nobody.get(f"/api/sessions/{ada.session()}/events/?ticket={ticket}"), 404, "not_found")
    events = f"/api/sessions/{session}/events/"
    problem(nobody.get(f"{events}?ticket={ticket}"), 401, "not_authenticated")  # it was used up
    twice = f"{events}?ticket={ticket_of(mine)}&ticket={ticket_of(mine)}"
    problem(nobody.get(twice), 401, "not_authenticated")
    late, revoked = ticket_of(mine), ticket_of(mine)
    expire(StreamTicket.objects.filter(ticket_sha256=hashed(late)))
    problem(nobody.get(f"{events}?ticket={late}"), 401, "not_authenticated")
    [own] = mine.get("/api/tokens/").json()["results"]
    assert mine.delete(f"/api/tokens/{own['id']}/").status_code == 204
    problem(nobody.get(f"{events}?ticket={revoked}"), 401, "not_authenticated")
    assert not StreamTicket.objects.exists()
    passing = ticket_of(caller(ada, "read", expires_at=datetime.now(UTC) + timedelta(minutes=1)))
    expire(ApiToken.objects.filter(expires_at__isnull=False))
    problem(nobody.get(f"/api/agents/demo/events/?ticket={passing}"), 401, "not_authenticated")


def test_open_tickets_are_bounded(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "MOST_OPEN", 2)
    ada.client.force_login(ada.user)
    problem(ada.client.post("/api/stream-tickets/"), 403, "insufficient_scope")  # a browser needs none
    ticket_of(ada), ticket_of(ada)
    refused = ada.post("/api/stream-tickets/")
    problem(refused, 429, "too_many_tickets")
    assert int(refused.headers["Retry-After"]) == 60
    expire(StreamTicket.objects.all())
    ticket_of(ada)


@pytest.mark.parametrize("setting", ["model", "fallback_model"])
def test_a_limited_token_uses_and_learns_no_other_connection(ada: Caller, setting: str) -> None:
    for name in ("secret-conn", "used-conn", "spare-conn"):
        add_connection(ada.user, name, {"provider": "openai-chat", "base_url": "https://models.example/v1"})
    add_connection(None, "servers-conn", {"provider": "openai-chat", "base_url": "https://models.example/v1"})
    used = {"model": "used-conn:small", "fallback_model": "spare-conn:small"}
    assert ada.patch(AGENT, used).status_code == 200
    mine = caller(ada, "manage", agent=demo())
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
    mine = caller(ada, "read", agent=demo())
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
    settings.RONDO_THROTTLE = (6, 60)
    assert [ada.get(AGENT).status_code for _ in range(5)] == [200] * 5
    assert mine.get(AGENT).headers["RateLimit"] == '"requests";r=0;t=60', "the owner's bound counts, too"
    problem(mine.get(AGENT), 429, "throttled")


def test_a_limited_token_leaves_half_of_the_tickets(ada: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issue, "MOST_OPEN", 4)
    mine = caller(ada, "read", session=Session.objects.get(pk=ada.session()))
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
    of_session = caller(ada, "read", session=Session.objects.get(pk=session))
    for address in ("/api/deliveries/", f"/api/sessions/{session}/deliveries/"):
        assert found(of_session, address) == [answer]
        assert found(caller(ada, "read", agent=demo()), address) == [answer, event]
    assert found(of_session, "/api/deliveries/?search=secret") == []
    assert of_session.get(f"/api/deliveries/{event}/").status_code == 404


def test_a_token_of_one_session_reaches_no_routine_and_no_heartbeat_as_an_appointment(ada: Caller) -> None:
    primary = primary_session(demo())
    bound = ada.automation(str(primary.pk))["id"]
    routine = ada.post(f"{AGENT}routines/", {"title": "secret", "schedule": "1d"}).json()["id"]
    assert {bound, routine} < set(job_rows(ada.user).values_list("pk", flat=True))
    put_limit(ada.user, Limit(session_id=primary.pk))
    assert list(job_rows(ada.user).values_list("pk", flat=True)) == [bound]
