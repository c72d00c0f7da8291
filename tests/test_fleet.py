"""Workers of the tests start quickly."""

from __future__ import annotations

import pytest

from sessions_app.queue.receive import MessageInput, receive
from tests import warm
from tests.conftest import new_person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def test_a_worker_with_the_usual_settings_is_forked_with_the_apps_loaded(fleet: Fleet) -> None:
    """Nothing in this process has changed its environment for good: every later worker would start the long way."""
    assert isinstance(fleet.worker().child, warm._LoadedChild)
    assert isinstance(fleet.worker(RONDO_TOOL_GRACE_SECONDS="5").child, warm._LoadedChild)
    assert not isinstance(fleet.worker(LOG_LEVEL="DEBUG").child, warm._LoadedChild)


def test_a_loaded_process_takes_its_bounds_from_its_own_environment(
    fleet: Fleet, model_server: ModelServer
) -> None:
    person = new_person("ada", model="openai-chat:test")
    fleet.worker(RONDO_TURNS_PER_USER="1")
    for name in ("one", "two"):
        receive(person.session().pk, MessageInput(content=f"[[hold:{name}]] Hello"))
    until(lambda: len(model_server.held) == 1)
    fleet.worker(RONDO_TURNS_PER_USER="2")
    until(lambda: len(model_server.held) == 2)
    model_server.release_all()
