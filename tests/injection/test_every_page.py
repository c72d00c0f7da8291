"""Every page, filled to the brim: axe finds nothing serious in either scheme, and a phone scrolls one way only.

No page runs, loads or sends anything because of what a user or a model wrote, and every such text is shown.
"""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.urls import reverse
from playwright.sync_api import Page

from interfaces.http.sign_in import issue
from sessions_app.models import Session
from tests.admin.conftest import url
from tests.browser import IN_BROWSER, Visitor, serious
from tests.conftest import new_person
from tests.injection.columns import UNSEEN, hostile_columns
from tests.injection.corpus import LINES
from tests.injection.watch import window
from tests.injection.world import World, forms_of, hostile_world

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


def pages_of_people(world: World) -> Iterator[str]:
    """The pages of a person for the first rows, and each conversation."""
    rows = world.rows[0]
    job, routine, message = rows["cronjob"], rows["routine"], rows["scheduledmessage"]
    here = f"/sessions/{rows['session'].pk}"
    for session in world.every("session"):
        yield f"/sessions/{session.pk}/"
        yield f"/sessions/{session.pk}/appointments/"
    yield from (f"{here}/{part}/" for part in ("older", "updates", "deleting"))
    yield f"{here}/appointments/automation/{job.pk}/"
    yield f"{here}/appointments/automation/{job.pk}/delete/"
    yield f"{here}/appointments/message/{message.pk}/"
    yield from (
        f"{here}/automations/{job.pk}/{part}" for part in ("", "pause/", "move/?slot=2099-01-01T00:00:00Z")
    )
    yield f"{here}/routines/{routine.pk}/"
    yield f"{here}/appointments/routine/{routine.pk}/"
    yield f"{here}/appointments/routine/{routine.pk}/delete/"
    yield f"{here}/automations/new/"
    yield f"{here}/messages/later/"
    yield f"{here}/pause/"
    for name in ("runrecord", "told"):
        yield f"{here}/runs/{rows[name].pk}/"
    agent = world.person.agent.name
    primary = Session.objects.get(agent=world.person.agent, type="primary").pk
    yield from (
        f"/sessions/{primary}/",
        "/upcoming/",
        "/upcoming/?from=2026-11-18",
        "/upcoming/pause/",
        "/agents/",
        "/agents/-/new/",
        f"/agents/{agent}/",
    )
    yield from (f"/agents/{agent}/documents/USER.md/{query}" for query in ("", "?revision=1"))
    yield "/account/"


def pages_with_hostile_addresses(world: World) -> Iterator[str]:
    """Pages that show a part of their address, or read it in their scripts."""
    here = f"/sessions/{world.rows[0]['session'].pk}"
    for each in (" ".join(LINES[:10])[:100], " ".join(LINES[8:])[:100]):
        given = quote(each, safe="")
        yield f"/?q={given}"
        yield f"/sign-in/?next={given}"
        yield f"{here}/?run={given}"
        yield f"/upcoming/?from={given}"
        yield f"/account/?done={given}%00"
        yield f"/admin/sessions_app/session/?q={given}"
        yield f"/admin/sessions_app/session/{world.rows[0]['session'].pk}/change/?_changelist_filters={given}"


def pages_of_staff(world: World) -> Iterator[str]:
    """Each list, the page of a row of each model, and the deletions."""
    yield "/admin/"
    for model in admin.site._registry:
        meta = model._meta
        name = f"admin:{meta.app_label}_{meta.model_name}"
        yield reverse(f"{name}_changelist")
        row = model._default_manager.order_by("pk").first()
        if row is not None:
            yield reverse(f"{name}_change", args=[row.pk])
    for row in (world.rows[0]["session"], world.person.agent, world.rows[0]["cronjob"]):
        yield url(row, "delete")
    for row in (world.rows[0]["session"], world.rows[0]["user"]):
        yield url(row, "history")
    for name in ("legacy", "told", "taskstate"):
        yield url(world.rows[0][name], "change")
    yield from (url(row, "change") for row in world.every("scheduledmessage")[1:3])
    yield f"/admin/search/?s={quote(LINES[0], safe='')}"


@pytest.mark.rule("10.5")
@pytest.mark.timeout(300)
def test_no_page_takes_a_text_for_html_and_each_text_is_shown(visitor: Visitor) -> None:
    world = hostile_world(visitor.person)
    person, staff = window(visitor, visitor.person.user), window(visitor, world.staff)
    for address in [*pages_of_people(world), *pages_with_hostile_addresses(world)]:
        (staff if address.startswith("/admin") else person).open(address)
    for address in pages_of_staff(world):
        staff.open(address)
    assert person.faults + staff.faults == []
    unseen = [
        name
        for name in hostile_columns()
        if not any(
            seen.shows(form)
            for seen in (person, staff)
            for text in world.texts[name]
            for form in forms_of(text)
        )
    ]
    assert unseen == list(UNSEEN)
