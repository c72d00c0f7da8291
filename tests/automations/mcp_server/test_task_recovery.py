"""A task outlives the processes that began it. In a module of its own: no worker is there but those that die here."""

from pathlib import Path
from typing import Any

import pytest

from sessions_app.models import Turn
from tests.api.conftest import start_web
from tests.automations.mcp_server.conftest import McpCaller
from tests.automations.mcp_server.test_tasks import begin, finish, get
from tests.conftest import Person
from tests.fleet import Fleet, Process, until
from tests.tokens import token_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def opened(person: Person, fleet: Fleet, name: str) -> tuple[McpCaller, Process]:
    """A web process of this test, and its MCP server."""
    folder: Path = fleet.folder / name
    folder.mkdir()
    url, web = start_web(folder)
    fleet.processes.append(web)
    return McpCaller(url=url, token=token_of(person.user), user=person.user), web


@pytest.mark.full
def test_a_task_outlives_its_worker_and_every_web_process(
    person_with_server: Person, model_server: Any, fleet: Fleet
) -> None:
    caller, web = opened(person_with_server, fleet, "first")
    dying = fleet.worker()
    task_id = begin(caller, "[[hold:long]] [[reply:After all]]")
    until(lambda: model_server.held.get("long"))
    dying.kill()
    assert get(caller, task_id).status == "working"
    web.kill()
    caller, _web = opened(person_with_server, fleet, "again")
    assert get(caller, task_id).status == "working"
    model_server.release("long")
    fleet.worker()
    assert finish(caller, task_id).content[0].text == "After all"
    assert Turn.objects.get().attempt == 2
