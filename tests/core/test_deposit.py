"""Depositing: one INSERT, once, urgent or stale, also into what is gone (rule 6.1)."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from sessions_app.mailbox import MOST_ARTIFACTS, MOST_CHARACTERS, MOST_EVENTS, Mail, deposit, prepare_drain
from sessions_app.models import Event, MailboxEvent, Priority, Session
from tests.conftest import Person

pytestmark = pytest.mark.django_db(transaction=True)


def news(summary: str = "news", **more: object) -> Mail:
    return Mail(event_type="job_completed", summary=summary, **more)  # type: ignore[arg-type]


def shown(session: Session) -> list[str]:
    return [update.summary for update in prepare_drain(session.pk).updates]


def test_the_same_event_is_deposited_once(person: Person) -> None:
    session, mail = person.session(), news()
    assert deposit(session.pk, mail)
    assert not deposit(session.pk, mail)
    assert shown(session) == ["news"]
    [hint] = Event.objects.filter(session=session, type="status")
    assert (hint.scope, hint.content) == (
        "agent",
        {"has_unread_background_updates": True, "event_id": str(mail.event_id)},
    )


def test_what_is_deposited_into_a_session_that_is_gone_is_dropped_with_the_reason(person: Person) -> None:
    assert not deposit(uuid.uuid4(), news())
    event = MailboxEvent.objects.get()
    assert (event.target_id, event.reason, event.dropped_at is None) == (None, "target_gone", False)
    assert not Event.objects.filter(type="status").exists()


def test_an_unread_event_of_the_same_key_gives_way(person: Person) -> None:
    session = person.session()
    old, new = news("old", dedupe_key="weather"), news("new", dedupe_key="weather")
    assert deposit(session.pk, old)
    assert deposit(session.pk, new)
    assert not deposit(session.pk, old), "what came before does not come again"
    assert shown(session) == ["new"]
    assert MailboxEvent.objects.get(event_id=old.event_id).reason == "superseded"


def test_what_is_stale_is_dropped_with_the_reason_and_what_is_lasting_stays(person: Person) -> None:
    session = person.session()
    deposit(session.pk, news("weather", suppress_if_stale=True))
    deposit(session.pk, news("report"))
    MailboxEvent.objects.update(created_at=Now() - timedelta(hours=25))
    assert shown(session) == ["report"]
    assert MailboxEvent.objects.get(summary="weather").reason == "stale"


def test_what_is_too_much_for_one_turn_stays_in_order_and_is_shown_in_the_end(person: Person) -> None:
    """By characters and by number; a small one does not overtake a large one."""
    session = person.session()
    long = "x" * (MOST_CHARACTERS // 3)
    mails = [news(f"long {n}", detail=long) for n in range(4)] + [news(f"short {n}") for n in range(60)]
    for mail in mails:
        deposit(session.pk, mail)
    deposit(session.pk, urgent := news("urgent", priority=Priority.URGENT))
    rounds: list[list[str]] = []
    while (drained := prepare_drain(session.pk)).ids:
        rounds.append([update.summary for update in drained.updates])
        MailboxEvent.objects.filter(pk__in=drained.ids).update(acknowledged_at=Now())
    assert rounds[0] == ["urgent", "long 0", "long 1"]
    assert rounds[1][:3] == ["long 2", "long 3", "short 0"]
    assert max(map(len, rounds)) == MOST_EVENTS
    assert [each for told in rounds for each in told] == [mail.summary for mail in [urgent, *mails]]


def test_what_is_too_long_by_itself_is_cut_and_says_so(person: Person) -> None:
    session = person.session()
    mail = news("report", detail="word " * MOST_CHARACTERS)
    deposit(session.pk, mail)
    deposit(session.pk, news("next"))
    [update] = prepare_drain(session.pk).updates
    assert update.detail.startswith("word word")
    assert update.detail.endswith(
        f" … ({MOST_CHARACTERS:,} of {5 * MOST_CHARACTERS:,} characters; the mailbox holds all of update"
        f" {mail.event_id})"
    )
    assert MailboxEvent.objects.get(event_id=mail.event_id).detail == mail.detail


def test_artifacts_are_shown_by_name_and_those_that_are_too_many_are_counted(person: Person) -> None:
    session = person.session()
    deposit(session.pk, news("few", artifacts=("report.md", "two\nlines\x00.png")))
    deposit(session.pk, news("many", artifacts=("a" * 300, *map(str, range(MOST_ARTIFACTS + 4)))))
    few, many = prepare_drain(session.pk).updates
    assert few.artifacts == ("report.md", "two lines.png")
    assert many.artifacts[0] == "a" * 200 + "…"
    assert many.artifacts[MOST_ARTIFACTS:] == ("and 5 more",)
    assert MailboxEvent.objects.get(summary="many").artifacts[0] == "a" * 300, "kept whole"


def test_without_a_hint_no_window_is_told(person: Person) -> None:
    session = person.session()
    assert deposit(session.pk, news(), hint=False)
    assert shown(session) == ["news"]
    assert not Event.objects.filter(type="status").exists()
