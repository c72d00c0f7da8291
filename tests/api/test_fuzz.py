"""The API against its own OpenAPI schema, as somebody and as somebody else.

Bounded here; `RONDO_FUZZ=500 pytest tests/api/test_fuzz.py` sends 500 random requests per operation and caller, each
run other ones. The seed of a failed run is in its header; `RONDO_FUZZ_SEED` repeats it.
"""

import itertools
import os
import random
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import FailedHealthCheck, Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core import NOT_SET
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi import checks

from interfaces.http.server.bodies import BODILESS
from interfaces.protocols import VERSION_HEADER
from sessions_app.models import Agent, Event, Turn
from sessions_app.models.turn import OPEN_STATES
from tests.api.conftest import Caller, Site, made, new_caller
from tests.api.places import Place, belongings, furnish
from tests.fleet import until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.timeout(0),
    pytest.mark.full,
]

EXAMPLES = int(os.environ.get("RONDO_FUZZ", "0"))
SEED = int(os.environ.get("RONDO_FUZZ_SEED") or (random.randrange(2**32) if EXAMPLES else 20261121))
FOR_SURE = 1  # random requests per operation and caller of a bounded run
TIMEOUT = (10, 5)  # seconds to connect; of silence
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
MOST_SHOWN = 15
# path parameters of what can be deleted
SPARED = ("name", "session_id", "job_id", "routine_id", "message_id", "hook_id", "connection", "token_id")
GUESSED = {"document", "revision", "turn_id", "delivery_id", "chat_id"}  # whose values anybody may know
MESSAGES = 4  # more in the first session: enough events to fill a look into its stream
MARKS = 30  # for every window of the first agent: enough to fill a look into the stream of the agent


@dataclass(kw_only=True)
class Inhabitant:
    """A user with two sessions of one agent, `places`."""

    caller: Caller
    places: list[Place]
    numbers: Any = field(default_factory=itertools.count)

    @property
    def token(self) -> str:
        return self.caller.token

    @property
    def hook_token(self) -> str:
        """Of the first hook."""
        return self.places[0].hook_token

    @property
    def ids(self) -> dict[str, list[Any]]:
        """By the name of a path parameter, the values that are this user's own."""
        return {name: [each.ids[name] for each in self.places] for name in self.places[0].ids}

    @property
    def words(self) -> set[bytes]:
        """What nobody else may be shown: the secrets, and ids that are not guessed by chance."""
        own = {each for name, ids in self.ids.items() if name not in GUESSED for each in ids}
        secrets = {word for each in self.places for word in (each.secret, each.hook_token)}
        return {each.encode() for each in own | secrets}

    def spare(self, parameter: str) -> str:
        """Something new of this kind, which may be deleted."""
        if parameter == "name":
            return self._agent()
        if parameter == "hook_id":  # one agent has not so many hooks
            return str(made(self.caller.post(f"/api/agents/{self._agent()}/hooks/", {"name": "x"}))["id"])
        agent, session, secret = self.places[0].agent, self.places[0].session, self.places[0].secret
        number, post = next(self.numbers), self.caller.post
        one = f"{secret} {number}"
        there = {"provider": "ollama", "base_url": "https://models.invalid/v1", "models": ["m"]}
        later = {"send_at": "2099-01-01T00:00:00Z", "message_text": one, "replace_existing": True}
        routine = {"title": one, "schedule": "1d", "enabled": False}
        makers: dict[str, Callable[[], Any]] = {
            "session_id": lambda: self.caller.session(agent, title=one),
            "job_id": lambda: self.caller.automation(session, name=one, enabled=False)["id"],
            "routine_id": lambda: made(post(f"/api/agents/{agent}/routines/", routine))["id"],
            "message_id": lambda: made(post(f"/api/sessions/{session}/scheduled-messages/", later))["id"],
            "connection": lambda: made(post("/api/connections/", there | {"name": f"n{number}"}))["name"],
            "token_id": lambda: made(post("/api/tokens/", {"name": one, "scopes": ["read"]}))["id"],
        }
        return str(makers[parameter]())

    def _agent(self) -> str:
        return str(self.caller.agent(f"agent-of-{self.caller.user.username}-{next(self.numbers)}")["name"])


def settle(name: str) -> Inhabitant:
    """A user with all that is to be seen of one, once the turns have ended."""
    caller = new_caller(name)
    agent = str(caller.agent(f"agent-of-{name}")["name"])
    places = [furnish(caller, agent, f"{word}-of-{name}") for word in ("secret", "other")]
    session = places[0].session
    for number in range(MESSAGES):
        caller.post(f"/api/sessions/{session}/messages/", {"content": f"{places[0].secret} {number}"})
    caller.patch(f"/api/sessions/{session}/memory/", {"current_goal": places[0].secret})
    mark: dict[str, Any] = {"agent": Agent.objects.get(name=agent), "session_id": session, "scope": "agent"}
    Event.objects.bulk_create(Event(type="status", content={"n": n}, **mark) for n in range(MARKS))
    mine = Turn.objects.filter(session__owner=caller.user, state__in=OPEN_STATES)
    until(lambda: not mine.exists(), 60)
    return Inhabitant(caller=caller, places=places)


def config() -> Any:
    """Schemathesis, told nothing by files around. A condition that does not hold is told before a bad body."""
    refused = [400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 422]
    return schemathesis.Config.from_dict(
        {
            "seed": SEED,
            "generation": {"with-security-parameters": False},
            "checks": {"negative_data_rejection": {"expected-statuses": refused}},
        }
    )


@dataclass(kw_only=True)
class World:
    """The server, its schema and who lives there."""

    url: str
    schema: Any
    ada: Inhabitant
    bob: Inhabitant

    def fuzz(self, send: Callable[[Any], None], *, share: int = 1, most: int | None = None) -> None:
        """Send what covers each operation's schema, then random requests.

        In a bounded run: each `share`-th of what covers the schema, and of that the first `most`.

        Fails at the end, with one example of each thing that went wrong.
        """
        wrong: dict[str, list[str]] = defaultdict(list)

        def tried(case: Any) -> None:
            try:
                send(case)
            except (FailureGroup, AssertionError) as error:
                what = error.exceptions[0] if isinstance(error, FailureGroup) else error
                kind = f"{case.operation.label}: {what}"
                wrong[kind].append(f"{error}\n{case!r}")

        for found in self.schema.get_all_operations():
            cases = covering(self.schema, found.ok())
            for case in cases if EXAMPLES else islice(cases, 0, most and most * share, share):
                tried(case)
            for mode in GenerationMode:
                sample(found.ok().as_strategy(generation_mode=mode), tried)
        told = [f"{len(each)} times {kind}\n{each[0]}" for kind, each in wrong.items()]
        assert not wrong, f"seed {SEED}, {len(wrong)} failures:\n\n" + "\n\n".join(told[:MOST_SHOWN])


def covering(schema: Any, operation: Any) -> Iterator[Any]:
    """The boundaries of each value in turn, inside and outside; methods that are not there."""
    generation = schema.config.generation_for(operation=operation)
    asked: dict[str, Any] = {"generation_modes": list(GenerationMode), "generation_config": generation}
    found: Iterator[Any] = schema.iter_coverage_cases(operation, **asked)
    return found


def sample(strategy: SearchStrategy[Any], take: Callable[[Any], None]) -> None:
    """Random cases, if there are any of the kind: not every operation can be asked wrongly."""
    chosen = settings(
        max_examples=EXAMPLES or FOR_SURE,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=set(HealthCheck) - {HealthCheck.filter_too_much},
    )
    with suppress(Unsatisfiable, FailedHealthCheck):
        chosen(seed(SEED)(given(strategy)(take)))()


@cache
def schema_of(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/api/schema/", config=config())


@pytest.fixture
def world(site: Site) -> World:
    return World(url=site.url, schema=schema_of(site.url), ada=settle("ada"), bob=settle("bob"))


def aim(case: Any, ids: dict[str, list[str]]) -> bool:
    """Let most requests go to something that exists; which one follows from the request. Whether this one does."""
    dice = zlib.crc32(repr(case).encode(errors="surrogatepass"))
    if dice % 4 == 0:
        return False
    for name in case.path_parameters:
        case.path_parameters[name] = ids[name][dice % len(ids[name])]
    if case.path.endswith("/events/"):
        for name in case.path_parameters:
            case.path_parameters[name] = ids[name][0]  # there were some
    if isinstance(case.body, dict) and isinstance(case.body.get("agent"), str):
        case.body["agent"] = ids["name"][0]
    if case.query.get("agent"):
        case.query["agent"] = ids["name"][0]
    return bool(case.path_parameters)


def ask(world: World, case: Any, caller: Inhabitant | None) -> Any:
    """Send it, and hold the answer against the schema."""
    if case.path.endswith("/events/") and not case.query.get("last_event_id"):
        case.headers.pop("Last-Event-ID", None)
        # a stream of what was; the end of one of what will be is waited for
        case.query["last_event_id"] = "0-0"
    if "wait" in str(case.headers.get("Prefer")):
        case.headers["Prefer"] = "wait=1"
    if case.method.upper() in BODILESS:
        case.body = NOT_SET  # with a body it is refused before its address is looked at
    headers = {"Authorization": f"Token {caller.token}"} if caller else {}
    if caller and is_a_hooks(case.path):
        headers["Authorization"] = f"Bearer {caller.hook_token}"
        if is_right(case, ParameterLocation.HEADER) and "Webhook-Timestamp" in case.headers:
            case.headers["Webhook-Timestamp"] = str(int(time.time()))
            case.headers.pop("Webhook-Signature", None)
    response = case.call(base_url=world.url, headers=headers, timeout=TIMEOUT)
    case.validate_response(response, checks=CHECKS, headers=headers)
    if response.status_code >= 400:
        assert_problem(case, response)
    return response


def of_our_version(case: Any) -> Any:
    """An unknown version is refused before anybody is asked who they are; the owner's requests try that."""
    case.headers.pop(VERSION_HEADER, None)
    return case


def is_a_hooks(path: str) -> bool:
    """Where one posts with a hook's token. A token that was renewed on the way is worth nothing."""
    return path == "/api/hooks/{hook_id}/messages/"


def is_right(case: Any, where: ParameterLocation) -> bool:
    """Whether this part of the request is as the schema says."""
    component = case.meta.components.get(where) if case.meta else None
    return component is None or bool(component.mode.is_positive)


def assert_problem(case: Any, response: Any) -> None:
    is_delete = case.method == "DELETE" and response.status_code == 409
    if is_delete and "blocked_by_automations" in response.json():
        return
    assert response.headers["content-type"] == ["application/problem+json"], response.content
    body = response.json()
    assert body["status"] == response.status_code
    assert {"type", "title", "code", "detail"} <= set(body)
    assert "Traceback" not in str(body)


def test_its_owner_is_answered_as_the_schema_says(world: World) -> None:
    def send(case: Any) -> None:
        aim(case, world.ada.ids)
        if case.method == "DELETE" or case.path.endswith("/token/"):
            for name in SPARED:
                if case.path_parameters.get(name) in world.ada.ids[name]:
                    case.path_parameters[name] = world.ada.spare(name)
        ask(world, case, world.ada)

    world.fuzz(send, share=5)


def test_somebody_else_is_shown_nothing_and_changes_nothing(world: World) -> None:
    words = world.ada.words
    before = belongings(words)

    def send(case: Any) -> None:
        aimed = aim(case, world.ada.ids)
        response = ask(world, of_our_version(case), world.bob)
        shown = response.content + str(response.headers).encode()
        assert not [word for word in words if word in shown], response.content
        if aimed and case.method.lower() in world.schema.raw_schema["paths"][case.path]:
            expected = {401 if is_a_hooks(case.path) else 404}
            if not is_right(case, ParameterLocation.QUERY):
                expected |= {400}  # what an address takes is no secret
            assert response.status_code in expected, response.content

    world.fuzz(send, share=3, most=8)
    assert belongings(words) == before
