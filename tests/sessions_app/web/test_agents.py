"""The page of an agent without a browser: its list, its forms, tests of servers, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from automations.models import CronJob, ScheduledMessage
from sessions_app.agents.documents import check_document, put_document, write_document
from sessions_app.agents.edit import create_agent, update_agent
from sessions_app.connections.edit import add_connection
from sessions_app.exceptions import RevisionConflict
from sessions_app.memory.preferences import preference
from sessions_app.models import Agent, Connection, Delivery, Document, Preference, Session
from sessions_app.selectors import document
from tests.conftest import Person, new_person
from tests.mcp_servers import Docs

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "secret-of-the-server-4711"
ONE = '```json\n{"tasks": [{"title": "Water", "schedule": "1h"}]}\n```\n'


@pytest.fixture
def client(person: Person) -> Client:
    found = Client(raise_request_exception=False)
    found.force_login(person.user)
    return found


@pytest.fixture
def docs() -> Iterator[Docs]:
    server = Docs()
    with server.serving() as url:
        server.url = url
        yield server


def form(person: Person, **fields: Any) -> dict[str, Any]:
    person.agent.refresh_from_db()
    return {"revision": str(person.agent.revision)} | fields


def test_the_only_agent_has_no_list(client: Client, person: Person) -> None:
    assert client.get("/agents/").headers["Location"] == "/agents/demo/"
    create_agent(person.user, "a second.one")
    new_person("eve")
    listed = client.get("/agents/").content.decode()
    assert listed.count('class="card"') == 2
    assert "/agents/a%20second.one/" in listed
    assert client.get("/agents/a%20second.one/").status_code == 200
    Agent.objects.all().delete()
    assert "You have no agent yet" in client.get("/agents/").content.decode()


def test_nobody_sees_an_agent_of_somebody_else(client: Client) -> None:
    answer = Client().get("/agents/demo/")
    assert answer.status_code == 302
    assert "sign-in" in answer.headers["Location"]
    eve = new_person("eve", timezone="Asia/Tokyo")
    Agent.objects.filter(pk=eve.agent.pk).update(name="hers")
    session = Session.objects.get(agent=eve.agent, type="primary")
    for path in ("", "documents/USER.md/"):
        assert client.get(f"/agents/hers/{path}").status_code == 404
    forms = ("model/", "tools/", "heartbeat/", "preferences/", "documents/USER.md/", "mcp/test/")
    tests = [f"{name}/channels/{session.pk}/test/" for name in ("hers", "demo")]
    for path in (*(f"hers/{each}" for each in forms), *tests):
        assert client.post(f"/agents/{path}", {"revision": "0"}).status_code == 404, path
    assert not Delivery.objects.exists()
    assert not ScheduledMessage.objects.exists()


def test_only_own_connections_are_changed(client: Client) -> None:
    given = {"provider": "openai-chat", "secret": SECRET}
    add_connection(new_person("eve").user, "hers", given)
    add_connection(None, "shared", given)
    page = client.get("/agents/demo/").content.decode()
    assert "hers" not in page
    assert "connections/shared/" not in page, "the server's is shown, but not to be changed"
    for path in ("hers/", "hers/delete/", "hers/test/", "shared/", "shared/delete/"):
        answer = client.post(f"/agents/demo/connections/{path}", {"provider": "openai-chat"})
        assert answer.status_code == 404, path
    assert Connection.objects.count() == 2


def test_model_engine_and_zone_are_changed(client: Client, person: Person) -> None:
    given: dict[str, Any] = {"model": "openai-chat:gpt-5", "engine": "planner", "timezone": "Asia/Tokyo"}
    answer = client.post("/agents/demo/model/", form(person, **given, unified_session="yes"))
    assert answer.status_code == 303
    assert "Saved" in client.get(answer.headers["Location"].partition("#")[0]).content.decode()
    found = Agent.objects.filter(pk=person.agent.pk).values(*given, "unified_session").get()
    assert found == given | {"unified_session": True}


def test_a_bad_setting_is_named_and_kept_as_typed(client: Client, person: Person) -> None:
    for bad in ({"model": "no such"}, {"engine": "x"}, {"timezone": "Mars"}, {"timezone": ""}):
        given = {"model": "offline", "engine": "chat", "timezone": "UTC"} | bad
        answer = client.post("/agents/demo/model/", form(person, **given))
        assert answer.status_code == 400, bad
        assert 'role="alert"' in answer.content.decode()
        assert next(iter(bad.values())) in answer.content.decode()
    assert Agent.objects.get(pk=person.agent.pk).revision == person.agent.revision


def test_the_address_of_system_events_is_set_and_emptied(client: Client, person: Person) -> None:
    url = "https://example.org/rondo"
    answer = client.post("/agents/demo/events/", form(person, events_url=f" {url} "))
    assert (answer.status_code, answer.headers["Location"]) == (303, "/agents/demo/?saved=hooks#hooks")
    assert f'value="{url}"' in client.get("/agents/demo/?saved=hooks").content.decode()
    refused = client.post("/agents/demo/events/", form(person, events_url="https://10.0.0.1/<x>"))
    page = refused.content.decode()
    assert refused.status_code == 400
    assert "is not a public address" in page
    assert 'value="https://10.0.0.1/&lt;x&gt;"' in page, "what was typed is kept"
    assert Agent.objects.get(pk=person.agent.pk).events_url == url
    late = client.post("/agents/demo/events/", {"revision": "0", "events_url": ""})
    assert late.status_code == 412
    assert f"<p>{url}</p>" in late.content.decode(), "what is stored meanwhile"
    assert client.post("/agents/demo/events/", form(person, events_url="")).status_code == 303
    assert Agent.objects.get(pk=person.agent.pk).events_url == ""


def test_tools_are_allowed_by_name(client: Client, person: Person) -> None:
    update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": "https://tools.example.org/mcp"}}})
    given = {"tool": ["cron", "fetch_url"], "others": "docs__search, docs__note"}
    assert client.post("/agents/demo/tools/", form(person, **given)).status_code == 303
    person.agent.refresh_from_db()
    assert person.agent.allow_tools == ["cron", "docs__note", "docs__search", "fetch_url"]
    refused = client.post("/agents/demo/tools/", form(person, tool=["cron"], others="none__such"))
    assert refused.status_code == 400
    part = next(each for each in refused.context["sections"] if each["about"].anchor == "tools")["part"]
    assert part["others"] == "none__such"
    assert [each["name"] for each in part["tools"] if each["is_allowed"]] == ["cron"]
    assert client.post("/agents/demo/tools/", form(person)).status_code == 303
    person.agent.refresh_from_db()
    assert person.agent.allow_tools == []


@pytest.mark.rule("3.5")
def test_a_server_is_tested_without_telling_its_secret(
    client: Client, person: Person, docs: Docs, settings: Any
) -> None:
    def tested() -> str:
        return client.post("/agents/demo/mcp/test/", {"server": "docs"}).content.decode()

    secret = {"headers": {"Authorization": f"Bearer {SECRET}"}}
    update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": f"{docs.url}?key={SECRET}"} | secret}})
    settings.RONDO_MCP_HOSTS = ()
    assert "not a public address" in tested()
    assert docs.headers == []
    settings.RONDO_MCP_HOSTS = ("127.0.0.1",)
    page = tested()
    assert "Connected:" in page
    assert "search" in page
    assert any(SECRET in str(headers) for headers in docs.headers)
    assert SECRET not in page + client.get("/agents/demo/").content.decode()
    assert client.post("/agents/demo/mcp/test/", {"server": "other"}).status_code == 404


def test_tests_of_servers_are_bounded(client: Client, person: Person, settings: Any) -> None:
    update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": "https://nowhere.invalid/mcp"}}})
    answers = [client.post("/agents/demo/mcp/test/", {"server": "docs"}).status_code for _ in range(7)]
    assert answers == [200] * 6 + [429]
    settings.RONDO_MCP = False
    assert client.post("/agents/demo/mcp/test/", {"server": "docs"}).status_code == 404


def test_preferences_are_edited_and_removed(client: Client, person: Person) -> None:
    for revision, fields in enumerate(({"content": "Be\r\nbrief."}, {"content": "x", "remove": "yes"})):
        assert (
            client.post("/agents/demo/preferences/", {"revision": str(revision)} | fields).status_code == 303
        )
        assert preference(person.agent, person.user.pk).content == ("Be\nbrief." if revision == 0 else "")
    stale = client.post("/agents/demo/preferences/", {"revision": "1", "content": "typed here"})
    assert stale.status_code == 412
    assert "typed here" in stale.content.decode()
    long = client.post("/agents/demo/preferences/", {"revision": "2", "content": "x" * 4001})
    assert long.status_code == 400
    assert Preference.objects.get().revision == 2


def test_a_document_is_not_written_without_what_was_seen(client: Client, person: Person) -> None:
    put_document(person.agent.pk, "USER.md", "first")
    for seen in ("", "0", "x", "9" * 40):
        answer = client.post("/agents/demo/documents/USER.md/", {"content": "second", "seen": seen})
        assert answer.status_code == 412
    assert Document.objects.get().content == "first"
    assert (
        client.post("/agents/demo/documents/USER.md/", {"content": "a\x00", "seen": "1"}).status_code == 400
    )
    assert client.get("/agents/demo/documents/OTHER.md/").status_code == 404
    for revision in ("0", "x", "9" * 40):
        assert client.get(f"/agents/demo/documents/USER.md/?revision={revision}").status_code == 404


@pytest.mark.rule("6.6")
def test_a_check_says_what_applying_does_and_stores_nothing(person: Person) -> None:
    basis = str(document(person.user, "demo", "HEARTBEAT.md").basis)
    tried = check_document(person.agent.pk, "HEARTBEAT.md", ONE, basis=basis)
    assert tried is not None
    assert [(each.what, each.title, each.detail) for each in tried.changes] == [("added", "Water", "1h")]
    assert not CronJob.objects.exists()
    assert not Document.objects.exists()
    done = write_document(person.agent.pk, "HEARTBEAT.md", ONE, basis=basis).taken
    assert done is not None
    assert [each.what for each in done.changes] == ["added"]
    with pytest.raises(RevisionConflict):
        check_document(person.agent.pk, "HEARTBEAT.md", ONE, basis=basis)


@pytest.mark.rule("6.6")
def test_a_text_that_was_not_checked_is_not_applied(client: Client, person: Person) -> None:
    seen = str(document(person.user, "demo", "HEARTBEAT.md").basis)
    given = {"content": ONE, "seen": seen, "checked": "0" * 64}
    assert client.post("/agents/demo/documents/HEARTBEAT.md/", given).status_code == 200
    assert not CronJob.objects.exists()
    Agent.objects.update(routine_limit=0)
    full = client.post("/agents/demo/documents/HEARTBEAT.md/", given)
    assert full.status_code == 400
    assert "at most 0 enabled routines" in full.content.decode()


@pytest.mark.usefixtures("telegram")
def test_a_test_goes_only_where_messages_leave_the_server(client: Client, person: Person) -> None:
    web = person.session()
    group = person.session(channel="telegram", address="-42", chat_type="group")
    for session, words in ((web, "stay on this server"), (group, "is a group")):
        answer = client.post(f"/agents/demo/channels/{session.pk}/test/", headers={"Accept": "text/html"})
        assert answer.status_code == 400
        assert words in answer.content.decode()
    assert not ScheduledMessage.objects.exists()
    private = person.session(channel="telegram", address="42")
    sent = client.post(f"/agents/demo/channels/{private.pk}/test/")
    assert sent.status_code == 303
    assert "waiting" in client.get(sent.headers["Location"].partition("#")[0]).content.decode()
    assert client.post(f"/agents/demo/channels/{private.pk}/test/").status_code == 429
    assert ScheduledMessage.objects.count() == 1
    eve = Client()
    eve.force_login(new_person("eve").user)
    message = ScheduledMessage.objects.get()
    assert eve.get(f"/agents/-/tests/{message.pk}/").status_code == 404
    assert message.pk not in eve.get(f"/agents/demo/?test={message.pk}").content.decode()
