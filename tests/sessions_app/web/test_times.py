"""Times on the pages: one form everywhere, with and without scripts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from automations.jobs.edit import NewJob, create_job
from interfaces.web.formats import when, with_times, words
from sessions_app.models import Message
from tests.browser import NEEDS_CHROMIUM, Visitor

TOKYO = ZoneInfo("Asia/Tokyo")
NOW = datetime(2026, 11, 24, 14, 5, tzinfo=UTC)  # 23:05 in Tokyo


def test_an_instant_is_said_in_words() -> None:
    for at, said in (
        (NOW, "today 14:05"),
        (NOW + timedelta(hours=11), "tomorrow 01:05"),
        (NOW - timedelta(days=1), "yesterday 14:05"),
        (datetime(2027, 1, 3, 9, 0, tzinfo=UTC), "Sun 3 Jan 2027 09:00"),
        (datetime(2026, 11, 25, 0, 30, tzinfo=TOKYO), "tomorrow 00:30"),  # the day of its own zone
        (datetime(2026, 11, 24, 0, 30, tzinfo=TOKYO), "today 00:30"),
        (datetime(2026, 12, 31, 23, 0, tzinfo=UTC), "Thu 31 Dec 23:00"),
    ):
        assert words(at, NOW) == said


def test_a_sentence_keeps_all_but_its_instants() -> None:
    said = with_times("<b> ran 2019-02-03 04:05:06, not 2019-13-40 99:99 & 2019-02-04 07:08.", "Asia/Tokyo")
    assert said.startswith("&lt;b&gt; ran <time ")
    named = '<span class="zone">Asia/Tokyo</span></time>'
    assert f">Sun 3 Feb 2019 04:05 {named}, not 2019-13-40 99:99 &amp; <time " in said
    assert "zone" not in with_times("once at 2019-02-03 04:05 (Asia/Tokyo)", "Asia/Tokyo").replace(
        "data-zone", ""
    )
    assert 'title="2019-02-03T04:05:06+09:00 Asia/Tokyo"' in said
    close = with_times("2 slots from 2019-02-03 04:05:06 to 2019-02-03 04:05:09 and 2019-02-03 04:06", "UTC")
    assert all(f">Sun 3 Feb 2019 {clock} <" in close for clock in ("04:05:06", "04:05:09", "04:06"))
    assert with_times("starts at 2019-02-03 04:05", "UTC").startswith("starts on <time ")
    today = datetime.now(UTC)
    assert with_times(f"starts at {today:%Y-%m-%d %H:%M}", "UTC").startswith("starts <time ")
    assert with_times('"><script>', '"><script>') == "&quot;&gt;&lt;script&gt;"


def test_a_zone_is_named_and_escaped() -> None:
    shown = when(datetime(2019, 2, 3, 4, 5, tzinfo=UTC), "Asia/Tokyo")
    assert 'datetime="2019-02-03T13:05:00+09:00"' in shown
    assert '>Sun 3 Feb 2019 13:05 <span class="zone">Asia/Tokyo</span></time>' in shown
    close = datetime(2019, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert (">Sun 3 Feb 2019 04:05:06 <" in when(close, exact=True), ":06 <" in when(close)) == (True, False)
    assert "<script>" not in when(datetime(2019, 2, 3, 4, 5, tzinfo=UTC), "<script>")


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
@pytest.mark.processes
@NEEDS_CHROMIUM
@pytest.mark.parametrize("scripts", [True, False])
def test_pages_say_times_in_one_form(visitor: Visitor, scripts: bool) -> None:
    session = visitor.person.session()
    schedule = {"kind": "cron", "expr": "30 9 3 2 *", "timezone": "Asia/Tokyo"}
    create_job(NewJob(session_id=session.pk, message="x", name="News", schedule=schedule))
    Message.objects.create(session=session, seq=1, role="assistant", content="hello")
    Message.objects.update(created_at=datetime(2019, 2, 3, 23, 5, 6, tzinfo=UTC))
    type(session).objects.filter(pk=session.pk).update(last_seq=1)
    page = visitor.conversation(session, java_script_enabled=scripts, timezone_id="Europe/Berlin")
    said = page.locator(".entry footer time")
    expect(said).to_have_text("Mon 4 Feb 2019 00:05" if scripts else "Sun 3 Feb 2019 23:05 UTC")
    iso = "2019-02-04T00:05:06+01:00 Europe/Berlin" if scripts else "2019-02-03T23:05:06+00:00 UTC"
    expect(said).to_have_attribute("title", iso)
    for zone, named in (("Europe/Berlin", " Asia/Tokyo"), ("Asia/Tokyo", "" if scripts else " Asia/Tokyo")):
        page = visitor.window(java_script_enabled=scripts, timezone_id=zone)
        page.goto(f"/sessions/{session.pk}/appointments/")
        coming = page.locator(".to-come time").first
        year = datetime.now(TOKYO).year
        expect(coming).to_have_text(re_of(year, named))
        assert coming.get_attribute("title").endswith("-02-03T09:30:00+09:00 Asia/Tokyo")  # type: ignore[union-attr]


def re_of(year: int, named: str) -> re.Pattern[str]:
    """3 February, in any year, however near it is."""
    return re.compile(rf"^(\w{{3}} 3 Feb( (?!{year})\d{{4}})?|today|tomorrow) 09:30{named}$")
