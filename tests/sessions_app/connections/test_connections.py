"""Connections in use: an agent's turns call their models, whoever owns them, and nobody is shown their secret."""

import json
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from ipaddress import IPv4Address
from typing import Any

import pytest
from django.apps import apps
from django.core import serializers
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.db.models import Model

from agent_core.connections import PREFIXES, PROVIDERS
from automations.jobs.edit import NewJob, create_job
from automations.jobs.explain import explain
from sessions_app.agents.edit import new_agent, update_agent
from sessions_app.connections.check import call_once
from sessions_app.connections.edit import add_connection, delete_connection, update_connection
from sessions_app.connections.usable import (
    CURES,
    model_choice,
    model_warnings,
    refusal,
    usable,
    usable_connections,
)
from sessions_app.exceptions import BadInput, ConnectionExists, ConnectionInUse, RevisionConflict
from sessions_app.models import Agent, Connection, Event, Message, Turn, TurnState
from sessions_app.telegram.bots import CheckedToken, add_bot, token_of
from tests.api.conftest import problem
from tests.automations.jobs.made import new
from tests.automations.turn_kinds.test_bound import fire
from tests.conftest import Person, new_person
from tests.deletion import caller
from tests.inside import Inside
from tests.model_server import ModelServer
from tests.talk import fresh

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "own-key-of-the-connection-4711"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture(autouse=True)
def local(settings: Any) -> None:
    settings.RONDO_CONNECTION_HOSTS = ("127.0.0.1",)


def given(server: ModelServer, **more: Any) -> dict[str, Any]:
    return {"provider": "openai-chat", "base_url": server.base_url, "secret": SECRET} | more


def use(person: Person, **fields: Any) -> Agent:
    agent = update_agent(person.agent.pk, {"policy": {"max_attempts": 1}} | fields)
    person.agent.refresh_from_db()
    return agent


def everything(*others: type[Model]) -> str:
    """All rows of all tables but the others."""
    models = (model for model in apps.get_models() if model not in others)
    rows = [row for model in models for row in model._default_manager.all()]
    return str(serializers.serialize("json", rows))


def test_an_agent_answers_by_its_owners_connection_and_the_secret_is_in_no_row(
    inside: Inside, server: ModelServer, capfd: pytest.CaptureFixture[str]
) -> None:
    add_connection(inside.person.user, "work", given(server))
    use(inside.person, model="work:gpt-5")
    session = inside.person.session()
    turn = inside.say(session, "hello")
    assert (turn.state, turn.model) == (TurnState.SUCCEEDED, "work:gpt-5")
    [received] = server.requests
    assert (received.body["model"], received.headers["authorization"]) == ("gpt-5", f"Bearer {SECRET}")
    server.fail_with(401, {"error": {"message": f"bad key {SECRET}"}})
    failed = inside.say(session, "hello again")
    assert failed.error_code == "model_auth"
    assert "401" in failed.error
    assert SECRET not in everything()
    assert SECRET not in "".join(capfd.readouterr())


def test_the_fallback_is_a_stored_fact_of_turn_and_answer(inside: Inside, server: ModelServer) -> None:
    user = inside.person.user
    add_connection(user, "gone", given(server, provider="ollama", base_url="http://127.0.0.1:1999/v1"))
    add_connection(user, "spare", given(server))
    use(inside.person, model="gone:x", fallback_model="spare:y")
    turn = inside.say(inside.person.session(), "hello")
    assert (turn.state, turn.model) == (TurnState.SUCCEEDED, "spare:y")
    answer = Message.objects.filter(turn=turn, role="assistant").get()
    assert answer.metadata["model"] == "spare:y"
    assert "connection refused" in answer.metadata["fell_back"]
    shown = caller(inside.person).get(f"/api/turns/{turn.pk}/").json()
    assert shown["model"] == "spare:y"


def test_a_dead_connection_is_told_until_it_works_again(inside: Inside, server: ModelServer) -> None:
    person = inside.person
    row = add_connection(person.user, "work", given(server))
    use(person, model="work:gpt-5")
    session = person.session()
    hourly = {"kind": "every", "seconds": 3600}
    job = create_job(NewJob(session_id=session.pk, message="ping", schedule=hourly))
    assert explain(person.user, job.pk).warnings == ()
    server.fail_with(500, {"error": {"message": "down"}})
    inside.say(session, "hello")
    since = fresh(row).state_since
    assert "500" in row.last_error
    inside.say(session, "hello")
    assert fresh(row).state_since == since  # written when the state changes
    [warning] = explain(person.user, job.pk).warnings
    assert "500" in warning
    assert "cannot be called" not in warning, "it may have passed"
    saved = caller(person).patch("/api/agents/demo/", {"timezone": "Europe/Berlin"}).json()
    assert saved["warnings"] == [warning]
    server.fail_with(0, {})
    inside.say(session, "hello")
    assert explain(person.user, job.pk).warnings == ()


def unknown(server: ModelServer) -> None:
    server.fail_with(404, {"error": {"message": "no such model", "code": "model_not_found"}})


def test_an_unknown_model_stays_unknown_while_another_one_of_the_connection_answers(
    inside: Inside, server: ModelServer
) -> None:
    person, session = inside.person, inside.person.session()
    row = add_connection(person.user, "work", given(server))
    job = new(session, model="work:gone")
    use(person, model="work:gone")
    unknown(server)
    inside.say(session, "hello")
    [warning] = explain(person.user, job.pk).warnings
    assert "404" in warning
    use(person, model="work:good")
    server.fail_with(0, {})
    assert inside.say(session, "hello").state == TurnState.SUCCEEDED
    assert call_once(fresh(row), "good").error == ""
    assert explain(person.user, job.pk).warnings == (warning,)
    assert call_once(fresh(row), "gone").error == ""
    assert explain(person.user, job.pk).warnings == ()


@pytest.mark.rule("11.2")
@pytest.mark.parametrize(
    ("status", "cure"),
    [(401, "model_auth"), (403, "model_auth"), (402, "model_quota"), (404, "model_not_found")],
)
def test_a_refusal_is_told_with_its_cure_until_the_connection_is_changed(
    inside: Inside, server: ModelServer, status: int, cure: str
) -> None:
    person = inside.person
    row = add_connection(person.user, "work", given(server))
    use(person, model="work:m")
    job = new(person.session())
    server.fail_with(
        status, {"error": {"message": "no", "code": "model_not_found" if status == 404 else None}}
    )
    fire(job)
    inside.run_all()
    [warning] = explain(person.user, job.pk).warnings
    assert str(status) in warning
    assert warning.endswith(CURES[cure])
    assert model_warnings(person.agent).uncallable == [warning]
    update_connection(row.pk, {"secret": "another-key"})
    assert model_warnings(person.agent).uncallable == []
    assert explain(person.user, job.pk).warnings == ()


def test_a_test_calls_the_model_once_and_keeps_the_outcome(person: Person, server: ModelServer) -> None:
    row = add_connection(person.user, "work", given(server, models=["gpt-5"]))
    assert call_once(row).error == ""
    assert len(server.requests) == 1
    server.fail_with(503, {"error": {"message": SECRET}})
    tested = call_once(row)
    assert "503" in tested.error
    assert SECRET not in tested.error
    assert fresh(row).last_error == tested.error[:300]
    assert len(server.requests) == 2
    with pytest.raises(BadInput, match="allowed: gpt-5"):
        call_once(row, "gpt-6")


def test_a_model_that_does_not_exist_is_no_warning_of_another(inside: Inside, server: ModelServer) -> None:
    add_connection(inside.person.user, "work", given(server))
    use(inside.person, model="work:gone")
    other = new_agent(inside.person.user, "second", {"model": "work:there"})
    server.fail_with(404, {"error": {"message": "no such model", "code": "model_not_found"}})
    inside.say(inside.person.session(), "hello")
    [warning] = model_warnings(inside.person.agent).uncallable
    assert "'gone'" in warning
    assert model_warnings(other).uncallable == []
    server.fail_with(401, {"error": {"message": "no"}})
    inside.say(inside.person.session(), "hello")
    assert len(model_warnings(inside.person.agent).uncallable) == len(model_warnings(other).uncallable) == 1


def test_anothers_connection_can_be_neither_used_nor_found(person: Person, server: ModelServer) -> None:
    bob = new_person("bob")
    add_connection(bob.user, "bobs", given(server))
    said = {refusal(person.user.pk, f"{name}:m").replace(name, "X") for name in ("nobodys", "bobs")}
    assert len(said) == 1
    with pytest.raises(BadInput, match="no connection or provider 'bobs'"):
        use(person, model="bobs:m")
    with pytest.raises(BadInput, match="no connection or provider 'bobs'"):
        new_agent(person.user, "second", {"model": "bobs:m"})
    Agent.objects.filter(pk=person.agent.pk).update(model="bobs:m")  # past the check
    [found] = usable_connections(person.user.pk, ["bobs:m"])
    assert (found.fault, found.secret) == ("there is no connection 'bobs'", "")


def test_the_servers_connection_serves_all_and_none_changes_it(inside: Inside, server: ModelServer) -> None:
    add_connection(None, "house", given(server, models=["small"]))
    ada = caller(inside.person)
    [shown] = ada.get("/api/connections/").json()["results"]
    assert (shown["owner"], shown["base_url"], shown["models"]) == ("server", None, ["small"])
    assert SECRET not in json.dumps(shown)
    problem(ada.patch("/api/connections/house/", {"models": []}), 404, "not_found")
    problem(ada.delete("/api/connections/house/"), 404, "not_found")
    with pytest.raises(BadInput, match="allowed: small"):
        use(inside.person, model="house:large")
    use(inside.person, model="house:small")
    assert inside.say(inside.person.session(), "hello").state == TurnState.SUCCEEDED


def test_a_made_up_model_says_nothing_of_the_servers_connection(inside: Inside, server: ModelServer) -> None:
    row = add_connection(None, "house", given(server))
    use(inside.person, model="house:made-up")
    server.fail_with(404, {"error": {"message": "no such model", "code": "model_not_found"}})
    assert inside.say(inside.person.session(), "hello").error_code == "model_not_found"
    assert "made-up" in call_once(row, "made-up").error
    assert fresh(row).last_error == ""
    update_connection(row.pk, {"models": ["made-up"]})  # by the operator
    assert inside.say(inside.person.session(), "hello").error_code == "model_not_found"
    assert "made-up" in fresh(row).last_error


def test_the_servers_connection_may_have_a_private_address_and_a_users_may_not(
    person: Person, server: ModelServer, settings: Any
) -> None:
    settings.RONDO_CONNECTION_HOSTS = ()
    add_connection(None, "house", given(server))
    others = (f"http://{host}/v1" for host in ("localhost:11434", "169.254.169.254", "[::1]:8000"))
    for url in (server.base_url, *others):
        with pytest.raises(BadInput, match="RONDO_CONNECTION_HOSTS"):
            add_connection(person.user, "mine", given(server, base_url=url))
    assert Connection.objects.count() == 1


def test_only_a_superuser_of_a_local_up_reaches_this_machine(person: Person, settings: Any) -> None:
    settings.RONDO_CONNECTION_HOSTS = ()
    there = {"provider": "ollama", "base_url": "http://127.0.0.1:11434/v1"}

    def reaches(row: Connection) -> bool:
        known = usable(row).reach
        return bool(known and known.address_check("127.0.0.1", 11434)(IPv4Address("127.0.0.1")))

    for is_superuser, is_local in ((False, True), (True, False)):
        person.user.is_superuser, settings.RONDO_THIS_MACHINE = is_superuser, is_local
        person.user.save()
        with pytest.raises(BadInput, match="RONDO_CONNECTION_HOSTS"):
            add_connection(person.user, "mine", there)
    settings.RONDO_THIS_MACHINE = True
    row = add_connection(person.user, "mine", there)
    assert reaches(row)
    for url in ("http://10.0.0.1:11434/v1", "http://169.254.169.254/v1", "http://127.0.0.2:11434/v1"):
        with pytest.raises(BadInput, match="RONDO_CONNECTION_HOSTS"):
            add_connection(person.user, "other", there | {"base_url": url})
    person.user.is_superuser = False
    person.user.save()
    assert not reaches(row)


def test_what_cannot_be_is_refused_and_nothing_is_stored(person: Person, server: ModelServer) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        *(({"provider": name}, "bad_provider") for name in ("openai", "OpenAI-Chat", "grok")),
        ({"base_url": "ftp://x.example/v1"}, "bad_base_url"),
        ({"base_url": "https://user:pass@x.example/v1"}, "bad_base_url"),
        ({"base_url": "https://x.example/v1?key=1"}, "bad_base_url"),
        ({"provider": "azure", "base_url": "https://x.openai.azure.com/"}, "bad_base_url"),
        ({"provider": "ollama", "base_url": ""}, "bad_base_url"),
        *(({"secret": text}, "bad_secret") for text in ("short", "with space in it", "with\nline-break")),
        *(({"models": models}, "bad_models") for models in (["../files"], ["m?x=1"], "gpt-5")),
        ({"limits": {"requests_per_minute": -1}}, "bad_limits"),
        ({"limits": {"tokens": 1}}, "bad_limits"),
        ({"revision": 7}, "not_editable"),
    ]
    for change, code in refused:
        with pytest.raises(BadInput) as raised:
            add_connection(person.user, "work", given(server) | change)
        assert raised.value.code == code, change
    for name in ("openai-chat", "anthropic", "offline", "test", "Work", "a b", "", "x" * 41, "a:b"):
        with pytest.raises(BadInput) as raised:
            add_connection(person.user, name, given(server))
        assert raised.value.code == "bad_name", name
    assert not Connection.objects.exists()


def test_a_provider_without_its_package_is_refused_with_the_extra(
    person: Person, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = replace(PROVIDERS["mistral"], package="not_installed.here")
    monkeypatch.setitem(PROVIDERS, "mistral", missing)
    monkeypatch.setitem(PREFIXES, "mistral", missing)
    with pytest.raises(BadInput, match="the extra 'mistral'"):
        add_connection(person.user, "work", given(server, provider="mistral"))
    with pytest.raises(BadInput, match="the extra 'mistral'"):
        use(person, model="mistral:large")


def test_only_an_allowed_model_can_be_saved(person: Person, server: ModelServer) -> None:
    add_connection(person.user, "work", given(server, models=["gpt-5"]))
    for field in ("model", "fallback_model"):
        for model in ("work:GPT-5", "work:", "Work:gpt-5", " work:gpt-5", "wörk:x"):
            with pytest.raises(BadInput) as raised:
                use(person, **{field: model})
            assert raised.value.code == f"bad_{field}", model
        use(person, **{field: "work:gpt-5"})


def test_users_name_only_the_models_that_the_server_offers(inside: Inside, settings: Any) -> None:
    person = inside.person
    settings.RONDO_MODEL, settings.RONDO_MODELS = "openai-chat:house", ("deepseek:one", "together:*")
    for model in ("openai-chat:house", "deepseek:one", "together:any", "offline", ""):
        use(person, model=model, fallback_model=model)
    for model in ("openai-chat:other", "deepseek:two", "openai:any", "snowflake:any"):
        for field in ("model", "fallback_model"):
            refused = caller(person).patch("/api/agents/demo/", {field: model})
            assert "RONDO_MODELS" in problem(refused, 400, f"bad_{field}")["detail"], model
    # as it was stored before the operator changed the list
    Agent.objects.update(model="openai-chat:other", fallback_model="together:any")
    turn = inside.say(person.session(), "hello")
    assert (turn.error_code, "RONDO_MODELS" in turn.error) == ("model_not_configured", True)
    Agent.objects.update(model="openai-chat:house", fallback_model="openai-chat:other")
    agent = Agent.objects.get()
    assert "openai-chat:other" in "".join(model_warnings(agent).uncallable)
    choice = model_choice(agent)
    assert (choice["model"], choice["fallback_model"], choice["connections"]) == (agent.model, "", ())


def test_an_owner_has_a_name_once_and_a_users_own_goes_first(person: Person, server: ModelServer) -> None:
    for owner in (None, person.user):
        add_connection(owner, "work", given(server))
        with pytest.raises(ConnectionExists):
            add_connection(owner, "work", given(server))
        with pytest.raises(IntegrityError), transaction.atomic():
            Connection.objects.create(owner=owner, name="work", provider="ollama")
    [found] = usable_connections(person.user.pk, ["work:b"])
    assert found.id == Connection.objects.get(owner=person.user).pk


def test_a_connection_in_use_is_not_deleted(person: Person, server: ModelServer, settings: Any) -> None:
    own = add_connection(person.user, "work", given(server))
    house = add_connection(None, "house", given(server))
    settings.RONDO_MODEL = "house:m"
    use(person, model="", fallback_model="work:m")
    for row in (own, house):
        with pytest.raises(ConnectionInUse, match="demo"):
            delete_connection(row.pk)
    problem(caller(person).delete("/api/connections/work/"), 409, "connection_in_use")
    use(person, model="offline", fallback_model="")
    job = new(person.session(), model="work:m", fallback_model="house:m")
    for row in (own, house):
        with pytest.raises(ConnectionInUse, match="demo"):
            delete_connection(row.pk)
    job.delete()
    for row in (own, house):
        delete_connection(row.pk)
    assert not Connection.objects.exists()


def test_after_a_change_of_the_servers_key_the_secret_must_be_entered_again(
    inside: Inside, server: ModelServer, settings: Any
) -> None:
    row = add_connection(inside.person.user, "work", given(server))
    use(inside.person, model="work:m")
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another-secret-key"
    turn = inside.say(inside.person.session(), "hello")
    assert "enter it again" in turn.error
    assert server.requests == []
    settings.SECRET_KEY_FALLBACKS = [old]
    update_connection(row.pk, {"models": ["m"]})  # encrypts it with the present key
    settings.SECRET_KEY_FALLBACKS = []
    assert inside.say(inside.person.session(), "hello").state == TurnState.SUCCEEDED


def test_a_secret_does_not_follow_to_a_new_address(person: Person, server: ModelServer) -> None:
    row = add_connection(person.user, "work", given(server))
    for change in ({"base_url": "https://evil.example/v1"}, {"provider": "openrouter"}, {"base_url": ""}):
        with pytest.raises(BadInput, match="enter the secret again"):
            update_connection(row.pk, change)
    moved = {"base_url": "https://new.example/v1", "secret": "another-key"}
    update_connection(row.pk, moved, revision=1)
    with pytest.raises(RevisionConflict):
        update_connection(row.pk, {"models": ["b"]}, revision=1)


def test_the_limit_counts_the_calls_of_all_agents(inside: Inside, server: ModelServer) -> None:
    add_connection(inside.person.user, "work", given(server, limits={"requests_per_minute": 1}))
    use(inside.person, model="work:m")
    assert inside.say(inside.person.session(), "hello").state == TurnState.SUCCEEDED
    turn = inside.say(inside.person.session(), "hello")
    assert turn.error_code == "rate_limited"
    assert "allows 1 requests per minute" in turn.error
    assert len(server.requests) == 1


def test_secrets_are_renewed_so_that_the_former_key_can_go(person: Person, settings: Any) -> None:
    there = {"provider": "ollama", "base_url": "https://models.example/v1"}
    kept = add_connection(person.user, "kept", there | {"secret": SECRET})
    add_connection(None, "keyless", there)
    bot = add_bot(person.agent, CheckedToken(token=SECRET, telegram_id=1, username="rondo_test_bot"))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "b" * 50, [settings.SECRET_KEY]
    said = StringIO()
    call_command("renew_secrets", stdout=said)
    assert said.getvalue() == "2 secrets encrypted with SECRET_KEY\n"
    settings.SECRET_KEY_FALLBACKS = []
    assert usable(fresh(kept)).secret == token_of(fresh(bot)) == SECRET
    settings.SECRET_KEY = "c" * 50
    with pytest.raises(CommandError, match="kept") as refused:
        call_command("renew_secrets", stdout=said)
    assert "@rondo_test_bot" in str(refused.value)
    assert SECRET not in str(refused.value)


def test_reasoning_is_stored_nowhere(inside: Inside, server: ModelServer) -> None:
    add_connection(inside.person.user, "work", given(server))
    use(inside.person, model="work:m", model_settings={"temperature": 0.5, "max_tokens": 50})
    turn = inside.say(inside.person.session(), "[[think:private musings]][[reply:yes]] hi")
    assert Message.objects.get(turn=turn, role="assistant").content == "yes"
    events = str(list(Event.objects.values_list("content", flat=True)))
    assert "musings" not in events.replace("[[think:private musings]]", "")
    body = server.requests[0].body
    assert body["temperature"] == 0.5


def test_settings_outside_their_bounds_are_refused(person: Person) -> None:
    refused: tuple[dict[str, Any], ...] = (
        *({"temperature": value} for value in (2.1, True, "1")),
        *({"max_tokens": value} for value in (0, 1.5)),
        {"reasoning": "much"},
        {"reasoning": []},
        {"top_p": 1},
    )
    for given_settings in refused:
        with pytest.raises(BadInput) as raised:
            use(person, model_settings=given_settings)
        assert raised.value.code == "bad_model_settings", given_settings


def test_the_api_takes_a_secret_and_never_gives_it_back(person: Person, server: ModelServer) -> None:
    ada = caller(person)
    body = given(server) | {"name": "work", "models": ["m"], "limits": {"requests_per_minute": 60}}
    answers = [
        ada.post("/api/connections/", body, **{"Idempotency-Key": "once"}),
        ada.post("/api/connections/", body, **{"Idempotency-Key": "once"}),
        ada.patch("/api/connections/work/", {"secret": SECRET + "-2", "models": ["m", "n"]}),
        ada.get("/api/connections/work/"),
        ada.get("/api/connections/"),
        ada.patch("/api/connections/work/", {"secret": f"{SECRET} bad"}),
        ada.post("/api/connections/work/test/", {}),
    ]
    assert [each.status_code for each in answers] == [201, 201, 200, 200, 200, 400, 200]
    assert SECRET not in "".join(each.content.decode() + str(each.headers) for each in answers)
    assert answers[3].json()["has_secret"] is True
    assert answers[6].json()["ok"] is True
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}-2"
    assert SECRET not in everything()
    assert Turn.objects.count() == 0
