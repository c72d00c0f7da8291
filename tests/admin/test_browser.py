"""The admin and the pages of the API in a real browser: nothing that they need is kept back by their policies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from playwright.sync_api import Browser, sync_playwright

from tests.admin.conftest import make_job, url
from tests.api.conftest import start_web
from tests.conftest import new_person

PASSWORD = "correct horse battery staple"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
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
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
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


def test_pages_work_under_their_policies(pages: list[str], web: str, browser: Browser) -> None:
    page = browser.new_page()
    complaints: list[str] = []

    def heard(message: Any) -> None:
        if message.type == "error" and not message.location["url"].endswith("/favicon.ico"):
            complaints.append(f"{page.url}: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.goto(f"{web}/admin/login/")
    page.fill("input[name=username]", "boss")
    page.fill("input[name=password]", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_url(f"{web}/admin/")
    for address in pages:
        answer = page.goto(web + address)
        assert answer is not None
        assert answer.status == 200
        page.wait_for_function("typeof Alpine == 'object'")
    page.goto(f"{web}/api/docs/")
    page.wait_for_selector(".opblock-summary", timeout=30_000)
    assert complaints == []


def test_a_script_from_elsewhere_or_of_nobody_does_not_run(web: str, browser: Browser) -> None:
    """What an attacker got into a page of ours, or into the answer of an address, is not run."""
    page = browser.new_page()
    page.goto(f"{web}/nothing/")
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("window.ran") is None
