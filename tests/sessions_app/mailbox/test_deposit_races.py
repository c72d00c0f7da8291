"""Deposits at once, and into what is being deleted: each event once, in one place, or dropped with a reason."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from sessions_app.agents.edit import update_agent
from sessions_app.mailbox.deposit import deposit
from sessions_app.mailbox.updates import SUPERSEDED
from sessions_app.models import Event, MailboxEvent, Session
from sessions_app.models.mailbox import TARGET_GONE
from sessions_app.sessions.delete import delete_session
from sessions_app.sessions.open import archive_session, primary_session
from tests.conftest import Person
from tests.fleet import until
from tests.races import KEY_SHARE, behind, gate, in_thread, orphans, waiting
from tests.sessions_app.mailbox.test_deposit import news, shown

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("6.1")]

DEPOSITORS = 20


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Each on a connection of its own, all let go together; what they came to."""
    with psycopg.connect(settings.DATABASE_LOCK_URL) as holder:
        holder.execute("LOCK TABLE sessions_app_mailboxevent IN ACCESS EXCLUSIVE MODE")
        most = min(len(actions), free_connections())
        started = [in_thread(action) for action in actions]
        until(lambda: waiting() >= most, 20, "all stand at the table")
    for thread, _ in started:
        thread.join(60)
        assert not thread.is_alive(), "it ends"
    return [came[0] for _, came in started]


def free_connections() -> int:
    """How many the pool can still give; this thread, which looks, has one, and a thread of an earlier test may, too."""
    connection.ensure_connection()
    django: Any = connection
    stats = django.pool.get_stats()
    return int(stats["pool_max"] - (stats["pool_size"] - stats["pool_available"]))


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


def test_the_last_concurrent_deposit_of_a_key_supersedes_the_others(person: Person) -> None:
    session = person.session()
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


def test_a_delete_drops_a_deposit_still_in_progress(person: Person) -> None:
    session = person.session()
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
