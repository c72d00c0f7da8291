"""Every page, filled to the brim: axe finds nothing serious in either scheme, and a phone scrolls one way only."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Page

from interfaces.http.sign_in import issue
from tests.browser import IN_BROWSER, Visitor, serious
from tests.conftest import new_person
from tests.injection.corpus import LINES
from tests.injection.test_pages import pages_of_people
from tests.injection.world import World, hostile_world

pytestmark = [*IN_BROWSER, pytest.mark.full]
PARTS = ("older/", "updates/")  # which are no pages
PHONE = {"width": 390, "height": 780}


def addresses(world: World) -> list[str]:
    """The pages of a person, of one conversation only, and those with parts of their address."""
    here = f"/sessions/{world.rows[0]['session'].pk}/"
    found = [each for each in pages_of_people(world) if not each.endswith(PARTS)]
    mine = [each for each in found if not each.startswith("/sessions/") or each.startswith(here)]
    given = quote(" ".join(LINES[:10])[:100], safe="")
    found = [*dict.fromkeys(mine), f"/?q={given}", "/?q=x", f"/upcoming/?from={given}", "/nothing/"]
    return [*found, "/sign-in/", "/enter/wrong/", issue(world.person.user)]


def overflows(page: Page) -> bool:
    """Whether the page, or what scrolls in it, is wider than the window."""
    wide: bool = page.evaluate(
        "() => [document.documentElement, ...document.querySelectorAll('.scroll, .panel')]"
        ".some((each) => each.scrollWidth > each.clientWidth + 1)"
    )
    return wide


@pytest.mark.timeout(300)
def test_every_page_is_accessible_and_fits_a_phone(visitor: Visitor) -> None:
    world = hostile_world(visitor.person)
    light, dark = (visitor.window(color_scheme=scheme) for scheme in ("light", "dark"))
    phone = visitor.window(viewport=PHONE, has_touch=True, is_mobile=True)
    found = []
    for address in addresses(world):
        for page in (light, dark):
            page.goto(address)
            found += serious(page)
        phone.goto(address)
        found += [f"{address} is too wide"] if overflows(phone) else []
    assert found == []


def test_the_first_page_of_somebody_without_an_agent_is_accessible(visitor: Visitor) -> None:
    newcomer = new_person("newcomer")
    newcomer.agent.sessions.all().delete()
    newcomer.agent.delete()
    visitor.person = newcomer
    for scheme in ("light", "dark"):
        page = visitor.window(color_scheme=scheme)
        for address in ("/", "/agents/", "/upcoming/"):
            page.goto(address)
            assert serious(page) == []
