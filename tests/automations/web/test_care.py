"""What people set around a run, in a browser: caps, model, tools, gate, own data, retries."""

from datetime import timedelta

import pytest
from playwright.sync_api import expect

from automations.models import Attention, CronJob, RunState
from automations.runs.skips import GapReason
from sessions_app.models import Agent, Connection
from tests.admin.conftest import make_turn
from tests.automations.jobs.made import past_run
from tests.automations.web.test_appointments import automation, make, open_panel, panel
from tests.browser import IN_BROWSER, Visitor, serious

pytestmark = [*IN_BROWSER, pytest.mark.full]
MOST_OF_A_MARK = 24  # pixels
FIELDS = {
    "US dollars a day": "0.5",
    "Tokens a month": "9000",
    "Model": "openai-chat:test",
    "Longest reply in tokens": "500",
    "Only these tools": "cron, current_time",
    "Run only if this address has changed": "https://example.org/news",
    "Only this JSON value counts": "/items/0",
}


@pytest.mark.rule("11.1", "11.6", "11.7")
def test_an_automation_gets_caps_model_tools_and_a_gate(visitor: Visitor) -> None:
    page, job = panel(visitor)
    page.get_by_role("link", name="Edit Morning news").click()
    page.locator(".schedule").get_by_text("More", exact=True).click()
    for label, value in (FIELDS | {"US dollars a day": "much"}).items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".field-usd_day .error")).to_be_visible()
    page.get_by_label("US dollars a day").fill(FIELDS["US dollars a day"])
    assert serious(page) == []
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Why? Morning news").click()
    facts = page.locator(".facts")
    for shown in ("$0.50", "9,000", *(value for label, value in FIELDS.items() if " a " not in label)):
        expect(facts).to_contain_text(shown)
    assert serious(page) == []
    job.refresh_from_db()
    assert job.limits == {"day": {"usd": "0.50"}, "month": {"tokens": 9000}}
    assert job.gate == {"kind": "http_changed", "url": "https://example.org/news", "pointer": "/items/0"}
    assert (job.model, job.max_output_tokens) == ("openai-chat:test", 500)
    assert job.allow_tools == ["cron", "current_time"]


@pytest.mark.rule("11.8")
def test_a_second_equal_automation_is_made_only_when_it_is_meant(visitor: Visitor) -> None:
    page = visitor.conversation()
    open_panel(page)
    make(page, "Water the plants", "3", "hours")
    expect(page.locator(".appointment")).to_have_count(1)
    make(page, "Water the plants", "3", "hours")
    meant = page.get_by_label("Create a second one all the same")
    meant.check()
    assert serious(page) == []
    assert CronJob.objects.count() == 1
    page.get_by_role("button", name="Create").click()
    expect(page.locator(".appointment")).to_have_count(2)


@pytest.mark.rule("11.2", "11.3")
def test_marks_are_small_and_a_failed_slot_is_tried_again_though_others_were_skipped(
    visitor: Visitor,
) -> None:
    session = visitor.person.session()
    job = automation(session)
    past_run(job, 3, RunState.SUCCEEDED, attention=Attention.EMPTY)
    run = past_run(job, 2, RunState.FAILED, "model_auth", turn=make_turn(session))
    past_run(job, 1, RunState.SKIPPED, GapReason.BACKOFF)
    page = visitor.conversation(session)
    open_panel(page)
    for place in (page, visitor.window()):
        if place != page:
            place.goto(f"/upcoming/?from={run.scheduled_for - timedelta(days=2):%Y-%m-%d}")
        box = place.locator("svg.slot.attention:visible").first.bounding_box()
        assert box is not None
        assert box["width"] == box["height"] <= MOST_OF_A_MARK
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".strip svg.waiting")).to_have_count(1)
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.QUEUED, 2)


@pytest.mark.rule("3.5")
def test_a_server_is_added_marked_as_own_data_and_deleted(visitor: Visitor) -> None:
    page = visitor.window()
    page.goto("/agents/demo/")
    tools = page.locator("#tools")
    tools.get_by_text("Add an MCP server").click()
    for label, value in {
        "Name": "calendar",
        "Address": "https://calendar.example.org/mcp",
        "Headers, one in a line": "X-Key: calendar-4711",
    }.items():
        tools.get_by_label(label, exact=True).fill(value)
    tools.get_by_role("button", name="Add").click()
    expect(tools.locator(".server .name")).to_have_text("calendar")
    before = Agent.objects.get().mcp_servers["calendar"]
    tools.get_by_text("Change calendar").click()
    assert serious(page) == []
    server = tools.locator(".server")
    server.get_by_label("Its answers are my own data").check()
    server.get_by_role("button", name="Save calendar").click()
    expect(server.locator(".chip")).to_have_text("Own data")
    assert Agent.objects.get().mcp_servers["calendar"] == before | {"own": True}
    tools.get_by_text("Delete calendar").first.click()
    tools.get_by_role("button", name="Delete calendar").click()
    expect(server).to_have_count(0)
    assert Agent.objects.get().mcp_servers == {}


@pytest.mark.rule("11.1")
def test_a_connection_gets_a_cap_and_prices(visitor: Visitor) -> None:
    page = visitor.window()
    page.goto("/agents/demo/")
    connections = page.locator("#connections")
    for label, value in {
        "Name": "work",
        "Address": "https://llm.example.org/v1",
        "US dollars a day": "5",
        "US dollars for a million tokens read": "0.40",
        "US dollars for a million tokens written": "1.60",
    }.items():
        connections.get_by_label(label, exact=True).fill(value)
    connections.get_by_role("button", name="Add").click()
    expect(connections).to_contain_text("$0.00 of $5.00")
    expect(connections.locator(".server")).to_contain_text("own prices")
    row = Connection.objects.get()
    assert row.limits == {"day": {"usd": "5.00"}}
    assert row.prices == {"*": {"input": "0.40", "output": "1.60"}}
    connections.get_by_text("Change work").click()
    assert serious(page) == []
