"""The admin and the pages of the API in a real browser: nothing that they need is kept back by their policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, sync_playwright

from automations.models import RunState
from sessions_app.models import TurnState
from tests.admin.conftest import fill, make_job, make_turn, url
from tests.admin.test_dashboard import add_run
from tests.api.conftest import start_web
from tests.browser import NEEDS_CHROMIUM, launch, serious
from tests.conftest import new_person

PASSWORD = "correct horse battery staple"

pytestmark = [
    pytest.mark.django_db(transaction=True),
    NEEDS_CHROMIUM,
]


@pytest.fixture
def web(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HTTPS", "0")  # browsers keep cookies of HTTPS to it
    address, process = start_web(tmp_path)
    yield address
    process.kill()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = launch(playwright)
        yield found
        found.close()


@pytest.fixture
def pages(transactional_db: None) -> list[str]:
    """Pages for a superuser: lists, forms with autocompletion, panels, a deletion in two steps."""
    # as the web process hashes passwords, not as these tests do
    hashed = PBKDF2PasswordHasher().encode(PASSWORD, "salt")
    User.objects.create(username="boss", password=hashed, is_staff=True, is_superuser=True)
    person = new_person("ada")
    session = person.session(title="A thread")
    job = make_job(session)
    return [
        "/admin/",
        url(session, "changelist"),
        url(session, "change"),
        url(job, "add"),
        url(job, "change"),
        url(person.agent, "change"),
        url(person.user, "change"),
        url(session, "delete"),
    ]


@pytest.fixture
def more_pages(transactional_db: None) -> list[str]:
    """Every list with a row, and pages of rows that nobody edits."""
    person = new_person("grace")
    rows = fill(person)
    add_run(rows["cronjob"], RunState.FAILED, 9, reason="timeout", error_detail="Traceback")
    make_turn(person.session(), TurnState.FAILED, error_code="timeout")
    lists = [url(row, "changelist") for row in rows.values()]
    names = ("runrecord", "turn", "delivery", "hook", "document")
    return [*lists, *(url(rows[name], "change") for name in names)]


def sign_in(page: Page, web: str) -> None:
    page.goto(f"{web}/admin/")
    page.fill("input[name=username]", "boss")
    page.fill("input[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_url(f"{web}/admin/")


def test_pages_work_under_their_policies(pages: list[str], web: str, browser: Browser) -> None:
    page = browser.new_page()
    complaints: list[str] = []

    def heard(message: Any) -> None:
        if message.type == "error":
            complaints.append(f"{page.url}: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    sign_in(page, web)
    for address in pages:
        answer = page.goto(web + address)
        assert answer is not None
        assert answer.status == 200
        page.wait_for_function("typeof Alpine == 'object'")
    page.goto(f"{web}/api/docs/")
    page.wait_for_selector(".opblock-summary", timeout=30_000)
    assert complaints == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_admin(
    pages: list[str], more_pages: list[str], web: str, browser: Browser, scheme: Any
) -> None:
    page = browser.new_context(color_scheme=scheme).new_page()
    page.goto(f"{web}/admin/")
    assert serious(page) == []
    sign_in(page, web)
    for address in [*pages, *more_pages]:
        page.goto(web + address)
        page.wait_for_function("typeof Alpine == 'object'")
        assert serious(page) == [], address


def test_a_script_from_elsewhere_or_of_nobody_does_not_run(web: str, browser: Browser) -> None:
    """What an attacker got into a page of ours, or into the answer of an address, is not run."""
    page = browser.new_page()
    page.goto(f"{web}/nothing/")
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("window.ran") is None
