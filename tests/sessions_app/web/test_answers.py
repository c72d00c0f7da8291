"""What pages answer without a browser: refusals, searches, markdown that would take long."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions_app.models import Session, SessionState, SessionType
from sessions_app.models.session import PRIMARY_KEY
from sessions_app.web import rendering
from sessions_app.web.rendering import render
from tests.conftest import Person

pytestmark = pytest.mark.django_db
BROWSER = {"Accept": "text/html"}


@pytest.fixture
def ada(person: Person) -> Client:
    client = Client(headers=BROWSER)
    client.force_login(person.user)
    return client


def test_short_code_is_highlighted_and_long_code_is_not() -> None:
    """Some lexers take time that grows with the square of the length."""
    assert "hl-" in render("```java\n" + "int a = 1;\n" * 20 + "```")
    assert "hl-" not in render("```java\n" + "a b " * 4700 + "\n```")


def test_highlighting_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "HIGHLIGHTING", -1.0)
    assert render("```python\nx = 'out of time'\n```") == (
        "<pre><code class=\"language-python\">x = 'out of time'\n</code></pre>\n"
    )


def test_a_table_that_would_blow_up_is_shown_as_text() -> None:
    assert render("|a|b|\n|-|-|\n|c|d|").startswith("<table>")
    wide = "|" + "a|" * 60 + "\n|" + "-|" * 60 + "\n" + "a\n" * 9000
    assert render(wide) == f"<pre>{wide}</pre>"


def test_an_agents_own_conversation_is_not_archived(ada: Client, person: Person) -> None:
    person.session()
    primary = Session.objects.get(agent=person.agent, key=PRIMARY_KEY)
    answer = ada.post(f"/sessions/{primary.pk}/archive/")
    assert answer.status_code == 409
    assert b"cannot be archived" in answer.content
    primary.refresh_from_db()
    assert primary.state == SessionState.OPEN


def test_a_new_conversation_is_the_unused_one(ada: Client, person: Person) -> None:
    first = ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"]
    assert ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"] == first
    ada.post(f"{first}messages/", {"content": "hello", "key": "a\x00b"})
    assert ada.post("/sessions/new/", {"agent": person.agent.name}).headers["Location"] != first
    assert Session.objects.filter(agent=person.agent, type=SessionType.SUB).count() == 2


def test_a_search_works_without_scripts(ada: Client, person: Person) -> None:
    person.session(title="Trip to Lisbon")
    person.session(title="Garden")
    page = ada.get("/?q=lisbon")
    assert page.status_code == 200
    assert b"Trip to Lisbon" in page.content
    assert b"Garden" not in page.content


def test_an_address_of_a_form_says_so(ada: Client) -> None:
    answer = ada.get("/sessions/new/")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert b"not a page" in answer.content


def test_a_form_without_its_token_is_refused_with_a_page(person: Person) -> None:
    client = Client(enforce_csrf_checks=True, headers=BROWSER)
    client.force_login(person.user)
    answer = client.post("/sessions/new/", {"agent": person.agent.name})
    assert answer.status_code == 403
    assert b"Reload the page you came from" in answer.content
