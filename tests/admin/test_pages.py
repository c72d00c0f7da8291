"""Every list and page answers, shows what it should, and asks the database a bounded number of times."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import DateTimeField
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from automations.models import JobClock, RunRecord, ScheduledMessage
from sessions_app.models import Agent, Session, Spending
from sessions_app.sessions.open import primary_session
from sessions_app.spending.accounts import set_user_caps
from tests.admin.conftest import act, fill, make_job, make_turn, shown, url
from tests.conftest import Person, new_person
from tests.tokens import token_of as api_token_of

# on a job's or a bot's page, in /metrics, on the pages for people; what only the upkeep or heartbeats read; secrets;
# where a program's chat is; what was handled; images, which no page shows
SHOWN_ELSEWHERE = {
    *(
        "JobClock",
        "ZoneData",
        "Pruning",
        "Counter",
        "ReadMark",
        "RemovedRoutine",
        "JobHealth",
        "JobPreflight",
    ),
    *("SignInLink", "StreamTicket", "ClientChat", "ClientMessage", "TelegramChat", "TelegramUpdate"),
    *("Attachment", "CalendarAddress", "Invitation", "PushSubscription", "ToldCause", "UserSettings"),
}
READ_ONLY = (
    *("turn", "turnstep", "message", "mailboxevent", "event", "worker", "runrecord", "scheduledmessage"),
    *("idempotencykey", "delivery", "taskstate", "allowance", "hook", "telegrambot"),
)
MOST_QUERIES = 20


def test_every_model_of_ours_has_its_page() -> None:
    from django.apps import apps

    ours = [m for label in ("sessions_app", "automations") for m in apps.get_app_config(label).get_models()]
    assert {model.__name__ for model in ours if not admin.site.is_registered(model)} == SHOWN_ELSEWHERE


@pytest.mark.long("every list of the admin")
@pytest.mark.parametrize(
    "queries",
    [
        ("",),
        pytest.param(
            (
                "?q=%00",
                "?q=hello",
                "?q=%27%22%3C",
                "?q={pk}",
                "?p=99999999",
                "?state__exact=%00",
                "?o=1.-2",
                "?x=1",
            ),
            marks=pytest.mark.full,
        ),
    ],
    ids=["plain", "more"],
)
def test_every_list_page_and_search_answers(
    staff: Client, rows: dict[str, Any], queries: tuple[str, ...]
) -> None:
    for name, row in rows.items():
        for query in queries:
            response = staff.get(url(row, "changelist") + query.format(pk=row.pk), follow=True)
            assert response.status_code == 200, (name, query)
        assert staff.get(url(row, "change")).status_code == 200, name
    assert staff.get(reverse("admin:index")).status_code == 200


def test_a_search_finds_what_its_term_names_exactly(staff: Client, rows: dict[str, Any]) -> None:
    session = rows["session"]
    for name in ("turn", "message", "mailboxevent", "event", "delivery", "cronjob"):
        row = rows[name]
        of_session = row.target if name == "mailboxevent" else row.session
        for term, found in ((of_session.pk, True), (of_session.key, True), ("no-such-thing", False)):
            page = shown(staff, row, "changelist", q=str(term))
            assert (url(row, "change") in page) == found, (name, term)
    for term in (session.pk, session.key, session.key[2:]):
        assert url(session, "change") in shown(staff, session, "changelist", q=str(term))


@pytest.mark.parametrize("names", [("runrecord",), pytest.param(None, marks=pytest.mark.full)])
@pytest.mark.django_db(transaction=True)  # a refused value ends the transaction that it is in
def test_values_that_cannot_be_stored_are_answered(
    staff: Client, rows: dict[str, Any], names: tuple[str, ...] | None
) -> None:
    request = RequestFactory().get("/admin/")
    request.user = get_user_model().objects.get(username="root")
    for row in (rows[name] for name in names or rows):
        page, model_admin = url(row, "changelist"), admin.site.get_model_admin(type(row))
        times = [each.name for each in row._meta.concrete_fields if isinstance(each, DateTimeField)]
        for name in times:
            for asked in ({f"{name}__year": "99999"}, {f"{name}__year__gte": "0"}, {f"{name}__gte": "9" * 9}):
                assert staff.get(page, asked, follow=True).status_code < 500, (page, asked)
        for action in model_admin.get_actions(request):
            for wrong in ("abc", "9" * 40, "-1", "\x00"):
                data = {"action": action, "index": "0", "_selected_action": [wrong]}
                assert staff.post(page, data, follow=True).status_code < 500, (page, data)
        for name in model_admin.get_autocomplete_fields(request):
            field = {"app_label": row._meta.app_label, "model_name": row._meta.model_name, "field_name": name}
            for term in ("\x00", "9" * 400):
                answer = staff.get(reverse("admin:autocomplete"), field | {"term": term})
                assert answer.status_code < 500, (field, term)
    field = {"app_label": "automations", "model_name": "cronjob", "field_name": "session", "term": "\x00"}
    assert staff.get(reverse("admin:autocomplete"), field).status_code == 400
    action = next(iter(admin.site.get_model_admin(Session).get_actions(request)))
    unknown = {"action": action, "index": "0", "_selected_action": ["abc"]}
    assert staff.post(reverse("admin:sessions_app_session_changelist"), unknown).status_code == 400


@pytest.mark.full
def test_an_address_that_cannot_be_one_is_answered(staff: Client, rows: dict[str, Any]) -> None:
    for row in rows.values():
        for wrong in ("nonsense", "0", "9" * 40, "%00", "00000000-0000-4000-8000-000000000000"):
            for page in ("change", "delete", "history"):
                address = url(row, page).replace(url(row, page).rsplit("/", 3)[1], wrong)
                assert staff.get(address, follow=True).status_code in {200, 403, 404}, address


@pytest.mark.full
def test_pages_and_lists_do_not_ask_once_per_row(staff: Client, person: Person, rows: dict[str, Any]) -> None:
    def asked() -> dict[str, int]:
        counts = {}
        for name, row in rows.items():
            for page in ("change", "changelist"):
                with CaptureQueriesContext(connection) as queries:
                    staff.get(url(row, page))
                counts[f"{name} {page}"] = len(queries)
        return counts

    asked()
    before = asked()
    for number in range(5):
        fill(person)
        fill(new_person(f"user{number}"))
        make_turn(rows["session"])
    assert asked() == before
    assert max(before.values()) <= MOST_QUERIES


def test_rows_of_the_machinery_cannot_be_written_and_strangers_see_nothing(
    staff: Client, rows: dict[str, Any]
) -> None:
    stranger = Client()
    for user in (None, new_person("eve").user):
        if user is not None:
            stranger.force_login(user)
        for row in rows.values():
            for page in ("changelist", "change", "delete"):
                response = stranger.get(url(row, page))
                assert response.status_code == 302
                assert "/login/" in response["Location"]
    for name in READ_ONLY:
        row = rows[name]
        before = type(row).objects.filter(pk=row.pk).values().get()
        assert staff.get(url(row, "add")).status_code == 403
        assert staff.post(url(row, "add"), {}).status_code == 403
        assert staff.post(url(row, "change"), {"state": "failed", "content": "x"}).status_code == 403
        assert staff.get(url(row, "delete")).status_code == 403
        assert staff.post(url(row, "delete"), {"post": "yes", "confirmed": "yes"}).status_code == 403
        act(staff, "delete_selected", row, post="yes", confirmed="yes")
        assert type(row).objects.filter(pk=row.pk).values().get() == before
    given = {"title": "New title", "state": "archived", "revision": "9", "last_seq": "7"}
    staff.post(url(rows["session"], "change"), given)
    stored = Session.objects.get(pk=rows["session"].pk)
    assert (stored.title, stored.state, stored.revision, stored.last_seq) == ("New title", "open", 0, 0)


def test_pages_show_what_belongs_to_their_rows_and_escape_it(staff: Client, rows: dict[str, Any]) -> None:
    clock, message = JobClock.objects.filter(job=rows["cronjob"]), rows["scheduledmessage"]
    clock.update(next_run_at=datetime(2031, 2, 3, 9, 0, 7, tzinfo=UTC))
    about = {"scheduled_message": message, "scheduled_for": message.send_at}
    told = RunRecord.objects.create(run_id=f"{message.pk}:1", session=rows["session"], **about)
    to = {name: url(row, "change") for name, row in rows.items()}
    script = "&lt;script&gt;alert(1)&lt;/script&gt;"
    of_turn = ("&lt;i&gt;x&lt;/i&gt;", script, "Traceback …", "2026-11-21 09:00:05", "Queued at")
    schedule = "every day at 09:00 (UTC)"
    for name, page, texts in (
        ("turn", "change", of_turn),
        ("runrecord", "change", ("the rendered prompt", "the variable", "the operators&#x27; detail")),
        ("runrecord", "changelist", (to["scheduledmessage"],)),
        ("scheduledmessage", "change", ("&lt;b&gt;later&lt;/b&gt;", url(told, "change"), to["session"])),
        ("session", "change", (to["scheduledmessage"], to["cronjob"], to["turn"], schedule)),
        ("cronjob", "change", ("bound", schedule, to["runrecord"], "2031-02-03 09:00:07")),
    ):
        text = shown(staff, rows[name], page)
        assert [each for each in texts if each not in text] == [], (name, page)
        assert "<script>alert(1)" not in text


def test_hooks_are_switched_and_waiting_messages_cancelled(
    staff: Client, person: Person, rows: dict[str, Any]
) -> None:
    hook = rows["hook"]
    for action, enabled in (("disable", False), ("enable", True)):
        act(staff, action, hook)
        hook.refresh_from_db()
        assert hook.enabled is enabled
    assert hook.revision == 3
    waits, taken = rows["scheduledmessage"], fill(person)["scheduledmessage"]
    ScheduledMessage.objects.mark_taken([taken.pk])
    said = act(staff, "cancel", waits, taken).content.decode()
    assert f"Scheduled message {waits.pk} is cancelled." in said
    reason = "The message is being sent and cannot be cancelled any more."
    assert f"Scheduled message {taken.pk}: {reason}" in said
    left = [ScheduledMessage.objects.get(pk=row.pk).status for row in (waits, taken)]
    assert left == ["cancelled", "pending"]


def test_links_to_full_lists_show_only_what_belongs_there(
    staff: Client, person: Person, rows: dict[str, Any]
) -> None:
    fill(person)
    for name in ("agent", "session", "turn", "cronjob"):
        panels = staff.get(url(rows[name], "change")).context["panels"]
        for panel in panels:
            if panel.more:
                listed = staff.get(panel.more)
                assert listed.status_code == 200, panel
                assert len(listed.context["cl"].result_list) == len(panel.rows), panel


def test_the_list_of_tokens_shows_their_beginnings_only(staff: Client, person: Person) -> None:
    token = api_token_of(person.user)
    page = staff.get(reverse("admin:sessions_app_apitoken_changelist")).content.decode()
    assert token[:8] in page
    assert token[:9] not in page


@pytest.mark.rule("4.10")
def test_a_thread_page_names_the_shown_session_and_own_automations(staff: Client, person: Person) -> None:
    thread = person.session()
    own = make_job(thread, "of the thread")
    assert "its own history" in shown(staff, thread)
    Agent.objects.filter(pk=person.agent.pk).update(unified_session=True)
    home = primary_session(person.agent)
    theirs = make_job(home, "of the primary")
    page = shown(staff, thread)
    assert "in unified mode" in page
    assert url(home, "change") in page
    assert own.pk in page
    assert theirs.pk not in page
    assert "its own history" in shown(staff, home)


@pytest.mark.rule("11.1")
def test_the_page_of_a_user_shows_what_they_used_and_their_caps(staff: Client, person: Person) -> None:
    used = {"requests": 2, "input_tokens": 4_711, "output_tokens": 20}
    make_turn(person.session(), usage=used, model="openai-chat:gpt-4o", queued_at=datetime.now(UTC))
    assert "4,711 tokens read" in shown(staff, person.user)
    caps = set_user_caps(person.user.pk, {"run": {"usd": "0.25"}, "day": {"usd": "12.50"}})
    page = shown(staff, person.user)
    assert "$0.25 a run, $12.50 a day" in page
    assert url(caps, "change") in page


@pytest.mark.rule("11.1")
def test_the_list_of_spending_leads_to_whose_cap_it_is_and_says_amounts(
    staff: Client, person: Person
) -> None:
    key = f"agent:{person.agent.pk}:day:2026-11-28"
    row = Spending.objects.create(key=key, spent_tokens=12_345, spent_micro_usd=1_920_000)
    Spending.objects.create(key="<b>")
    page = staff.get(url(row, "changelist")).content.decode()
    assert url(person.agent, "change") in page
    assert "&lt;b&gt;" in page, "a key of another form is shown as it is"
    assert "$1.92, 12,345 tokens" in page
