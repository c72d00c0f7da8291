"""Unified mode (rule 4.10) in the admin: the same verbs as in the API, and a thread says what it shows."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions_app.models import Agent
from sessions_app.sessions.open import primary_session
from tests.admin.conftest import make_job, shown, url
from tests.conftest import Person

pytestmark = pytest.mark.rule("4.10")


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
