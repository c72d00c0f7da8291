"""The modules of "Follow one" in docs/architecture.md, against the calls of a real message and a real slot."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from automations.firing.fire_jobs import fire_due_jobs
from automations.jobs.edit import NewJob, create_job
from automations.models import JobClock
from sessions_app.models import Message, Session
from sessions_app.turns.receive import MessageInput, receive
from sessions_app.worker.process import WorkerProcess
from tests.conftest import new_person
from tests.conversations.stage import Stage
from tests.up import ROOT

APPS = {"sessions_app", "automations", "agent_core"}
BY_THE_BROKER = "sessions_app/tasks.py"  # a worker calls it


def ways() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Follow one")[2].partition("\n## ")[0]
    lines = re.findall(r"^- (.+?): (.+)$", section, re.MULTILINE)
    return {name: re.findall(r"`([^`]+\.py)`", way) for name, way in lines}


@contextmanager
def entered() -> Iterator[list[str]]:
    """The modules of this repository in the order in which their functions are first called."""
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.setdefault(frame.f_code.co_filename, None)

    names: list[str] = []
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        paths = [Path(each).relative_to(ROOT) for each in seen if each.startswith(f"{ROOT}/")]
        names += [str(path) for path in paths if path.parts[0] in APPS]


def send_message(session: Session) -> None:
    receive(session.pk, MessageInput(content="Hello"))


def fire_slot(session: Session) -> None:
    fire_due_jobs()


@pytest.mark.parametrize(("name", "begin"), [("A message", send_message), ("A slot", fire_slot)])
def test_the_page_names_the_modules_from_arrival_to_commit(
    name: str, begin: Callable[[Session], None], worker: WorkerProcess
) -> None:
    stage = Stage(agent=new_person("ada").agent, worker=worker)
    job = create_job(
        NewJob(
            session_id=stage.chat.pk, message="Hello", name="x", schedule={"kind": "every", "seconds": 3600}
        )
    )
    now = datetime.now(UTC)
    JobClock.objects.filter(job=job).update(next_run_at=now, planned_from=now - timedelta(hours=1))
    with entered() as modules:
        begin(stage.chat)
        stage.run()
    assert Message.objects.filter(session=stage.chat, role="assistant").count() == 1
    way = [each for each in ways()[name] if each != BY_THE_BROKER]
    assert len(ways()[name]) <= 8
    assert [each for each in modules if each in way] == way
    assert (way[0], way[-1]) == (modules[0], "sessions_app/turns/commit.py")
