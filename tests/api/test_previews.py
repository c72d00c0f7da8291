"""Titles and previews tell what people and assistants said, never what a clock triggered."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app.models import Message, Session, Turn, TurnKind, TurnState
from sessions_app.turns.session_reads import LOOKED_BACK
from tests.api.conftest import Caller, Window
from tests.fleet import until

pytestmark = [pytest.mark.django_db, pytest.mark.rule("4.8")]

TRIGGER = {"_automation_turn": True, "automation_id": "x"}


def says(session: str, *entries: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> None:
    """Append (role, content, metadata) to a history."""
    row = Session.objects.get(pk=session)
    for seq, (role, content, *metadata) in enumerate(entries, row.last_seq + 1):
        Message.objects.create(
            session=row, seq=seq, role=role, content=content, metadata=metadata[0] if metadata else {}
        )
    row.last_seq += len(entries)
    row.save()


def preview(caller: Caller, session: str) -> str:
    one = caller.get(f"/api/sessions/{session}/").json()["preview"]
    listed = {each["id"]: each["preview"] for each in caller.get("/api/sessions/").json()["results"]}
    assert listed[session] == one
    return str(one)


def test_a_preview_is_what_was_said_last(ada: Caller) -> None:
    session = ada.session()
    assert preview(ada, session) == ""
    says(session, ("user", "hello"), ("assistant", "Hello, Ada."))
    assert preview(ada, session) == "Hello, Ada."
    says(session, ("user", "and now?"))
    assert preview(ada, session) == "and now?"


def test_a_preview_skips_triggers_and_what_people_do_not_see(ada: Caller) -> None:
    session = ada.session()
    says(session, ("user", "hello"), ("assistant", "Hello, Ada."), ("user", "Scheduled", TRIGGER))
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
    says(
        ada.get("/api/agents/demo/").json()["primary_session"], ("user", "one"), ("assistant", "said to all")
    )
    says(thread, ("user", "said here"))
    assert preview(ada, thread) == "said here"
    ada.patch("/api/agents/demo/", {"unified_session": True})
    assert preview(ada, thread) == "said to all"
    ada.patch("/api/agents/demo/", {"unified_session": False})
    assert preview(ada, thread) == "said here"


def test_a_list_asks_for_its_previews_in_one_statement(ada: Caller) -> None:
    says(ada.session(), ("user", "hello"))
    with CaptureQueriesContext(connection) as few:
        ada.get("/api/sessions/")
    for _ in range(10):
        says(ada.session(), ("user", "hello"))
    with CaptureQueriesContext(connection) as many:
        ada.get("/api/sessions/")
    assert len(many) == len(few)


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_a_session_title_comes_from_a_person_not_an_automation(window: Window) -> None:
    beat = window.site.fleet.beat()
    asked = {"message": "check the repo", "schedule": {"kind": "every", "seconds": 1}}
    job = window.http.post(f"{window.address}/automations/", json=asked).json()["id"]
    done = Turn.objects.filter(kind=TurnKind.AUTOMATION, state=TurnState.SUCCEEDED)
    until(done.exists, 20)
    window.http.patch(f"/api/automations/{job}/", json={"enabled": False})
    until(lambda: window.http.get(f"{window.address}/").json()["state"] == "idle", 20)
    session = window.http.get(f"{window.address}/").json()
    assert session["title"] == ""
    answer = window.http.get(f"{window.address}/messages/").json()["results"][-1]
    assert (answer["role"], answer["metadata"]["source"]["kind"]) == ("assistant", "automation")
    assert session["preview"] == " ".join(answer["content"].split())[:100].rstrip()
    window.turn("  my favourite\n\x1bcolour is blue ")
    assert window.http.get(f"{window.address}/").json()["title"] == "my favourite colour is blue"
    assert beat.stop() == 0
