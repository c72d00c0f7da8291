"""Deleting in two steps (rule 4.11): never past an automation nobody agreed to lose, never under a running turn."""

from contextlib import closing
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from automations.jobs.edit import update_job
from automations.models import CronJob
from sessions_app.models import PRIMARY_KEY, Agent, Session, SessionState, Turn
from sessions_app.sessions import delete
from sessions_app.turns.lock import SessionLocks
from tests.admin.conftest import act, make_job, make_turn, shown, url
from tests.conftest import Person

# a delete commits by itself, with a connection of its own
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("4.11")]
YES = {"confirmed": "yes"}


def agreed(*jobs: CronJob) -> dict[str, Any]:
    return YES | {"delete_automations": "yes", "shown": [job.pk for job in jobs]}


def test_a_session_goes_in_two_steps_with_the_automations_that_were_shown(
    staff: Client, person: Person
) -> None:
    session = person.session()
    make_turn(session)
    job, paused = make_job(session, "first job"), make_job(session, "paused job")
    update_job(paused.pk, {"enabled": False})
    page = shown(staff, session, "delete")
    for text in (job.pk, "first job", url(job, "change"), paused.pk, "paused job", "no (paused)"):
        assert text in page
    response = staff.post(url(session, "delete"), YES)
    assert response.status_code == 409
    assert "Nothing was deleted" in response.content.decode()
    assert Session.objects.get(pk=session.pk).state == SessionState.OPEN
    late = make_job(session, "bound in between")
    response = staff.post(url(session, "delete"), agreed(job, paused))
    assert response.status_code == 409
    assert late.pk in response.content.decode()
    assert CronJob.objects.count() == 3
    response = staff.post(url(session, "delete"), agreed(job, paused, late))
    assert response.status_code == 302
    assert not Session.objects.filter(pk=session.pk).exists()
    assert not CronJob.objects.exists()
    staff.get(response["Location"])
    assert staff.get(url(session, "delete"), follow=True).status_code == 200


def test_djangos_own_bulk_delete_is_gone_and_a_document_stays(staff: Client, rows: dict[str, Any]) -> None:
    for name in ("session", "agent", "user", "cronjob", "document"):
        act(staff, "delete_selected", rows[name], follow=False, post="yes")
        assert type(rows[name]).objects.filter(pk=rows[name].pk).exists(), name
    document = rows["document"]  # which is emptied, not deleted
    assert "delete_selected" not in shown(staff, document, "changelist")
    assert staff.post(url(document, "delete"), {"post": "yes"}).status_code == 403
    document.refresh_from_db()


def test_a_session_that_the_verb_refuses_to_delete_stays_with_the_reason(
    staff: Client, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "LOCK_WAIT", 0.1)
    session, primary = person.session(), Session.objects.get(agent=person.agent, key=PRIMARY_KEY)
    assert "only with its agent" in shown(staff, primary, "delete")
    with closing(SessionLocks(settings.DATABASE_LOCK_URL)) as locks:
        locks.reconnect()
        assert locks.try_hold(session.pk)
        for row, reason in ((session, "did not end in time"), (primary, "was not deleted")):
            response = staff.post(url(row, "delete"), YES, follow=True)
            assert reason in response.content.decode()
    assert Session.objects.filter(state=SessionState.OPEN, pk__in=[session.pk, primary.pk]).count() == 2


def test_several_at_once_follow_the_same_rule(staff: Client, person: Person) -> None:
    free, bound = person.session(), person.session()
    job = make_job(bound)

    def answer(**given: Any) -> Any:
        return act(staff, "delete_selected", free, bound, follow=False, **given)

    assert job.pk in answer().content.decode()
    assert answer(**YES).status_code == 409
    assert Session.objects.filter(pk__in=[free.pk, bound.pk]).count() == 2
    assert answer(**agreed(job)).status_code == 302
    assert not Session.objects.filter(pk__in=[free.pk, bound.pk]).exists()
    assert not CronJob.objects.exists()


def test_a_user_goes_after_their_agents_and_these_in_two_steps(staff: Client, rows: dict[str, Any]) -> None:
    user, agent, job = rows["user"], rows["agent"], rows["cronjob"]
    page = shown(staff, user, "delete")
    assert "Delete the user&#x27;s agents first: demo" in page
    assert job.pk in page
    for response in (
        staff.post(url(user, "delete"), agreed(job), follow=True),
        act(staff, "delete_selected", user, **agreed(job)),
    ):
        assert "was not deleted" in response.content.decode()
    assert job.pk in shown(staff, agent, "delete")
    assert staff.post(url(agent, "delete"), YES).status_code == 409
    assert User.objects.filter(pk=user.pk).exists()
    assert Turn.objects.count() == CronJob.objects.filter(pk=job.pk).count() == 1
    staff.post(url(agent, "delete"), agreed(job))
    assert not Agent.objects.filter(pk=agent.pk).exists()
    assert not CronJob.objects.filter(pk=job.pk).exists()
    assert not Session.objects.exists()
    staff.post(url(user, "delete"), YES)
    assert not User.objects.filter(pk=user.pk).exists()
