"""Links, signing in and the account page in a real browser: by keyboard, light and dark, without scripts."""

from __future__ import annotations

import httpx2
import pytest
from playwright.sync_api import expect

from interfaces.web.sign_in_links import issue
from tests.browser import IN_BROWSER, Visitor

pytestmark = IN_BROWSER


@pytest.mark.full
def test_a_link_signs_in_and_its_token_leaves_no_trace(visitor: Visitor) -> None:
    page = visitor.browser.new_context(base_url=visitor.site.url, java_script_enabled=False).new_page()
    referers: list[str] = []
    page.on("request", lambda request: referers.append(request.all_headers().get("referer", "")))
    visitor.person.session(title="First talk")
    path = issue(visitor.person.user)
    page.goto(path)
    expect(page.get_by_role("button", name="Continue")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("First talk")
    assert any(referers)
    assert not [each for each in referers if "/enter/" in each]
    visitor.site.web.wait_for('"POST /enter/***/ ')
    assert path.split("/")[2] not in visitor.site.web.text()
    page.context.close()


def test_somebody_signs_in_gets_a_token_and_signs_out(visitor: Visitor) -> None:
    page = visitor.browser.new_context(base_url=visitor.site.url).new_page()
    page.goto("/account/")
    page.get_by_label("User name").fill("ada")
    page.keyboard.press("Tab")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.locator(".errorlist.nonfield")).to_contain_text("correct username and password")
    page.get_by_label("Password").fill("pw")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Your account")).to_be_visible()  # where they wanted to go
    page.get_by_label("Name", exact=True).fill("phone")
    page.get_by_role("button", name="Make a token").click()
    key = page.locator(".secret").inner_text()
    authorization = {"Authorization": f"Token {key}"}
    assert httpx2.get(f"{visitor.site.url}/api/agents/", headers=authorization).status_code == 200
    page.goto("/")
    page.get_by_role("link", name="Your account: ada").click()
    expect(page.get_by_text("Last used today")).to_be_visible()
    page.locator("summary", has_text="Revoke").click()
    page.get_by_role("button", name="Revoke phone").click()
    expect(page.get_by_text("The token was revoked.")).to_be_visible()
    assert httpx2.get(f"{visitor.site.url}/api/agents/", headers=authorization).status_code == 401
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.goto("/")
    expect(page.get_by_label("Password")).to_be_visible()
    page.context.close()
