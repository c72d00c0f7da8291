"""Times on the pages: one form everywhere, with and without scripts."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from automations.jobs.edit import NewJob, create_job
from automations.models import ScheduledMessage
from interfaces.web.formats import spoken, when, with_times, words
from sessions_app.agents.zones import zone_of
from sessions_app.models import Message
from tests.browser import NEEDS_CHROMIUM, Visitor
from tests.fleet import until
from tests.talk import fresh

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
    assert with_times("once at 2019-02-03 04:05 (Asia/Tokyo)", "Asia/Tokyo").endswith(f"04:05 {named}")
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


def test_a_time_is_on_the_persons_clock_and_the_other_stands_beside_it() -> None:
    at = datetime(2019, 2, 3, 20, 0, tzinfo=UTC)
    with timezone.override("Asia/Kolkata"):
        assert ">Mon 4 Feb 2019 01:30</time>" in when(at)
        for zone, there in (("Asia/Tokyo", "05:00"), ("America/New_York", "Sun 15:00")):
            beside = f'>Mon 4 Feb 2019 01:30 ({there}<span class="zone"> {zone}</span>)</time>'
            assert beside in when(at, zone)
            assert spoken(at.astimezone(ZoneInfo(zone))) == f"Mon 4 Feb 2019 01:30 ({there} {zone})"
            assert beside in with_times(f"once at {at.astimezone(ZoneInfo(zone)):%F %R}.", zone)
            assert beside in with_times(f"once at {at.astimezone(ZoneInfo(zone)):%F %R} ({zone}).")
        assert 'title="2019-02-04T01:30:00+05:30 Asia/Kolkata"' in when(at, "UTC")
        assert ">Mon 4 Feb 2019 01:30</time>" in when(at, "Asia/Colombo")  # the same there
        for text in ("2019-02-03 20:00 (done)", "9999-12-31 23:59 (UTC)"):  # an unknown clock, no such time
            assert with_times(text) == text
    assert spoken(at.astimezone(TOKYO)) == "Mon 4 Feb 2019 05:00 Asia/Tokyo"


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
@pytest.mark.processes
@NEEDS_CHROMIUM
def test_pages_take_the_browsers_zone_and_offer_it_to_agents(visitor: Visitor) -> None:
    session, user, agent = visitor.person.session(), visitor.person.user, visitor.person.agent
    schedule = {"kind": "cron", "expr": "30 9 3 2 *", "timezone": "Asia/Tokyo"}
    create_job(NewJob(session_id=session.pk, message="x", name="News", schedule=schedule))
    Message.objects.create(session=session, seq=1, role="assistant", content="hello")
    Message.objects.update(created_at=datetime(2019, 2, 3, 23, 5, 6, tzinfo=UTC))
    type(session).objects.filter(pk=session.pk).update(last_seq=1)

    def shows(said: str, coming: str) -> None:
        page.goto(f"/sessions/{session.pk}/")
        expect(page.locator(".entry footer time")).to_have_text(said)
        page.goto(f"/sessions/{session.pk}/appointments/")
        expect(page.locator(".to-come time").first).to_have_text(re_of(datetime.now(TOKYO).year, coming))

    page = visitor.window(java_script_enabled=False, timezone_id="Asia/Kolkata")
    shows("Sun 3 Feb 2019 23:05 UTC", "09:30 Asia/Tokyo")
    assert zone_of(user.pk) == ""
    page = visitor.conversation(session, timezone_id="Asia/Kolkata")
    until(lambda: zone_of(user.pk) == "Asia/Kolkata", 20, "the zone is kept")
    shows("Mon 4 Feb 2019 04:35", "06:00 (09:30 Asia/Tokyo)")
    page.get_by_role("link", name="Message for later").click()
    page.get_by_label("Text").fill("Tea")
    page.get_by_label("When").fill("2030-01-02T09:15")
    page.locator("form .primary").click()
    expect(page.locator(".appointment.message time").first).to_have_text("Wed 2 Jan 2030 09:15 (03:45 UTC)")
    assert ScheduledMessage.objects.get().send_at == datetime(2030, 1, 2, 3, 45, tzinfo=UTC)
    page.goto("/upcoming/")
    expect(page.locator("h1 + .note")).to_contain_text("Asia/Kolkata")
    page.goto(f"/agents/{agent.name}/")
    assert fresh(agent).timezone == "UTC"  # something was planned
    page.get_by_role("button", name="Use mine").click()
    expect(page.locator("#about")).to_contain_text("Asia/Kolkata")
    expect(page.get_by_role("button", name="Use mine")).to_have_count(0)
    page = visitor.window(timezone_id="Europe/Berlin")
    page.goto("/account/")
    page.locator("#other-zone button").click()
    expect(page.get_by_label("Time zone")).to_have_value("Europe/Berlin")
    expect(page.locator("#other-zone")).to_be_hidden()


def re_of(year: int, time: str) -> re.Pattern[str]:
    """3 February, in any year, however near it is."""
    return re.compile(rf"^(\w{{3}} 3 Feb( (?!{year})\d{{4}})?|today|tomorrow) {re.escape(time)}$")
