"""The layout of pages: only the areas that are meant to scroll do so."""

from __future__ import annotations

from playwright.sync_api import expect

from sessions_app.models import Session
from tests.browser import IN_BROWSER, Visitor

pytestmark = IN_BROWSER


def test_no_page_is_taller_than_its_window(visitor: Visitor) -> None:
    rows = [visitor.person.session(title=f"Talk {number}") for number in range(30)]
    Session.objects.filter(pk__in=[row.pk for row in rows]).update(last_seq=1)  # unread
    page = visitor.window(viewport={"width": 1280, "height": 700})
    for address in (
        f"/agents/{visitor.person.agent.name}/#spending",
        "/account/",
        f"/sessions/{rows[0].pk}/",
    ):
        page.goto(address)
        expect(page.locator(".conversation")).not_to_have_count(0)
        assert page.evaluate("document.scrollingElement.scrollHeight <= innerHeight"), address
        assert page.evaluate("document.querySelector('.bar').getBoundingClientRect().top") == 0, address
