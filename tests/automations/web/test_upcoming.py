"""The page of all conversations in a browser: a grid or a list, in which nothing moves when a form is sent."""

from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import Page, expect

from automations.models import RunRecord, RunState
from tests.admin.conftest import make_turn
from tests.automations.jobs.made import new, past_run
from tests.browser import IN_BROWSER, Visitor, serious

pytestmark = IN_BROWSER


def boxes(page: Page, selector: str) -> list[Any]:
    return [each.bounding_box() for each in page.locator(f"{selector}:visible").all()]


def test_slots_are_skipped_and_tried_again_where_they_stand(visitor: Visitor) -> None:
    session = visitor.person.session(title="Home")
    job, other = new(session, name="Tea"), new(session, name="Walk")
    run = past_run(other, 1, RunState.FAILED, "timeout", turn=make_turn(session))
    page = visitor.window(viewport={"width": 1280, "height": 800})
    page.goto("/upcoming/")
    before = boxes(page, "#week .slot-line")
    assert [len({box[axis] for box in boxes(page, ".day h2")}) for axis in "xy"] == [7, 1]
    slots = page.locator("#week .slot-line").filter(has_text="Tea")
    slots.first.get_by_role("button", name="Skip").press("Enter")
    expect(slots.first.locator("svg.skipped")).to_be_visible()
    expect(slots.first).to_be_focused()
    expect(slots.nth(1).get_by_role("button", name="Skip")).to_be_visible()
    page.locator(".notices").get_by_role("button", name="Try again").click()
    expect(page.locator(".notices [role=status]")).to_be_visible()
    assert boxes(page, "#week .slot-line") == before
    assert serious(page) == []
    run.refresh_from_db()
    assert (run.state, RunRecord.objects.get(job=job).state) == (RunState.QUEUED, RunState.SKIPPED)
    page.get_by_role("link", name="Move Tea").first.focus()
    page.keyboard.press("Enter")
    page.get_by_label("Run it at").fill("2020-01-01T10:00")
    page.get_by_role("button", name="Move it").click()
    expect(page.locator(".field-to .error")).to_be_visible()
    page.get_by_label("Run it at").fill(f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}T23:30")
    page.get_by_role("button", name="Move it").click()
    for name in ("Undo", "Skip Walk", "Move Tea"):
        expect(page.get_by_label(name).or_(page.get_by_text(name, exact=True)).first).to_be_visible()
    moved = RunRecord.objects.get(reason="moved")
    page.get_by_role("button", name="Move Tea back").click()
    expect(page.get_by_role("button", name="Move Tea back")).to_have_count(0)
    assert not RunRecord.objects.filter(pk=moved.pk).exists()
    page.get_by_role("link", name="Pause all").click()
    page.get_by_role("button", name="Pause all").click()
    expect(page.get_by_role("link", name="Move")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("link", name="Move Walk").first).to_be_attached()
    phone = visitor.window(viewport={"width": 390, "height": 780}, java_script_enabled=False)
    phone.goto("/upcoming/")
    assert len({box["x"] for box in boxes(phone, ".day h2")}) == 1
    phone.get_by_role("button", name="Skip Walk").click()
    expect(phone.locator("#week svg.skipped")).to_have_count(2)
