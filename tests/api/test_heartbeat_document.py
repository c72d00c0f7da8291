"""HEARTBEAT.md over HTTP: `parse` in the answer of PUT, and tags that see edits."""

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from automations.routines.edit import NewRoutine, add_routine, agent_routines
from sessions_app.models import Agent, Document
from tests.api.conftest import Caller, problem
from tests.api.test_lists import run

pytestmark = [pytest.mark.django_db, pytest.mark.rule("6.6")]

ADDRESS = "/api/agents/demo/documents/HEARTBEAT.md/"
HN = {"id": "daily_hn", "title": "HN", "schedule": "0 9 * * *"}


def text(*tasks: dict[str, Any]) -> dict[str, str]:
    return {"content": f"Be brief.\n\n```json\n{json.dumps({'version': 2, 'tasks': tasks})}\n```\n"}


def agent_id(caller: Caller) -> int:
    return Agent.objects.get(owner=caller.user).pk


def test_put_says_what_the_text_turned_out_to_be(ada: Caller) -> None:
    answer = ada.put(ADDRESS, text(HN)).json()
    assert (answer["parse"], answer["revision"], "problem" in answer) == ("ok", 1, False)
    assert '"state": "pending"' in answer["content"]
    assert answer["content"] == ada.get(ADDRESS).json()["content"]
    assert agent_routines(agent_id(ada)).get().pk == "daily_hn"
    broken = ada.put(ADDRESS, {"content": "```json\n{"}).json()
    assert (broken["parse"], broken["content"]) == ("corrupted", "```json\n{")
    assert "not closed" in broken["problem"]
    assert ada.put(ADDRESS, {"content": "Prose."}).json()["parse"] == "empty"
    assert agent_routines(agent_id(ada)).get().enabled
    plain = ada.put("/api/agents/demo/documents/USER.md/", {"content": "x"}).json()
    assert plain.keys() == {"name", "content", "revision"}


def test_the_tag_detects_added_routines_but_ignores_run_results(ada: Caller) -> None:
    ada.put(ADDRESS, text(HN))
    tag = ada.get(ADDRESS).headers["ETag"]
    assert ada.get(ADDRESS, If_None_Match=tag).status_code == 304
    run("daily_hn", 1, state="failed", error="It broke.")
    assert ada.get(ADDRESS, If_None_Match=tag).status_code == 200  # its error is shown
    changed = ada.put(ADDRESS, text(HN | {"title": "News"}), If_Match=tag)
    assert changed.status_code == 200
    problem(ada.put(ADDRESS, text(HN), If_Match=tag), 412, "revision_conflict")
    add_routine(NewRoutine(agent_id=agent_id(ada), title="Meanwhile", schedule="1h"))
    problem(ada.put(ADDRESS, text(HN), If_Match=changed.headers["ETag"]), 412, "revision_conflict")
    assert agent_routines(agent_id(ada)).filter(enabled=True).count() == 2
    assert ada.put(ADDRESS, text(HN), If_Match="*").status_code == 200


def test_the_admin_edits_what_is_there_now(ada: Caller, admin_client: Client) -> None:
    ada.put(ADDRESS, text(HN))
    document = Document.objects.get(name="HEARTBEAT.md")
    page = reverse("admin:sessions_app_document_change", args=[document.pk])
    add_routine(NewRoutine(agent_id=agent_id(ada), title="Meanwhile", schedule="1h"))
    form = admin_client.get(page).context["adminform"].form
    assert "Meanwhile" in form.initial["content"]
    given = form.initial | {"content": form.initial["content"].replace("Meanwhile", "By hand")}
    given["seen_revision"] = document.revision
    assert admin_client.post(page, given).status_code == 302
    expected = {"HN", "By hand"}
    assert set(agent_routines(agent_id(ada)).filter(enabled=True).values_list("name", flat=True)) == expected
    stale = admin_client.post(page, given | {"content": "```json\n{}\n```"})
    assert stale.status_code == 200
    assert "changed by somebody else" in stale.content.decode()
