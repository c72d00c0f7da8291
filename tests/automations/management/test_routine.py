"""`manage.py routine`: one JSON object, exit code 0 or 1."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from automations.models import CronJob
from tests.conftest import Person, new_person

pytestmark = pytest.mark.rule("6.4", "6.5")


def routine(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The command in this process: its answer, after a look at its exit code."""
    code = 0
    try:
        call_command("routine", *arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is (code == 0)
    assert code in {0, 1}
    return answer


def test_add_list_update_and_remove(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    added = routine(
        capsys,
        *("add", "--agent", "demo", "--title", "每日摘要", "--description", "汇总", "--schedule", "1d"),
        *("--execution-mode", "isolated", "--timezone", "Asia/Shanghai", "--source", "import"),
        *("--timeout-seconds", "120", "--next-run-at", "2031-01-01T09:00"),
    )["routine"]
    assert (added["title"], added["execution_mode"], added["source"]) == ("每日摘要", "isolated", "import")
    assert (added["schedule"], added["timeout_seconds"]) == ("1d", 120)
    assert added["next_run_at"] == "2031-01-01T01:00:00+00:00"
    assert routine(capsys, "list", "--agent", "demo")["routines"] == [added]
    changed = routine(
        capsys, "update", "--agent", "demo", "--id", added["id"], "--schedule", "2h", "--enabled", "true"
    )["routine"]
    assert (changed["schedule"], changed["enabled"], changed["title"]) == ("2h", True, "每日摘要")
    removed = routine(capsys, "remove", "--agent", "demo", "--id", added["id"])["routine"]
    assert removed["enabled"] is False
    assert routine(capsys, "list", "--agent", "demo")["routines"] == []
    assert len(routine(capsys, "list", "--agent", "demo", "--include-disabled")["routines"]) == 1
    routine(capsys, "remove", "--agent", "demo", "--id", added["id"], "--hard")
    assert not CronJob.objects.exists()


def test_refusals_have_a_code_and_a_sentence(person: Person, capsys: pytest.CaptureFixture[str]) -> None:
    agent = ("--agent", "demo")
    routine(capsys, "add", *agent, "--title", "Water", "--schedule", "1h")
    for arguments, code in [
        (("add", *agent, "--title", "water", "--schedule", "60m"), "duplicate_routine"),
        (("add", *agent, "--title", "x", "--schedule", "soon"), "bad_schedule"),
        (("add", "--agent", "nobody", "--title", "x"), "not_found"),
        (("update", *agent, "--id", "nope", "--title", "x"), "not_found"),
        (("remove", *agent, "--id", "nope"), "not_found"),
        (("add", *agent), "bad_call"),
    ]:
        error = routine(capsys, *arguments)["error"]
        assert (error["code"], bool(error["message"])) == (code, True), arguments
    assert routine(capsys, "add", *agent, "--title", "water", "--schedule", "1h", "--allow-duplicate")["ok"]


def test_an_agent_of_several_users_is_named_with_its_user(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    new_person("bob")
    error = routine(capsys, "list", "--agent", "demo")["error"]
    assert "ada/demo, bob/demo" in error["message"]
    added = routine(capsys, "add", "--agent", "bob/demo", "--title", "x", "--schedule", "1h")["routine"]
    assert CronJob.objects.get(pk=added["id"]).agent.owner.get_username() == "bob"
    assert (
        routine(capsys, "remove", "--agent", "ada/demo", "--id", added["id"])["error"]["code"] == "not_found"
    )
