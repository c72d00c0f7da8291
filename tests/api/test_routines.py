"""Routines over HTTP: as automations are, with tags, keys, pages and problems."""

from typing import Any

import pytest

from tests.api.conftest import Caller, made, problem
from tests.api.test_lists import NOON, found, run

pytestmark = [pytest.mark.django_db, pytest.mark.rule("6.4", "6.5")]

ROUTINES = "/api/agents/demo/routines/"


def add(caller: Caller, **fields: Any) -> Any:
    return made(caller.post(ROUTINES, {"title": "Water", "schedule": "1h"} | fields))


def test_a_routine_is_created_with_its_defaults_and_shown(ada: Caller, bob: Caller) -> None:
    response = ada.post(ROUTINES, {"title": "HN", "description": "Read it.", "schedule": "0 9 * * *"})
    shown = made(response)
    assert response.headers["Location"] == f"/api/routines/{shown['id']}/"
    assert response.headers["ETag"] == '"1"'
    assert shown == ada.get(f"/api/routines/{shown['id']}/").json()
    given = {"title": "HN", "description": "Read it.", "schedule": "0 9 * * *", "timezone": "UTC"}
    defaults = {"execution_mode": "inline", "enabled": True, "source": "manual", "max_retry": 3, "attempt": 0}
    planned = {"state": "scheduled", "session": None, "revision": 1}
    assert (given | defaults | planned).items() <= shown.items()
    assert shown["next_run_at"].endswith("T09:00:00Z")
    session = ada.session()
    assert add(ada, session=session)["session"] == session, "its home"
    problem(ada.post(ROUTINES, {"title": "x", "session": bob.session()}), 404, "not_found")


def test_delete_disables_and_hard_deletes(ada: Caller) -> None:
    address = f"/api/routines/{add(ada)['id']}/"
    assert ada.delete(address).status_code == 204
    shown = ada.get(address).json()
    assert (shown["enabled"], shown["next_run_at"]) == (False, None)
    assert ada.patch(address, {"enabled": True}).json()["next_run_at"] is not None
    problem(ada.delete(f"{address}?hard=maybe"), 400, "bad_parameter")
    assert ada.delete(f"{address}?hard=true").status_code == 204
    problem(ada.get(address), 404, "not_found")


def test_a_routines_runs_are_shown_and_automations_are_not_routines(ada: Caller, bob: Caller) -> None:
    routine = add(ada)["id"]
    failed = run(routine, 1, state="failed", started_at=NOON, error="It broke.")
    assert found(ada, f"/api/routines/{routine}/runs/", "run_id") == [failed]
    assert ada.get(f"/api/runs/{failed}/").status_code == 200
    problem(bob.get(f"/api/runs/{failed}/"), 404, "not_found")
    shown = ada.get(f"/api/routines/{routine}/").json()
    assert (shown["last_status"], shown["error"], shown["attempt"]) == ("failed", "It broke.", 1)
    automation = ada.automation(ada.session())["id"]
    for address in (f"/api/routines/{automation}/", f"/api/routines/{automation}/runs/"):
        problem(ada.get(address), 404, "not_found")
    problem(ada.get(f"/api/automations/{routine}/"), 404, "not_found")


def test_a_routine_has_instructions_and_limits_of_its_own(ada: Caller) -> None:
    own = {"instructions": "In French.", "policy": {"max_tool_calls": 3, "max_attempts": None}}
    shown = add(ada, execution_mode="isolated", **own)
    assert (shown["instructions"], shown["policy"]) == ("In French.", {"max_tool_calls": 3})
    path = f"/api/routines/{shown['id']}/"
    changes = {"policy": {"max_tool_calls": None, "max_attempts": 1}, "instructions": ""}
    changed = ada.patch(path, changes).json()
    assert (changed["instructions"], changed["policy"]) == ("", {"max_attempts": 1})
    problem(ada.patch(path, {"task_type": "time_reminder"}), 400, "bad_task_type")
    assert add(ada, title="Tea", task_type="time_reminder", timeout_seconds=90)["execution_mode"] == "inline"
