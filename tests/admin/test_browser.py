"""The admin and the pages of the API in a real browser: nothing that they need is kept back by their policies."""

from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from automations.models import RunState
from sessions_app.models import Session, TurnState
from tests.admin.conftest import fill, make_job, make_turn, url
from tests.admin.test_dashboard import add_run
from tests.browser import IN_BROWSER, Visitor, browser, serious, served, visitor
from tests.conftest import new_person

__all__ = ["browser", "served", "visitor"]
PASSWORD = "correct horse battery staple"
pytestmark = IN_BROWSER


@pytest.fixture
def session(visitor: Visitor) -> Session:
    """A session of somebody else, for a superuser."""
    # as the web process hashes passwords, not as these tests do
    hashed = PBKDF2PasswordHasher().encode(PASSWORD, "salt")
    User.objects.create(username="boss", password=hashed, is_staff=True, is_superuser=True)
    found: Session = visitor.person.session(title="A thread")
    return found


def sign_in(visitor: Visitor, **options: Any) -> Page:
    """A superuser's window. What it reports is a complaint, a file that is missing, too."""
    page = visitor.window(**options)
    page.context.clear_cookies()

    def heard(message: Any) -> None:
        if message.type == "error":
            visitor.complaints.append(f"{page.url}: {message.text}")

    page.on("console", heard)
    page.goto("/admin/")
    assert serious(page) == []
    page.get_by_label("Username").fill("boss")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator(".rondo-dashboard")).to_be_visible()
    return page


@pytest.mark.full
@pytest.mark.timeout(300)
def test_pages_work_under_their_policies_and_are_accessible(visitor: Visitor, session: Session) -> None:
    """Every list with a row, forms with autocompletion, panels, a deletion in two steps, rows nobody edits."""
    job, rows = make_job(session), fill(new_person("grace"))
    add_run(rows["cronjob"], RunState.FAILED, 9, reason="timeout", error_detail="Traceback")
    make_turn(rows["session"], TurnState.FAILED, error_code="timeout")
    pages = ["/admin/", url(job, "add"), url(session, "delete")]
    pages += [url(row, "change") for row in (session, job, visitor.person.agent, visitor.person.user)]
    pages += [url(row, "changelist") for row in rows.values()]
    pages += [url(rows[name], "change") for name in ("runrecord", "turn", "delivery", "hook", "document")]
    for scheme in ("light", "dark"):
        page = sign_in(visitor, color_scheme=scheme)
        for address in pages:
            answer = page.goto(address)
            assert answer is not None
            assert answer.status == 200
            page.wait_for_function("typeof Alpine == 'object'")
            assert serious(page) == [], (address, scheme)
    page = visitor.window()
    page.goto("/api/docs/")
    page.wait_for_selector(".opblock-summary", timeout=30_000)
