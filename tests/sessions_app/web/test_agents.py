"""The page of an agent without a browser: its list, its forms, tests of servers, what is refused and in which words."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from automations.models import CronJob, RunState, ScheduledMessage
from interfaces.web.appointments.forms import LABELS
from sessions_app.agents.documents import preference, put_document
from sessions_app.agents.edit import create_agent, update_agent
from sessions_app.connections.edit import add_connection
from sessions_app.connections.usable import usable
from sessions_app.models import Agent, Connection, Delivery, Document, Preference, Session
from sessions_app.reads.selectors import document
from tests.automations.jobs.made import new, past_run
from tests.automations.web.test_addresses import signed_in
from tests.automations.web.test_stale_forms import as_sent
from tests.conftest import Person, new_person
from tests.mcp_servers import Docs
from tests.model_server import ModelServer

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "secret-of-the-server-4711"
ONE = '```json\n{"tasks": [{"title": "Water", "schedule": "1h"}]}\n```\n'


@pytest.fixture
def client(person: Person) -> Client:
    found = Client(raise_request_exception=False, headers={"Accept": "text/html"})
    found.force_login(person.user)
    return found


def post(client: Client, part: str, status: int, **fields: Any) -> Any:
    """The answer to a form of a part of the page, by default of the stored revision."""
    sent = {"revision": Agent.objects.get(name="demo").revision} | fields
    answer = client.post(f"/agents/demo/{part}/", sent)
    assert answer.status_code == status, (sent, answer.content)
    return answer


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
    forms = ("model/", "tools/", "heartbeat/", "preferences/", "documents/USER.md/", "mcp/", "mcp/test/")
    tests = [f"{name}/channels/{session.pk}/test/" for name in ("hers", "demo")]
    for path in (*(f"hers/{each}" for each in forms), *tests):
        assert client.post(f"/agents/{path}", {"revision": "0"}).status_code == 404, path
    assert not Delivery.objects.exists()
    assert not ScheduledMessage.objects.exists()


def test_only_own_connections_are_changed(client: Client) -> None:
    given = {"provider": "openai-chat", "secret": SECRET}
    add_connection(new_person("eve").user, "of-eve", given)
    add_connection(None, "shared", given)
    page = client.get("/agents/demo/").content.decode()
    assert "of-eve" not in page
    assert "connections/shared/test/" in page
    assert "connections/shared/delete/" not in page
    for path in ("of-eve/", "of-eve/delete/", "of-eve/test/", "shared/", "shared/delete/"):
        answer = client.post(f"/agents/demo/connections/{path}", {"provider": "openai-chat"})
        assert answer.status_code == 404, path
    assert Connection.objects.count() == 2


def test_connections_are_added_tested_changed_and_deleted_and_their_key_is_shown_nowhere(
    client: Client, person: Person
) -> None:
    def send(path: str, status: int, **fields: str) -> str:
        given = {"provider": "openai-chat", "base_url": address, "models": "small, large"} | fields
        page: str = post(client, f"connections{path}", status, **given).content.decode()
        if status == 303:
            page = client.get("/agents/demo/").content.decode()
        assert SECRET not in page
        assert not [row for row in Connection.objects.all() if row.secret_ciphertext in page]
        return page

    address = "https://models.invalid/v1"
    page = send("", 303, name="mine", secret=SECRET)
    assert f"openai-chat · {address} · with a key · small, large" in page
    assert 'value="mine:small"' in page
    again = send("", 400, name="mine", secret=SECRET)
    assert "already a connection named" in again
    assert f'value="{address}"' in again, "what was typed is kept"
    tested = send("/mine/test", 200)
    assert "The test of small failed:" in tested
    assert "Last call failed" in tested
    post(client, "model", 303, model="mine:small", engine="chat", timezone="UTC")
    assert "demo" in send("/mine/delete", 400), "an agent uses it"
    revision = str(Connection.objects.get().revision)
    elsewhere = send("/mine", 400, revision=revision, base_url="https://elsewhere.example.org/v1")
    assert "Enter the secret again" in elsewhere
    send("/mine", 303, revision=revision, models="small")
    row = Connection.objects.get()
    assert (row.owner_id, row.allowed_models, row.base_url) == (person.user.pk, ["small"], address)
    send("/mine", 412, revision=revision)
    Agent.objects.update(model="offline")
    send("/mine/delete", 303)
    assert not Connection.objects.exists()


def test_a_model_is_chosen_from_the_list_of_a_connection_with_its_price_and_tested(
    client: Client, person: Person, settings: Any
) -> None:
    settings.RONDO_CONNECTION_HOSTS = ("127.0.0.1",)
    with ModelServer() as server:
        prices = {"test": {"input": "1.25", "output": "10"}}
        address = {"provider": "openai-chat", "base_url": server.base_url, "prices": prices}
        add_connection(person.user, "mine", address)
        page = client.get("/agents/demo/?source=mine").content.decode()
        assert '<option value="mine:test" selected>test · $1.25 read, $10 written</option>' in page
        tested = post(client, "model/choice", 200, choice="mine:test", do="test").content.decode()
        assert "test answered in" in tested
        before = Agent.objects.get()
        post(client, "model/choice", 303, choice="mine:test")
        assert (before.model, Agent.objects.get().model) == (person.agent.model, "mine:test")
    refused = post(client, "model/choice", 400, choice="no such").content.decode()
    assert 'name="timezone" value="UTC"' in refused, "the other settings are shown as stored"
    post(client, "model/choice", 412, choice="offline", revision="0")
    assert Agent.objects.get().model == "mine:test"
    gone = client.get("/agents/demo/?source=mine").content.decode()
    assert f"{server.base_url}/models cannot be reached" in gone


def test_a_provider_is_added_by_its_key_and_gets_a_new_one(client: Client, person: Person) -> None:
    assert "API key" in problem_of(post(client, "model/provider", 400, provider="openrouter", secret=""))
    for key in (SECRET, f"{SECRET}-2"):
        answer = post(client, "model/provider", 303, provider="openrouter", secret=key)
        assert "source=my-openrouter" in answer.headers["Location"]
    row = Connection.objects.get()
    assert (row.owner_id, usable(row).secret) == (person.user.pk, f"{SECRET}-2")


def test_model_engine_zone_and_heartbeat_are_changed(client: Client, person: Person) -> None:
    given = {"model": "openai-chat:gpt-5", "engine": "planner", "timezone": "Asia/Tokyo"}
    answer = post(client, "model", 303, **given, unified_session="yes")
    assert "Saved" in client.get(answer.headers["Location"].partition("#")[0]).content.decode()
    found = Agent.objects.filter(pk=person.agent.pk).values(*given, "unified_session").get()
    assert found == given | {"unified_session": True}
    late = post(client, "model", 412, **given | {"timezone": "Europe/Berlin"}, revision="0").content.decode()
    assert 'value="Europe/Berlin"' in late, "what was typed is kept"
    assert "<dd>Asia/Tokyo</dd>" in late, "what is stored meanwhile"
    post(client, "heartbeat", 303, **{"interval": "2", "unit": "hours", "from": "22", "to": "6"})
    heartbeat = Agent.objects.get().heartbeat
    stored = [heartbeat[name] for name in ("enabled", "interval_seconds", "active_hours")]
    assert stored == [False, 7200, [22, 6]]


def test_a_bad_setting_is_named_and_kept_as_typed(client: Client, person: Person) -> None:
    for bad in ({"model": "no such"}, {"engine": "x"}, {"timezone": "Mars"}, {"timezone": ""}):
        given = {"model": "offline", "engine": "chat", "timezone": "UTC"} | bad
        page = post(client, "model", 400, **given).content.decode()
        assert 'role="alert"' in page, bad
        assert next(iter(bad.values())) in page, bad
    assert Agent.objects.get(pk=person.agent.pk).revision == person.agent.revision


def test_the_address_of_system_events_is_set_and_emptied(client: Client) -> None:
    url = "https://example.org/rondo"
    post(client, "events", 303, events_url=f" {url} ")
    assert f'value="{url}"' in client.get("/agents/demo/?saved=hooks").content.decode()
    page = post(client, "events", 400, events_url="https://10.0.0.1/<x>").content.decode()
    assert 'value="https://10.0.0.1/&lt;x&gt;"' in page, "what was typed is kept"
    late = post(client, "events", 412, revision="0", events_url="")
    assert f"<p>{url}</p>" in late.content.decode(), "what is stored meanwhile"
    post(client, "events", 303, events_url="")
    assert Agent.objects.get().events_url == ""


def test_tools_are_allowed_by_name(client: Client, person: Person) -> None:
    update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": "https://tools.example.org/mcp"}}})
    post(client, "tools", 303, tool=["cron", "fetch_url"], others="docs__search, docs__note")
    assert Agent.objects.get().allow_tools == ["cron", "docs__note", "docs__search", "fetch_url"]
    refused = post(client, "tools", 400, tool=["cron"], others="none__such")
    part = next(each for each in refused.context["sections"] if each["about"].anchor == "tools")["part"]
    assert part["others"] == "none__such"
    assert [each["name"] for each in part["tools"] if each["is_allowed"]] == ["cron"]
    post(client, "tools", 303)
    assert Agent.objects.get().allow_tools == []


def test_servers_are_added_and_changed_and_hidden_values_are_kept(client: Client) -> None:
    def send(path: str, status: int, **fields: str) -> str:
        answer = post(client, f"mcp{path}", status, **{"server": "notes", "url": address} | fields)
        page: str = (answer if status == 400 else client.get("/agents/demo/")).content.decode()
        assert SECRET not in page
        return page

    address, hidden = "https://notes.example.org/mcp", "Authorization: ***\nX-Team: ***"
    Agent.objects.update(allow_tools=["cron"])
    refused = send("", 400, server="Notes of mine", headers=SECRET, trusted="yes", new="yes")
    assert f'value="{address}"' in refused, "what was typed is kept"
    assert re.search(r'value="cron" checked', refused), "ticks of the other form are as stored"
    headers = f"Authorization: Bearer {SECRET}\n\n X-Team :blue"
    assert hidden in send("", 303, headers=headers, new="yes")
    stored = Agent.objects.get().mcp_servers["notes"]
    assert stored["headers"] == {"Authorization": f"Bearer {SECRET}", "X-Team": "blue"}
    assert "already an MCP server" in send("", 400, new="yes")
    send("/change", 303, headers=hidden, trusted="yes")
    assert Agent.objects.get().mcp_servers["notes"] == stored | {"trusted": True}
    elsewhere = send("/change", 400, headers=hidden, url="https://elsewhere.example.org/mcp")
    assert 'value="https://elsewhere.example.org/mcp"' in elsewhere
    for path in ("change", "delete"):
        post(client, f"mcp/{path}", 404, server="other", url=address)
    send("/delete", 303)
    assert Agent.objects.get().mcp_servers == {}


@pytest.mark.rule("11.1")
def test_prices_of_all_other_models_are_changed_and_those_of_single_ones_stay(
    client: Client, person: Person
) -> None:
    single = {"large": {"input": "3", "output": "9.5"}}
    given = {"provider": "openai-chat", "base_url": "https://models.invalid/v1", "prices": single}
    add_connection(person.user, "mine", given)
    page = client.get("/agents/demo/").content.decode()
    assert "large: $3 read, $9.5 written" in page
    fields = {"provider": "openai-chat", "base_url": given["base_url"]}
    for status, price in (
        (303, {"price_input": " 0.5 ", "price_output": "2"}),
        (400, {"price_input": "0.5", "price_output": ""}),
        (400, {"price_input": "much", "price_output": "2"}),
        (303, {}),
    ):
        revision = Connection.objects.get().revision
        page = post(client, "connections/mine", status, revision=revision, **fields, **price).content.decode()
        assert Connection.objects.get().prices == single | {"*": {"input": "0.5", "output": "2"}}, price
        assert status == 303 or f'value="{price["price_input"]}"' in page, "what was typed is kept"
    empty = {"price_input": "", "price_output": ""}
    post(client, "connections/mine", 303, revision=Connection.objects.get().revision, **fields, **empty)
    assert Connection.objects.get().prices == single


@pytest.mark.rule("3.5")
def test_a_server_is_tested_without_telling_its_secret(
    client: Client, person: Person, docs: Docs, settings: Any
) -> None:
    settings.RONDO_MCP_HOSTS = ("127.0.0.1",)
    secret = {"headers": {"Authorization": f"Bearer {SECRET}"}}
    update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": f"{docs.url}?key={SECRET}"} | secret}})
    settings.RONDO_MCP_HOSTS = ()
    refused = post(client, "mcp/test", 200, server="docs")
    assert "not a public address" in refused.content.decode()
    assert docs.headers == []
    settings.RONDO_MCP_HOSTS = ("127.0.0.1",)
    docs.tool(f"repeats-{SECRET}", lambda: "", "Repeats what it was sent.")
    page = post(client, "mcp/test", 200, server="docs").content.decode()
    assert "repeats-***</code> is left out: it repeats a secret" in page
    assert "Connected:" in page
    assert "search" in page
    assert any(SECRET in str(headers) for headers in docs.headers)
    assert SECRET not in page + client.get("/agents/demo/").content.decode()
    post(client, "mcp/test", 404, server="other")


def test_tests_of_servers_are_bounded(client: Client, person: Person, settings: Any) -> None:
    update_agent(person.agent.pk, {"mcp_servers": {"docs": {"url": "https://nowhere.invalid/mcp"}}})
    for status in (*[200] * 6, 429):
        post(client, "mcp/test", status, server="docs")
    settings.RONDO_MCP = False
    post(client, "mcp/test", 404, server="docs")


def test_preferences_are_edited_and_removed(client: Client, person: Person) -> None:
    for revision, fields, stored in (
        (0, {"content": "Be\r\nbrief."}, "Be\nbrief."),
        (1, {"content": "x", "remove": "yes"}, ""),
    ):
        post(client, "preferences", 303, revision=revision, **fields)
        assert preference(person.agent, person.user.pk).content == stored
    stale = post(client, "preferences", 412, revision=1, content="typed here")
    assert "typed here" in stale.content.decode()
    post(client, "preferences", 400, revision=2, content="x" * 4001)
    assert Preference.objects.get().revision == 2


def test_a_document_is_not_written_without_what_was_seen(client: Client, person: Person) -> None:
    put_document(person.agent.pk, "USER.md", "first")
    for seen in ("", "0", "x", "9" * 40):
        late = post(client, "documents/USER.md", 412, content="second", seen=seen).content.decode()
        assert "second</textarea>" in late, "what was typed"
        assert "first</textarea>" in late, "what is stored"
        assert client.get(f"/agents/demo/documents/USER.md/?revision={seen or 0}").status_code == 404
    post(client, "documents/USER.md", 400, content="a\x00", seen="1")
    assert Document.objects.get().content == "first"
    assert client.get("/agents/demo/documents/OTHER.md/").status_code == 404


def written(client: Client, person: Person, name: str, content: str, status: int, **more: Any) -> Any:
    """The answer to a text that is sent as who has read the document now."""
    seen = document(person.user, "demo", name)
    seen_now = seen.revision if seen.basis is None else seen.basis
    return post(client, f"documents/{name}", status, content=content, seen=seen_now, **more)


def test_a_document_is_edited_and_restored(client: Client, person: Person) -> None:
    for text in ("I live in Berlin.", "I live in Hamburg."):
        answer = written(client, person, "USER.md", text, 303)
        assert "Saved" in client.get(answer.headers["Location"]).content.decode()
    assert "?revision=1" in client.get("/agents/demo/documents/USER.md/").content.decode()
    old = client.get("/agents/demo/documents/USER.md/?revision=1").context["content"]
    written(client, person, "USER.md", old, 303)
    assert Document.objects.get().content == old == "I live in Berlin."
    assert "17 characters · revision 3" in client.get("/agents/demo/").content.decode()


@pytest.mark.rule("6.6")
def test_heartbeat_md_is_checked_before_it_is_applied(client: Client, person: Person) -> None:
    def send(text: str, status: int, **more: str) -> tuple[list[str], str]:
        """The changes that are shown, and with what they are applied."""
        answer = written(client, person, "HEARTBEAT.md", text, status, **more)
        shown = answer.content.decode().partition('<ul class="changes">')[2].partition("</ul>")[0]
        changes = [re.sub("<.*?>", "", each) for each in shown.split("</li>")[:-1]]
        return changes, answer.context["checked"] if changes else ""

    changes, checked = send(ONE, 200)
    assert (changes, CronJob.objects.exists()) == (["added Water 1h"], False)
    send(ONE, 303, checked=checked)
    water, other = CronJob.objects.get(), ONE.replace("Water", "New")
    changes, applies_other = send(other, 200, checked=checked)  # another text than the one that was checked
    assert (changes, CronJob.objects.get().pk) == (["disabled Water", "added New 1h"], water.pk)
    send(other, 303, checked=applies_other)
    assert list(CronJob.objects.order_by("name").values_list("name", "enabled")) == [
        ("New", True),
        ("Water", False),
    ]


@pytest.mark.rule("6.6")
def test_a_text_that_was_not_checked_is_not_applied(client: Client, person: Person) -> None:
    written(client, person, "HEARTBEAT.md", ONE, 200, checked="0" * 64)
    assert not CronJob.objects.exists()
    Agent.objects.update(routine_limit=0)
    full = written(client, person, "HEARTBEAT.md", ONE, 400, checked="0" * 64)
    assert "at most 0 enabled routines" in full.content.decode()
    broken = 'Prose.\n\n```json\n{"tasks": [\n  {"title": "A"\n]}\n```\n'
    page = written(client, person, "HEARTBEAT.md", broken, 200).content.decode()
    assert "line 6, column 1" in page
    assert "Prose." in page, "what was typed is kept"
    assert not Document.objects.exists()


@pytest.mark.usefixtures("telegram")
def test_a_test_goes_only_where_messages_leave_the_server(client: Client, person: Person) -> None:
    web = person.session()
    group = person.session(channel="telegram", address="-42", chat_type="group")
    for session, words in ((web, "stay on this server"), (group, "is a group")):
        assert words in post(client, f"channels/{session.pk}/test", 400).content.decode()
    assert not ScheduledMessage.objects.exists()
    private = person.session(channel="telegram", address="42")
    sent = post(client, f"channels/{private.pk}/test", 303)
    assert "waiting" in client.get(sent.headers["Location"].partition("#")[0]).content.decode()
    post(client, f"channels/{private.pk}/test", 429)
    message = ScheduledMessage.objects.get()
    ScheduledMessage.objects.waiting().cancel()
    assert "cancelled" in client.get(f"/agents/-/tests/{message.pk}/").content.decode()
    eve = signed_in(new_person("eve"))
    assert eve.get(f"/agents/-/tests/{message.pk}/").status_code == 404
    assert message.pk not in eve.get(f"/agents/demo/?test={message.pk}").content.decode()


def problem_of(answer: Any) -> str:
    [problem] = [each["outcome"].problem for each in answer.context["sections"] if each["outcome"].problem]
    return str(problem)


def test_an_agents_page_names_the_field_by_its_label(client: Client) -> None:
    mine = {"name": "mine", "provider": "openai-chat"}
    for part, given, name in (
        ("connections", mine | {"base_url": "http://10.0.0.1/"}, "base_url"),
        ("connections", mine | {"provider": "openai", "secret": "x"}, "secret"),
        ("spending", {"day_usd": "much"}, "limits.day.usd"),
        ("events", {"events_url": "nowhere"}, "events_url"),
    ):
        problem = problem_of(post(client, part, 400, **given))
        assert problem.startswith(LABELS[name]), problem
        assert name not in problem
    wrong = problem_of(post(client, "model/choice", 400, choice="gpt-5"))
    assert "“openai-chat:gpt-5”" in wrong
    assert "`" not in wrong


def test_an_unknown_connection_is_refused_without_a_list_of_all_providers(client: Client) -> None:
    problem = problem_of(post(client, "model", 400, model="nowhere:gpt", timezone="UTC", engine="chat"))
    assert "nowhere" in problem
    assert len(problem) < 200


def test_a_refused_field_of_an_automation_says_why_beside_it(client: Client, person: Person) -> None:
    session = person.session()
    job = new(session, message="news", name="News")
    address = reverse("change-automation", args=[session.pk, job.pk])
    bad = {
        "gate": "http://10.0.0.1/",
        "allow_tools": "no-such-tool",
        "usd_day": "much",
        "model": "nowhere:gpt",
    }
    for field, value in bad.items():
        refused = client.post(address, as_sent(client, address) | {field: value}).context["form"]
        assert list(refused.errors) == [field]
        assert not refused.errors[field][0].lower().startswith(("gate.", "limits.", f"{field}:"))


def test_a_failed_run_leads_to_the_section_that_cures_it(client: Client, person: Person) -> None:
    session = person.session()
    job = new(session, message="news", name="News")
    places = {"model_auth": "connections", "model_not_found": "model", "tool_hung": ""}
    for number, (reason, place) in enumerate(places.items(), 1):
        run = past_run(job, number, RunState.FAILED, reason)
        page = client.get(reverse("run", args=[session.pk, run.pk])).content.decode()
        found = [each for each in ("connections", "model") if f'href="/agents/demo/#{each}"' in page]
        assert found == [place] * bool(place)
