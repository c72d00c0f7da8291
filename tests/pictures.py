"""The pictures in docs/images/, taken from running pages: `make pictures`."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from automations.jobs.edit import NewJob, create_job
from automations.models import CronJob, RunRecord, RunState
from automations.scheduled_messages import MessageToSchedule, schedule_message
from sessions_app.agents.zones import set_zone
from sessions_app.models import Agent, Message, Session
from sessions_app.models.message import BY_AUTOMATION
from tests.animation import animated
from tests.browser import NEEDS_CHROMIUM, Visitor, browser, served, visitor

__all__ = ["browser", "served", "visitor"]
pytestmark = [NEEDS_CHROMIUM, pytest.mark.django_db(transaction=True)]
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 780}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "phone": {"color_scheme": "light", "viewport": PHONE, "has_touch": True, "is_mobile": True},
}
SMALL = {"width": 1120, "height": 640}
MOST_BYTES = 1_000_000  # of the picture that moves
ZONE = "Europe/Berlin"
SKIPPED = {"skipped": "skipped_by_user", "missed": "missed"}
BRIEFING = """Good morning! Three things matter today:

1. **10:00**: the review with Ana. The draft is in your notes.
2. **14:30**: the dentist, two stops with the U7.
3. The backup of *photos* is a week old:

```sh
rsync -a ~/photos backup:photos
```"""
OTHERS = (
    ("Garden", "Water the tomatoes on Thursday", "I will remind you on Thursday at 18:00."),
    ("Trip to Lisbon", "Which trains go to the airport?", "The red line, every nine minutes until 1:00."),
    ("Reading list", "What was the book that I mentioned?", "“The Dispossessed”, by Ursula K. Le Guin."),
    ("Server care", "Tell me when a backup fails", "I check every hour and tell you of failures only."),
)


@pytest.fixture
def story(visitor: Visitor) -> Session:
    """Conversations and appointments with a past. The one that is shown comes last."""
    Agent.objects.filter(pk=visitor.person.agent.pk).update(timezone=ZONE)
    visitor.person.agent.timezone = ZONE
    set_zone(visitor.person.user.pk, ZONE)
    for title, said, answer in reversed(OTHERS):
        tell(visitor.person.session(title=title), [("user", said, {}, {}), ("assistant", answer, {}, {})])
    session: Session = visitor.person.session(title="Every morning")
    today = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    day, hour = timedelta(days=1), timedelta(hours=1)
    odd = {4: "late", 9: "skipped", 14: "missed"}
    news = automate(session, "Morning briefing", "0 9 * * 1-5", (today.replace(hour=8) - day, day), odd)
    automate(session, "Review of the week", "0 16 * * 5", (today.replace(hour=15) - 4 * day, 7 * day), {})
    odd = {6: "late", 18: "failed", 19: "failed"}
    automate(session, "Backup check", "15 * * * *", (today - hour + hour / 4, hour), odd)
    at = (datetime.now(UTC) + timedelta(days=38)).replace(hour=7, minute=0, second=0, microsecond=0)
    given = MessageToSchedule(session_id=session.pk, send_at=at.isoformat(), message_text="Happy New Year!")
    schedule_message(given)
    arguments = {"action": "add", "expr": "0 9 * * 1-5", "timezone": ZONE}
    added = "Added: every weekday at 09:00. Next: tomorrow."
    call = {"id": "c1", "name": "cron", "arguments": arguments}
    result = {"id": "c1", "name": "cron", "outcome": "ok", "output": added}
    slot = {BY_AUTOMATION: True, "automation_name": news.name, "automation_run_id": f"{news.pk}:0"}
    source = {"source": {"kind": "automation", "name": news.name, "run_id": f"{news.pk}:0"}}
    tell(
        session,
        [
            ("user", "Every weekday at 9, tell me what matters today.", {}, {}),
            ("assistant", "", {"calls": [call]}, {}),
            ("tool", "", {"results": [result]}, {}),
            ("assistant", "I will tell you every weekday at **09:00**, beginning tomorrow.", {}, {}),
            ("user", "Tell me what matters today", {}, slot),
            ("assistant", BRIEFING, {}, source),
            ("user", "Thanks! Remind me at 14:05 to leave for the dentist.", {}, {}),
            ("assistant", "I will remind you today at **14:05**.", {}, {}),
        ],
    )
    return session


def tell(session: Session, lines: list[tuple[str, str, dict[str, Any], dict[str, Any]]]) -> None:
    """Store messages as turns would have."""
    rows = [
        Message(session=session, seq=number, role=role, content=text, parts=parts, metadata=about)
        for number, (role, text, parts, about) in enumerate(lines, session.last_seq + 1)
    ]
    Message.objects.bulk_create(rows)
    Session.objects.filter(pk=session.pk).update(last_seq=rows[-1].seq, updated_at=datetime.now(UTC))


def automate(
    session: Session, name: str, expr: str, past: tuple[datetime, timedelta], odd: dict[int, str]
) -> CronJob:
    """An automation with twenty slots behind it. `past`: the last one and the time between; `odd`: what some became."""
    schedule = {"kind": "cron", "expr": expr, "timezone": ZONE}
    job = create_job(NewJob(session_id=session.pk, name=name, message=name, schedule=schedule))
    last, apart = past
    RunRecord.objects.bulk_create(
        past_run(job, last - apart * (19 - number), odd.get(number, "ran")) for number in range(20)
    )
    return job


def past_run(job: CronJob, slot: datetime, became: str) -> RunRecord:
    run = RunRecord(
        run_id=f"{job.pk}:{int(slot.timestamp())}", job=job, session=job.session, scheduled_for=slot
    )
    run.state, run.finished_at, run.created_at = RunState.SUCCEEDED, slot + timedelta(seconds=4), slot
    run.started_at, run.duration_ms, run.lag_ms = slot, 4_000, 400_000 if became == "late" else 20
    if became == "failed":
        run.state, run.reason = RunState.FAILED, "model_unavailable"
    elif became in SKIPPED:
        run.state, run.reason = RunState.SKIPPED, SKIPPED[became]
        run.started_at = run.duration_ms = run.lag_ms = None
    return run


def take(page: Page, name: str) -> None:
    """Store the picture when fonts and requests have settled."""
    page.wait_for_load_state("load")
    page.evaluate("document.fonts.ready")
    page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


@pytest.mark.parametrize("look", LOOKS)
def test_pictures_of_the_pages_for_people(visitor: Visitor, story: Session, look: str) -> None:
    page = visitor.conversation(story, **LOOKS[look])
    expect(page.locator(".entry")).not_to_have_count(0)
    if look != "phone":
        open_panel(page)
    take(page, f"conversation-{look}")
    if look == "phone":
        open_panel(page)
        take(page, f"appointments-{look}")
    page.get_by_role("link", name="Edit Morning briefing").click()
    expect(page.locator("#coming b")).to_be_visible()
    take(page, f"form-{look}")
    for name, address in (("upcoming", "/upcoming/"), ("agent", f"/agents/{visitor.person.agent.name}/")):
        page.goto(address)
        expect(page.locator("h1")).to_be_visible()
        take(page, f"{name}-{look}")


@pytest.mark.parametrize("look", LOOKS)
def test_pictures_of_the_sign_in_and_the_admin(visitor: Visitor, story: Session, look: str) -> None:
    stranger = visitor.window(**LOOKS[look])
    stranger.context.clear_cookies()
    stranger.goto("/")
    expect(stranger.get_by_label("Password")).to_be_visible()
    take(stranger, f"sign-in-{look}")
    User.objects.filter(pk=visitor.person.user.pk).update(is_staff=True, is_superuser=True)
    page = visitor.window(**LOOKS[look])
    page.goto("/admin/")
    expect(page.locator(".rondo-dashboard")).to_be_visible()
    take(page, f"admin-{look}")


def open_panel(page: Page) -> None:
    page.locator("a.part").click()
    expect(page.get_by_role("heading", name="Appointments")).to_be_visible()


@pytest.mark.timeout(120)
def test_a_moving_picture_of_the_first_minute(visitor: Visitor) -> None:
    """The sentences of the README, as somebody says them; the model is the built-in one."""
    Agent.objects.filter(pk=visitor.person.agent.pk).update(model="offline")
    readme = (IMAGES.parents[1] / "README.md").read_text().partition("## For programs")[0]
    beat = visitor.site.fleet.beat()
    page = visitor.conversation(viewport=SMALL)
    frames: list[tuple[bytes, int]] = []

    def take_frame(shown: int) -> None:
        frames.append((page.screenshot(caret="initial"), shown))

    take_frame(1_500)
    for number, sentence in enumerate(re.findall(r"^\d\. `([^`]+)`", readme, re.MULTILINE), 1):
        page.get_by_label("Message", exact=True).fill(sentence)
        take_frame(1_500)
        page.keyboard.press("Enter")
        expect(page.locator(".entry.agent:not(.live) .text")).to_have_count(number)
        take_frame(2_000)
    open_panel(page)
    take_frame(2_500)
    for number in (1, 2):
        expect(page.locator(".strip a[aria-label^=ran]")).to_have_count(number, timeout=40_000)
        take_frame(2_500)
    page.locator("#panel").get_by_role("button", name="Pause").click()
    expect(page.locator(".appointment.paused")).to_be_visible()
    page.mouse.move(0, 0)
    take_frame(2_500)
    beat.kill()
    picture = animated(frames)
    assert len(picture) < MOST_BYTES
    (IMAGES / "first-minute.png").write_bytes(picture)
