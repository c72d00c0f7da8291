"""Titles and previews tell what people and assistants said, never what a clock triggered."""

from typing import Any

import pytest
from django.db.models.functions import Now

from agent_core.llm.protocol import ModelReply
from automations.jobs.edit import NewJob, create_job
from automations.models import JobClock
from sessions_app.models import Message, Session
from sessions_app.reads.session_reads import LOOKED_BACK
from tests.api.conftest import Caller
from tests.inside import Inside
from tests.tokens import token_of

pytestmark = [pytest.mark.django_db, pytest.mark.rule("4.8")]

TRIGGER = {"_automation_turn": True, "automation_id": "x"}


def says(session: str, *entries: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> None:
    """Append (role, content, metadata) to a history."""
    row = Session.objects.get(pk=session)
    for seq, (role, content, *metadata) in enumerate(entries, row.last_seq + 1):
        about = metadata[0] if metadata else {}
        Message.objects.create(session=row, seq=seq, role=role, content=content, metadata=about)
    row.last_seq += len(entries)
    row.save()


def preview(caller: Caller, session: str) -> str:
    one = caller.get(f"/api/sessions/{session}/").json()["preview"]
    listed = {each["id"]: each["preview"] for each in caller.get("/api/sessions/").json()["results"]}
    assert listed[session] == one
    return str(one)


def test_a_preview_is_what_was_said_last_and_people_see(ada: Caller) -> None:
    session = ada.session()
    assert preview(ada, session) == ""
    says(session, ("user", "hello"), ("assistant", "Hello, Ada."))
    assert preview(ada, session) == "Hello, Ada."
    says(session, ("user", "and now?"))
    assert preview(ada, session) == "and now?"
    says(session, ("assistant", "Hello, Ada."), ("user", "Scheduled", TRIGGER))
    assert preview(ada, session) == "Hello, Ada."
    says(session, ("assistant", ""), ("tool", "raw output"), ("assistant", " \n"))
    assert preview(ada, session) == "Hello, Ada."
    says(session, ("assistant", "The repo is clean.", {"source": {"kind": "automation"}}))
    assert preview(ada, session) == "The repo is clean."


def test_a_preview_is_one_line_of_at_most_100_characters(ada: Caller) -> None:
    session = ada.session()
    says(session, ("assistant", "  a\n\tb\u2028c\x1b d  "))
    assert preview(ada, session) == "a b c d"
    says(session, ("assistant", "ä" * 5000))
    assert preview(ada, session) == "ä" * 100


def test_a_preview_reads_only_the_end_of_a_long_history(ada: Caller) -> None:
    session = ada.session()
    triggers = [("user", "Scheduled", TRIGGER)] * (LOOKED_BACK - 1)
    says(session, ("user", "hello"), *triggers)
    assert preview(ada, session) == "hello"
    says(session, ("user", "Scheduled", TRIGGER))
    assert preview(ada, session) == ""


def test_a_preview_is_of_the_history_that_a_thread_shows(ada: Caller) -> None:
    thread = ada.session()
    primary = ada.get("/api/agents/demo/").json()["primary_session"]
    says(primary, ("user", "one"), ("assistant", "said to all"))
    says(thread, ("user", "said here"))
    assert preview(ada, thread) == "said here"
    ada.patch("/api/agents/demo/", {"unified_session": True})
    assert preview(ada, thread) == "said to all"
    ada.patch("/api/agents/demo/", {"unified_session": False})
    assert preview(ada, thread) == "said here"


def test_a_session_title_comes_from_a_person_not_an_automation(inside: Inside) -> None:
    session, user = inside.person.session(), inside.person.user
    caller = Caller(user=user, token=token_of(user))
    every = {"kind": "every", "seconds": 3600}
    job = create_job(NewJob(session_id=session.pk, message="check the repo", schedule=every))
    JobClock.objects.filter(job=job).update(next_run_at=Now())
    inside.model.answer_with(ModelReply(text="The repo\n is clean."))
    inside.beat()
    shown = caller.get(f"/api/sessions/{session.pk}/").json()
    assert (shown["title"], shown["preview"]) == ("", "The repo is clean.")
    answer = caller.get(f"/api/sessions/{session.pk}/messages/").json()["results"][-1]
    assert (answer["role"], answer["metadata"]["source"]["kind"]) == ("assistant", "automation")
    inside.say(session, "  my favourite\n\x1bcolour is blue ")
    assert caller.get(f"/api/sessions/{session.pk}/").json()["title"] == "my favourite colour is blue"
