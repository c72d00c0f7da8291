"""The client that is generated from the schema drives what programs use the API for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.api.conftest import Site
from tests.api.generated import generated_from
from tests.api.test_clients import code_of
from tests.tokens import token_of

pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.rule("4.2")]
EVERY_DAY = {"kind": "cron", "expr": "0 9 * * *", "timezone": "Europe/Berlin"}


@pytest.fixture
def client(site: Site) -> Iterator[Any]:
    token = token_of(User.objects.create_user("ada"))
    with generated_from(site.url).connect(site.url, token) as connected:
        yield connected


def test_it_talks_schedules_and_explains(site: Site, client: Any) -> None:
    code = generated_from(site.url)
    agent = code.call("create_agent", client=client, body=code.model("NewAgent", name="demo"))
    assert agent.name == "demo"
    session = code.call("create_session", client=client, body=code.model("NewSession", agent="demo"))

    told = code.model("NewMessage", content="My favourite colour is blue.")
    turn = code.call("send_message", session.id, client=client, body=told, prefer="wait=50")
    assert turn.state == "succeeded"
    asked = code.model("NewMessage", content="What is my favourite colour?")
    turn = code.call("send_message", session.id, client=client, body=asked, prefer="wait=50")
    assert "blue" in turn.reply
    history = code.call("list_session_messages", session.id, client=client).results
    assert [each.role for each in history] == ["user", "assistant"] * 2

    preview = code.call("preview_schedule", client=client, body=code.model("PreviewIn", schedule=EVERY_DAY))
    assert len(preview.next_) == 5
    body = code.model("NewAutomation", name="Morning", message="Say the colour.", schedule=EVERY_DAY)
    job = code.call("create_session_automation", session.id, client=client, body=body)
    assert (job.state, job.next_run_at) == ("scheduled", datetime.fromisoformat(preview.next_[0]))
    skipped = code.call("skip_automation_slots", job.id, client=client, body=code.model("SkipIn", slots=1))
    assert skipped.next_run_at > job.next_run_at
    [run] = code.call("list_automation_runs", job.id, client=client).results
    assert (run.state, run.reason) == ("skipped", "skipped_by_user")
    [same] = code.call("list_runs", client=client, session=session.id, search="morning").results
    assert (same.run_id, same.automation, same.agent) == (run.run_id, job.id, "demo")
    explained = code.call("explain_automation", job.id, client=client)
    assert explained.next_[0] == skipped.next_run_at


def test_the_program_of_the_page_talks(site: Site, client: Any, tmp_path: Path) -> None:
    code = generated_from(site.url)
    code.call("create_agent", client=client, body=code.model("NewAgent", name="demo"))
    session = code.call("create_session", client=client, body=code.model("NewSession", agent="demo"))
    (tmp_path / "rondo_client").symlink_to(Path(code.module("client").__file__).parent)
    program = code_of("Python", "python")
    for there, here in {"http://localhost:8000": site.url, "…": client.token}.items():
        assert there in program
        program = program.replace(there, here)
    (tmp_path / "talk.py").write_text(
        f"from uuid import UUID\nsession_id = UUID('{session.id}')\n{program}\nprint(turn.state)"
    )
    done = subprocess.run(
        [sys.executable, "talk.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "succeeded", done.stderr


def test_errors_are_classes_too(site: Site, client: Any) -> None:
    code = generated_from(site.url)
    body = code.model("NewAgent", name="demo", timezone="Mars/Olympus")
    refused = code.call("create_agent", client=client, body=body)
    assert (type(refused).__name__, refused.code) == ("Problem400", "unknown_timezone")
    assert "Mars/Olympus" in refused.detail
