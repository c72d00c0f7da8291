"""Depositing: one INSERT, once, urgent or stale, also into what is gone (rule 6.1)."""

import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from sessions_app.agents.edit import update_agent
from sessions_app.mailbox.deposit import MOST_OF_A_SOURCE, MOST_UNREAD, NewUpdate, deposit
from sessions_app.mailbox.updates import (
    MOST_ARTIFACTS,
    MOST_CHARACTERS,
    MOST_EVENTS,
    SUPERSEDED,
    unread,
    updates_to_show,
)
from sessions_app.models import Event, MailboxEvent, Priority, Session
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import archive_session, primary_session
from tests.conftest import Person
from tests.races import KEY_SHARE, Gate, behind, gate, in_thread, orphans

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("6.1")]


def news(summary: str = "news", **more: object) -> NewUpdate:
    return NewUpdate(event_type="job_completed", summary=summary, **more)  # type: ignore[arg-type]


def shown(session: Session) -> list[str]:
    return [update.summary for update in updates_to_show(session.pk).updates]


def test_the_same_event_is_deposited_once(person: Person) -> None:
    session, mail = person.session(), news()
    assert deposit(session.pk, mail)
    assert not deposit(session.pk, mail)
    assert deposit(session.pk, news("quiet"), hint=False)
    assert shown(session) == ["news", "quiet"]
    [hint] = Event.objects.filter(session=session, type="status")
    expected = ("agent", {"has_unread_background_updates": True, "event_id": str(mail.event_id)})
    assert (hint.scope, hint.content) == expected


def test_deposits_for_a_deleted_session_are_dropped_with_a_reason(person: Person) -> None:
    assert not deposit(uuid.uuid4(), news())
    event = MailboxEvent.objects.get()
    assert (event.target_id, event.reason, event.dropped_at is None) == (None, "target_gone", False)
    assert not Event.objects.filter(type="status").exists()


@pytest.mark.rule("6.2")
def test_an_unread_event_of_the_same_key_gives_way(session: Session) -> None:
    old, new = news("old", dedupe_key="weather"), news("new", dedupe_key="weather")
    assert deposit(session.pk, old)
    assert deposit(session.pk, new)
    assert not deposit(session.pk, old), "what came before does not come again"
    assert shown(session) == ["new"]
    assert MailboxEvent.objects.get(event_id=old.event_id).reason == "superseded"


@pytest.mark.rule("6.3", "6.2")
@pytest.mark.parametrize("way", ["archived", "unified"])
def test_an_update_goes_where_people_are_shown(person: Person, way: str) -> None:
    """What waits moves along, the newest of a key; later updates go there, also without naming the agent."""
    home, thread, other = primary_session(person.agent), person.session(), person.session()
    group = Session.objects.create(
        agent=person.agent, owner=person.user, key="telegram:7", channel="telegram"
    )
    deposit(home.pk, news("weather here", dedupe_key="weather"))
    deposit(home.pk, news("price here", dedupe_key="price"))
    for session in (thread, other, group):
        deposit(session.pk, news(f"plain {session.key}"))
        deposit(session.pk, news(f"weather {session.key}", dedupe_key="weather"))
    if way == "archived":
        archive_session(thread)
        archive_session(group)
        stays, went = other, (thread, group)
    else:
        update_agent(person.agent.pk, {"unified_session": True})
        stays, went = group, (thread, other)
    assert shown(stays) == [f"plain {stays.key}", f"weather {stays.key}"]
    last = f"weather {went[1].key}"
    assert shown(home) == ["price here", *(f"plain {each.key}" for each in went), last]
    for number, keyed in enumerate(({}, {"dedupe_key": "price"}, {"dedupe_key": "weather"})):
        assert deposit(went[0].pk, news(f"later {number}", **keyed))
        assert deposit(stays.pk, news(f"later {number}", **keyed), or_primary_of=person.agent.pk)
    assert shown(home)[-4:] == [f"plain {went[1].key}", "later 0", "later 1", "later 2"]
    assert not unread().filter(target__in=[each.pk for each in went]).exists()
    assert [each for each in shown(stays) if each.startswith("later")] == ["later 0", "later 1", "later 2"]


def test_stale_events_are_dropped_with_reason_and_lasting_ones_stay(session: Session) -> None:
    deposit(session.pk, news("weather", suppress_if_stale=True))
    deposit(session.pk, news("report"))
    MailboxEvent.objects.update(created_at=Now() - timedelta(hours=25))
    assert shown(session) == ["report"]
    assert MailboxEvent.objects.get(summary="weather").reason == "stale"


@pytest.mark.rule("6.2")
def test_events_beyond_a_turns_limit_are_shown_later_in_order(session: Session) -> None:
    """By characters and by number; a small one does not overtake a large one."""
    long = "x" * (MOST_CHARACTERS // 3)
    mails = [news(f"long {n}", detail=long) for n in range(4)]
    mails += [news(f"short {n}", source_key=f"source {n}") for n in range(60)]
    for mail in mails:
        deposit(session.pk, mail)
    deposit(session.pk, urgent := news("urgent", priority=Priority.URGENT))
    rounds: list[list[str]] = []
    while (drained := updates_to_show(session.pk)).ids:
        rounds.append([update.summary for update in drained.updates])
        MailboxEvent.objects.filter(pk__in=drained.ids).update(acknowledged_at=Now())
    assert rounds[0] == ["urgent", "long 0", "long 1"]
    assert rounds[1][:3] == ["long 2", "long 3", "short 0"]
    assert max(map(len, rounds)) == MOST_EVENTS
    assert [each for told in rounds for each in told] == [mail.summary for mail in [urgent, *mails]]


@pytest.mark.rule("6.2")
def test_an_overlong_event_is_cut_with_a_notice(session: Session) -> None:
    mail = news("report", detail="word " * MOST_CHARACTERS)
    deposit(session.pk, mail)
    deposit(session.pk, news("next"))
    [update] = updates_to_show(session.pk).updates
    assert update.detail.startswith("word word")
    assert update.detail.endswith(
        f" … ({MOST_CHARACTERS:,} of {5 * MOST_CHARACTERS:,} characters; the mailbox holds all of update"
        f" {mail.event_id})"
    )
    assert MailboxEvent.objects.get(event_id=mail.event_id).detail == mail.detail


def test_artifacts_are_shown_by_name_and_the_excess_is_counted(session: Session) -> None:
    deposit(session.pk, news("few", artifacts=("report.md", "two\nlines\x00.png")))
    deposit(session.pk, news("many", artifacts=("a" * 300, *map(str, range(MOST_ARTIFACTS + 4)))))
    few, many = updates_to_show(session.pk).updates
    assert few.artifacts == ("report.md", "two lines.png")
    assert many.artifacts[0] == "a" * 200 + "…"
    assert many.artifacts[MOST_ARTIFACTS:] == ("and 5 more",)
    assert MailboxEvent.objects.get(summary="many").artifacts[0] == "a" * 300, "kept whole"


def test_a_single_sentence_is_the_summary_and_no_detail_besides(session: Session) -> None:
    for number, detail in enumerate(("Tea is ready.", " Tea is ready.\n", "Tea is ready. It is hot.", "")):
        deposit(session.pk, news("Tea is ready.", detail=detail, dedupe_key=str(number)))
    rows = MailboxEvent.objects.order_by("id").values_list("summary", "detail")
    assert [detail for _, detail in rows] == ["", "", "Tea is ready. It is hot.", ""]


@pytest.mark.rule("10.0")
def test_an_unread_source_keeps_its_newest_events_and_reports_drops(person: Person) -> None:
    session, other = person.session(), person.session()
    for slot in range(5):
        assert deposit(other.pk, news(f"elsewhere {slot}", source_key=f"job:weather:{slot}"))
    for slot in range(MOST_OF_A_SOURCE + 30):  # each slot of an isolated routine has a session of its own
        assert deposit(session.pk, news(f"result {slot}", source_key=f"job:weather:{slot}"))
        assert unread().filter(target=session).count() <= MOST_OF_A_SOURCE
    assert deposit(session.pk, news("another", source_key="job:backup:1"))
    waiting = shown(session)
    assert waiting == [
        "result 30 (30 older ones were dropped unread: too many waited)",
        *(f"result {slot}" for slot in range(31, MOST_OF_A_SOURCE + 30)),
        "another",
    ]
    dropped = MailboxEvent.objects.filter(dropped_at__isnull=False)
    assert {event.summary for event in dropped} == {f"result {slot}" for slot in range(30)}
    assert {event.reason for event in dropped} == {"too_many"}
    assert len(shown(other)) == 5


@pytest.mark.rule("10.0")
def test_a_full_unread_mailbox_keeps_urgent_and_newest_events(session: Session) -> None:
    assert deposit(session.pk, news("urgent", source_key="a", priority=Priority.URGENT))
    for number in range(MOST_UNREAD + 9):
        assert deposit(session.pk, news(f"news {number}", source_key=f"source {number}"))
    unread = MailboxEvent.objects.filter(acknowledged_at=None, dropped_at=None).order_by("id")
    assert unread.count() == MOST_UNREAD
    assert [event.summary for event in unread[:2]] == ["urgent", "news 10"]
    assert sum(event.lost for event in unread) == 10
    unread.update(acknowledged_at=Now(), priority=Priority.URGENT)
    for number in range(MOST_OF_A_SOURCE + 1):
        assert deposit(session.pk, news(f"later {number}"))
    assert unread.count() == MOST_OF_A_SOURCE, "what was read counts no more"


def test_an_event_being_acknowledged_is_neither_dropped_nor_waited_for(person: Person) -> None:
    session = person.session()
    for number in range(MOST_OF_A_SOURCE):
        deposit(session.pk, news(f"news {number}"))
    first = MailboxEvent.objects.order_by("id")[0]
    with transaction.atomic():
        MailboxEvent.objects.filter(pk=first.pk).update(acknowledged_at=Now())
        thread, came = in_thread(lambda: deposit(session.pk, news("one more")))
        thread.join(10)
        assert came == [True], "the deposit did not wait for it"
    assert not MailboxEvent.objects.filter(dropped_at__isnull=False).exists()


DEPOSITORS = 6  # fewer than the pool gives, beside those of this thread and of earlier tests


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Each on a connection of its own, all let go together; what they came to."""
    with psycopg.connect(settings.DATABASE_LOCK_URL) as holder:
        holder.execute("LOCK TABLE sessions_app_mailboxevent IN ACCESS EXCLUSIVE MODE")
        held = Gate(holder)
        for action in actions:
            held.start(action)
        return held.open()


def test_one_event_deposited_many_times_at_once_arrives_once(person: Person) -> None:
    """In one session, and in one of several; the copies do not supersede it either."""
    for key in ("", "weather"):
        sessions, mail = [person.session(), person.session()], news("new", dedupe_key=key)
        for session in sessions:
            deposit(session.pk, news("old", dedupe_key="weather"))
        targets = [sessions[number % 2] for number in range(DEPOSITORS)]
        came = at_once(*[lambda each=each, mail=mail: deposit(each.pk, mail) for each in targets])
        assert Counter(came) == {True: 1, False: DEPOSITORS - 1}
        winner = targets[came.index(True)]
        [other] = [each for each in sessions if each != winner]
        assert shown(winner) == (["new"] if key else ["old", "new"])
        assert shown(other) == ["old"]
        assert Event.objects.filter(session=winner, content__event_id=str(mail.event_id)).count() == 1


def test_the_last_concurrent_deposit_of_a_key_supersedes_the_others(session: Session) -> None:
    mails = [news(str(number), dedupe_key="weather") for number in range(DEPOSITORS)]
    assert all(at_once(*[lambda mail=mail: deposit(session.pk, mail) for mail in mails]))
    [left] = shown(session)
    reasons = dict(MailboxEvent.objects.values_list("summary", "reason"))
    assert reasons.pop(left) == ""
    assert set(reasons.values()) == {SUPERSEDED}
    assert len(reasons) == DEPOSITORS - 1


def test_nothing_gives_way_to_an_event_that_came_elsewhere_meanwhile(person: Person) -> None:
    """The other deposit is not committed yet when this one makes room for what then is no news."""
    session, other = person.session(), person.session()
    deposit(session.pk, news("old", dedupe_key="weather"))
    mail = news("new", dedupe_key="weather")
    with transaction.atomic():
        assert deposit(other.pk, mail)
        comes_to = behind(lambda: deposit(session.pk, mail))
    assert comes_to() is False
    assert shown(session) == ["old"]
    assert shown(other) == ["new"]


def test_a_refused_deposit_leaves_the_surrounding_transaction_intact(person: Person) -> None:
    session, mail = person.session(), news()
    deposit(session.pk, mail)
    with transaction.atomic():
        Session.objects.filter(pk=session.pk).update(title="kept")
        assert not deposit(session.pk, mail)
        assert deposit(session.pk, news("more"))
    session.refresh_from_db()
    assert session.title == "kept"
    assert shown(session) == ["news", "more"]


@pytest.mark.parametrize("key", ["", "weather"])
def test_deposits_during_a_delete_go_home_or_are_dropped_with_a_reason(person: Person, key: str) -> None:
    """The delete was first: it has the session, and the deposits stand behind it."""
    session, home = person.session(), primary_session(person.agent)
    deposit(session.pk, news("early", dedupe_key=key))
    mail, result = news("late", dedupe_key=key), news("result", dedupe_key=key and "report")
    with gate(session, KEY_SHARE) as at:
        at.start(lambda: delete_session(session.pk).deleted)
        at.start(lambda: deposit(session.pk, mail), waits=False)
        at.start(lambda: deposit(session.pk, result, or_primary_of=home.agent_id), waits=False)
        came = at.open()
    assert came[0] is True
    assert isinstance(came[1], bool), came
    assert came[2] is True, came
    assert not Session.objects.filter(pk=session.pk).exists()
    rows = MailboxEvent.objects.exclude(event_id=result.event_id)
    assert {(row.target_id, row.reason) for row in rows} <= {(None, TARGET_GONE), (None, SUPERSEDED)}
    assert rows.filter(event_id=mail.event_id, reason=TARGET_GONE).exists()
    # a result that came before the delete's last step goes along with it, a later one goes home
    row = MailboxEvent.objects.get(event_id=result.event_id)
    assert (row.target_id, row.reason) in {(home.pk, ""), (None, TARGET_GONE)}
    assert orphans() == {}


def test_a_delete_drops_a_deposit_still_in_progress(session: Session) -> None:
    private = {"detail": "private", "artifacts": ("private.md",), "source_key": "job:private:1"}
    mail = news("private", dedupe_key="weather", **private)
    deposit(session.pk, news("before", dedupe_key="weather"))
    read = MailboxEvent.objects.create(target=session, event_type="t", summary="read", acknowledged_at=Now())
    with transaction.atomic():
        assert deposit(session.pk, mail)
        comes_to = behind(lambda: delete_session(session.pk).deleted)
    assert comes_to() is True
    row = MailboxEvent.objects.get(event_id=mail.event_id)
    assert (row.target_id, row.reason, str(row)) == (None, TARGET_GONE, str(mail.event_id))
    assert "private" not in str(MailboxEvent.objects.values().get(pk=row.pk))
    assert not MailboxEvent.objects.filter(pk=read.pk).exists()
    assert orphans() == {}


@pytest.mark.rule("6.3")
@pytest.mark.parametrize("key", ["", "weather"])
@pytest.mark.parametrize("way", ["archived", "unified"])
def test_no_update_stays_where_no_turn_drains_whoever_is_first(person: Person, way: str, key: str) -> None:
    """One deposit has not committed when the home changes, one comes before the change has committed."""
    session, home = person.session(), primary_session(person.agent)

    def change() -> None:
        if way == "archived":
            archive_session(session)
        else:
            update_agent(person.agent.pk, {"unified_session": True})

    with transaction.atomic():
        assert deposit(session.pk, news("first", dedupe_key=key))
        comes_to = behind(change)
    assert comes_to() is None
    assert shown(home) == ["first"]
    Session.objects.update(state="open")
    update_agent(person.agent.pk, {"unified_session": False})
    with transaction.atomic():
        change()
        comes_to = behind(lambda: deposit(session.pk, news("second", dedupe_key=key)))
    assert comes_to() is True
    assert shown(home) == (["second"] if key else ["first", "second"])
    assert shown(session) == []


def test_a_late_result_goes_to_the_primary_mailbox(person: Person) -> None:
    session, home = person.session(), primary_session(person.agent)
    here, late, key = news("in time"), news("too late"), news("keyed", dedupe_key="weather")
    assert deposit(session.pk, here, or_primary_of=home.agent_id)
    assert delete_session(session.pk).deleted
    assert deposit(session.pk, late, or_primary_of=home.agent_id)
    assert deposit(session.pk, key, or_primary_of=home.agent_id)
    assert not deposit(session.pk, key, or_primary_of=home.agent_id)
    assert shown(home) == ["too late", "keyed"]
    assert not deposit(uuid.uuid4(), news(), or_primary_of=0)
