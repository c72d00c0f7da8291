"""Every operation with every kind of token, on what the token reaches and on what it does not."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest
from django.core.signals import request_finished
from django.db import close_old_connections, transaction
from django.db.models import Max
from django.urls import URLPattern, get_resolver
from drf_spectacular.generators import SchemaGenerator

from interfaces.api.agents.hooks import HookMessages
from interfaces.http.auth import required_scope
from interfaces.http.base import ApiView
from interfaces.mcp_server.server import TOOLS
from sessions_app.models import Agent, ApiToken, Session, TokenScope, Turn
from tests.api.conftest import Caller, for_each
from tests.api.places import Place, Places, settle_places
from tests.tokens import new_token

pytestmark = pytest.mark.rule("10.6")

ALLOWED = {  # what each scope includes
    "read": {"read"},
    "talk": {"read", "talk"},
    "schedule": {"read", "schedule"},
    "manage": {"read", "talk", "schedule", "manage"},
}
CHANGES = {  # the operations that are no GET, by the scope that they need; all others need `manage`
    "read": {"POST /api/schedules/preview/", "POST /api/stream-tickets/", "DELETE /api/tokens/{token_id}/"},
    "talk": {
        "POST /api/sessions/",
        "POST /api/sessions/{session_id}/messages/",
        "POST /api/turns/{turn_id}/cancel/",
        "POST /api/executions/{execution_id}/cancel/",
        "POST /api/executions/{execution_id}/answer/",
        "POST /api/questions/{question_id}/answer/",
    },
    "schedule": {
        "POST /api/sessions/{session_id}/automations/",
        "PATCH /api/automations/{job_id}/",
        "DELETE /api/automations/{job_id}/",
        "POST /api/automations/{job_id}/skip/",
        "POST /api/automations/{job_id}/move/",
        "POST /api/pauses/",
        "POST /api/runs/{run_id}/retry/",
        "POST /api/agents/{name}/routines/",
        "PATCH /api/routines/{routine_id}/",
        "DELETE /api/routines/{routine_id}/",
        "POST /api/sessions/{session_id}/scheduled-messages/",
        "DELETE /api/scheduled-messages/{message_id}/",
    },
}
SECRET_READS = {"GET /api/agents/{name}/signing-secret/"}  # the only reads that need `manage`
OF_AGENT = {"name", "routine_id", "hook_id"}  # path parameters of what belongs to an agent, not to a session
OF_ACCOUNT = {"connection"}
# what is permitted is not done: 412, or a bad body
HARMLESS = {"If_Match": '"none"', "Idempotency_Key": "matrix"}


@cache
def operations() -> dict[str, str]:
    """Each operation of the schema that is for users, with its declared scope."""
    generator: Any = SchemaGenerator
    schema = generator().get_schema(public=True)
    found = {
        f"{method.upper()} {path}": operation.get("x-required-scope", "")
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    }
    return {each: scope for each, scope in found.items() if each != "POST /api/hooks/{hook_id}/messages/"}


@pytest.fixture(scope="module")
def places(django_db_setup: None, django_db_blocker: Any) -> Iterator[Places]:
    """The world of this module, which each request leaves as it was."""
    with django_db_blocker.unblock(), transaction.atomic():
        found = settle_places()
        Session.objects.filter(pk=found.here.session).update(key="web:here")
        yield found
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def tokens(places: Places) -> dict[str, Caller]:
    """Callers by the name of their token: each scope without a limit, in one agent and in one session."""
    user = places.caller.user
    agent, session = Agent.objects.get(name=places.here.agent), Session.objects.get(pk=places.here.session)
    made = {scope: new_token(user, scope, name=scope) for scope in ALLOWED}
    made["agent"] = new_token(user, "manage", name="agent", agent=agent)
    made["session"] = new_token(user, "manage", name="session", session=session)
    return {name: Caller(user=user, token=token) for name, token in made.items()}


def call(caller: Caller, operation: str, place: Place) -> Any:
    """Ask, and take back whatever was done."""
    method, path = operation.split()
    values = place.ids | {"token_id": ApiToken.objects.get(name="manage").pk}
    with transaction.atomic():
        body = {"no such field": 1} if method in {"POST", "PUT", "PATCH"} else None
        answer = caller(method, path.format(**values), body, **HARMLESS)
        answer.words = "" if answer.streaming else answer.content.decode()
        close(answer)
        transaction.set_rollback(True)
    return answer


def close(answer: Any) -> None:
    if answer.streaming:  # it holds a place until it is closed
        request_finished.disconnect(close_old_connections)
        answer.close()
        request_finished.connect(close_old_connections)


def code(answer: Any) -> str:
    return str(answer.json()["code"]) if answer.status_code >= 400 else ""


def is_served(answer: Any) -> bool:
    """Permitted and found, whatever became of it."""
    return answer.status_code < 500 and answer.status_code not in {401, 403, 404}


SOME_OR_ALL = pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.full)])


@SOME_OR_ALL
def test_an_operation_needs_its_scope(places: Places, tokens: dict[str, Caller], step: int) -> None:
    def check(operation: str) -> None:
        needed = operations()[operation]
        for scope, allowed in ALLOWED.items():
            answer = call(tokens[scope], operation, places.here)
            if needed not in allowed:
                told = answer.status_code, code(answer)
                assert told == (403, "insufficient_scope"), (scope, answer.words)
            elif "{token_id}" not in operation or scope == "manage":  # others see only themselves
                assert is_served(answer), (scope, answer.status_code, answer.words)

    for_each(list(operations())[::step], check)


@SOME_OR_ALL
def test_a_limit_hides_everything_else(places: Places, tokens: dict[str, Caller], step: int) -> None:
    """On what is just within the limit, and on what is just beyond it."""

    def check(limit: str, operation: str) -> None:
        here, beside, away = places.here, places.beside, places.away
        reached, near, far = ([here, beside], beside, away) if limit == "agent" else ([here], here, beside)
        named = {part.strip("{}") for part in operation.split("/") if part.startswith("{")}
        for place in (near, far) if named else (near,):
            answer = call(tokens[limit], operation, place)
            if not named:
                is_refused = (answer.status_code, code(answer)) == (403, "beyond_limit")
                assert is_refused or is_served(answer), answer.words
                assert is_refused or not operation.startswith("POST") or answer.status_code in {200, 201, 400}
            elif named & (OF_ACCOUNT | {"token_id"}) or (limit == "session" and named & OF_AGENT):
                assert (answer.status_code, code(answer)) == (404, "not_found"), (place.secret, answer.words)
            elif place in reached:
                assert is_served(answer), (place.secret, answer.status_code, answer.words)
            else:
                assert (answer.status_code, code(answer)) == (404, "not_found"), (place.secret, answer.words)
            shown = [word for word in places.words_outside(*reached) if word in answer.words]
            assert not shown, place.secret

    for_each(product(("agent", "session"), list(operations())[::step]), check)


def test_a_route_needs_its_scope_and_talks_within_reach(places: Places, tokens: dict[str, Caller]) -> None:
    def check(route: str) -> None:
        method = route.partition(" ")[0]
        for scope, allowed in ALLOWED.items():
            answer = knock(tokens[scope], route, places.here)
            assert answer.status_code == (200 if method == "GET" or "talk" in allowed else 403), scope
        for limit in ("agent", "session"):
            reached = [places.here, places.beside] if limit == "agent" else [places.here]
            for place in (places.here, places.beside, places.away):
                answer = knock(tokens[limit], route, place)
                assert answer.status_code == (404 if place is places.away else 200), (limit, place.secret)
                assert not [word for word in places.words_outside(*reached) if word in answer.words]
                assert bool(answer.talked_in) is (method == "POST" and answer.status_code == 200)
                if limit == "session":
                    assert answer.talked_in <= {places.here.session}

    for_each(["GET /v1/models/{name}", "POST /v1/chat/completions", "POST /ag-ui/{name}/"], check)


def knock(caller: Caller, route: str, place: Place) -> Any:
    """Say something by a route; `talked_in` of the answer: the sessions that have got a turn. It is taken back."""
    method, path = route.split()
    said = [{"id": "m1", "role": "user", "content": "hello"}]
    body = {"model": place.agent, "stream": True, "messages": said}
    if "ag-ui" in path:
        body = {"threadId": place.session, "runId": "r", "messages": said}
    before = Turn.objects.aggregate(last=Max("pk"))["last"]
    with transaction.atomic():
        answer = caller(method, path.format(name=place.agent), body if method == "POST" else None)
        answer.words = "" if answer.streaming else answer.content.decode()
        close(answer)
        rows = Turn.objects.filter(pk__gt=before).values_list("session", flat=True)
        answer.talked_in = {str(each) for each in rows}
        transaction.set_rollback(True)
    return answer


def test_the_models_are_the_agents_that_a_token_talks_to(places: Places, tokens: dict[str, Caller]) -> None:
    def models(name: str) -> list[str]:
        return [each["id"] for each in tokens[name].get("/v1/models").json()["data"]]

    assert models("agent") == models("session") == [places.here.agent]
    assert models("read") == ["agent-away", "agent-here"]


def test_a_limited_token_makes_nothing_elsewhere(places: Places, tokens: dict[str, Caller]) -> None:
    """Where the place is named in the body."""
    here, away = places.here, places.away
    hook = f"/api/agents/{here.agent}/hooks/"
    routine = f"/api/agents/{here.agent}/routines/"
    every: dict[str, Any] = {"schedule": {"kind": "every", "seconds": 9}}
    for caller, path, body, status in (
        (tokens["agent"], "/api/sessions/", {"agent": here.agent}, 201),
        (tokens["agent"], "/api/sessions/", {"agent": away.agent}, 404),
        (tokens["session"], "/api/sessions/", {"agent": here.agent}, 404),
        (tokens["agent"], hook, {"name": "x", "session": here.session}, 201),
        (tokens["agent"], hook, {"name": "x", "session": away.session}, 404),
        (tokens["agent"], routine, {"title": "x", "schedule": "1h", "session": away.session}, 404),
        (tokens["agent"], "/api/schedules/preview/", every, 200),
        (tokens["agent"], "/api/schedules/preview/", every | {"agent": away.agent}, 404),
        (tokens["agent"], "/api/agents/", {"name": "new"}, 403),
        (tokens["agent"], "/api/connections/", {"name": "new", "provider": "ollama"}, 403),
        (tokens["agent"], "/api/tokens/", {"name": "new", "scopes": ["read"]}, 403),
        (tokens["session"], f"/api/sessions/{here.session}/messages/", {"content": "hello"}, 202),
        (tokens["session"], f"/api/sessions/{away.session}/messages/", {"content": "hello"}, 404),
        (tokens["session"], f"/api/sessions/{places.beside.session}/messages/", {"content": "hello"}, 404),
    ):
        with transaction.atomic():
            assert caller.post(path, body).status_code == status, (path, body)
            transaction.set_rollback(True)


def test_lists_are_filtered(places: Places, tokens: dict[str, Caller]) -> None:
    def ids(limit: str, address: str, name: str) -> set[str]:
        return {each[name] for each in tokens[limit].get(address).json()["results"]}

    assert ids("session", "/api/sessions/", "id") == {places.here.session}
    assert {places.here.session, places.beside.session} < ids("agent", "/api/sessions/", "id")
    assert places.away.session not in ids("agent", "/api/sessions/?page_size=100", "id")
    assert ids("agent", "/api/sessions/?agent=agent-away", "id") == set()
    beside = Session.objects.get(pk=places.beside.session).key
    assert ids("session", f"/api/sessions/?key={beside}", "id") == set()
    assert ids("agent", "/api/agents/", "name") == {places.here.agent}
    assert ids("session", "/api/agents/", "name") == set()
    assert ids("agent", "/api/connections/", "name") == ids("session", "/api/connections/", "name") == set()
    assert ids("agent", "/api/tokens/", "name") == {"agent"}
    assert ids("read", "/api/tokens/", "name") == {"read"}
    assert set(tokens) < ids("manage", "/api/tokens/", "name")


def test_every_operation_declares_its_scope() -> None:
    changes = {each: scope for each, scope in operations().items() if not each.startswith("GET ")}
    named = {each: scope for scope, found in CHANGES.items() for each in found}
    assert set(named) < set(changes)
    assert changes == dict.fromkeys(changes, "manage") | named
    reads = {each: scope for each, scope in operations().items() if each.startswith("GET ")}
    assert {each for each, scope in reads.items() if scope != "read"} == SECRET_READS
    views = {view for view in _views(get_resolver().url_patterns) if view is not HookMessages}
    assert len(views) > 50
    for view in views:
        for method in {"get", "post", "put", "patch", "delete"} & set(view.http_method_names):
            is_declared = not hasattr(view, method) or required_scope(view, method) in set(TokenScope)
            assert is_declared, (view, method)
    for tool in TOOLS.values():
        assert (tool.scope == TokenScope.READ) == bool(tool.hints.read_only_hint), tool.name


def _views(patterns: Any) -> Iterator[type[ApiView]]:
    """The views of the API and of the protocols."""
    for each in patterns:
        if not isinstance(each, URLPattern):
            yield from _views(each.url_patterns)
            continue
        view: Any = getattr(each.callback, "cls", object)
        if issubclass(view, ApiView):
            yield view


def test_an_operation_without_a_scope_is_for_no_token(
    places: Places, tokens: dict[str, Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    from interfaces.api.agents.agents import AgentList

    monkeypatch.setattr(AgentList, "scopes", {})
    answer = tokens["manage"].get("/api/agents/")
    assert (answer.status_code, code(answer)) == (403, "insufficient_scope")
    person = Caller(user=places.caller.user, token="")
    person.client.force_login(places.caller.user)
    assert person.client.get("/api/agents/").status_code == 200
