"""24 conversations against a scripted server: judged by rows, and their very requests kept as pages to read.

`make evals ARGS=--renew` writes the pages anew; a change of a prompt then shows in review. The same conversations
are run with a real model by `make evals`.
"""

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db.models import QuerySet

from automations.models import CronJob, RunRecord, ScheduledMessage
from sessions_app.models import ExecutionState, Session
from sessions_app.worker.process import WorkerProcess
from tests.conversations import wire
from tests.conversations.chats import CHATS, SETTINGS
from tests.conversations.conftest import agent_of
from tests.conversations.plans import BACKGROUND, PLANS
from tests.conversations.stage import Stage
from tests.model_server import ModelServer

pytestmark = pytest.mark.rule("7.4")

ALL = (*CHATS, *PLANS, *BACKGROUND)
PAGES = Path(__file__).parent / "requests"
TOOLS = PAGES / "tools.md"
RENEW = bool(os.environ.get("RONDO_RENEW_CONVERSATIONS"))
MODEL = "openai-chat:conversations"
_CURE = "\n\nIf this change is meant, write the pages anew: make evals ARGS=--renew"


@pytest.mark.parametrize("play", ALL, ids=lambda play: play.__name__)
def test_a_conversation_produces_the_expected_rows_and_requests(
    play: Callable[[Stage], None],
    scripted: ModelServer,
    worker: WorkerProcess,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", scripted.base_url)
    scripted.reset()
    for name, value in SETTINGS.get(play.__name__, {}).items():
        setattr(settings, name, value)
    stage = Stage(agent=agent_of(MODEL), worker=worker, server=scripted)
    play(stage)
    bodies = [received.body for received in scripted.requests]
    title = play.__name__.replace("_", " ").capitalize()
    _compare(PAGES / f"{play.__name__}.md", wire.page(title, play.__doc__ or "", bodies, _names(stage.jobs)))
    _compare_tools(wire.tools_of(bodies))


def _names(made: list[str]) -> dict[str, str]:
    """The ids that differ from run to run, in the order in which they were given."""
    system = {job.pk: job.system_event for job in CronJob.objects.exclude(system_event="")}
    jobs = CronJob.objects.filter(system_event="").exclude(pk__in=made).order_by("created_at", "pk")
    numbered = {pk: f"job{number}" for number, pk in enumerate([*made, *(job.pk for job in jobs)], start=1)}
    named = system | numbered
    runs = RunRecord.objects.filter(job__in=named)
    names = {run.pk: f"<run of {named[str(run.job_id)]}>" for run in runs}
    names |= {pk: f"<{name}>" for pk, name in named.items() if pk != name}
    names |= _numbered("execution", ExecutionState.objects.order_by("created_at"))
    names |= _numbered("scheduled message", ScheduledMessage.objects.order_by("created_at"))
    return names | {str(pk): "<session>" for pk in Session.objects.values_list("pk", flat=True)}


def _numbered(name: str, rows: QuerySet[Any]) -> dict[str, str]:
    return {pk: f"<{name} {n}>" for n, pk in enumerate(rows.values_list("pk", flat=True), start=1)}


def _compare(path: Path, now: str) -> None:
    if RENEW:
        path.write_text(now)
        return
    _check(path.name, path.read_text() if path.exists() else "", now)


def _check(name: str, kept: str, now: str) -> None:
    """Fail with the difference, if there is one."""
    if kept != now:
        lines = difflib.unified_diff(
            kept.splitlines(), now.splitlines(), "kept", "sent now", lineterm="", n=2
        )
        pytest.fail(f"{name} is not what was sent:\n\n" + "\n".join(lines) + _CURE, pytrace=False)


def _compare_tools(sent: dict[str, str]) -> None:
    """Each tool as it stands in the page of tools; renewed, it is added or replaced there."""
    kept = _tools(TOOLS.read_text() if TOOLS.exists() else "")
    if RENEW:
        parts = [f"## {name}\n\n{text}\n" for name, text in sorted((kept | sent).items())]
        TOOLS.write_text("\n".join(["# Tools and forms as a model is told of them\n", *parts]))
        return
    for name, text in sent.items():
        _check(f"tools.md, {name},", kept.get(name, ""), text)


def _tools(text: str) -> dict[str, str]:
    parts = text.split("\n## ")[1:]
    return {name: rest.strip("\n") for name, _, rest in (part.partition("\n\n") for part in parts)}
