"""24 conversations and twenty phrasings with a real model: `make evals`. Not collected by `make test`."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from sessions_app.worker.process import WorkerProcess
from tests.conversations import phrasings
from tests.conversations.chats import SETTINGS
from tests.conversations.conftest import agent_of
from tests.conversations.stage import Stage
from tests.conversations.test_conversations import ALL

MODEL = os.environ["RONDO_EVAL_MODEL"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("play", ALL, ids=lambda play: play.__name__)
def test_a_real_model_leaves_what_it_should(
    play: Callable[[Stage], None], worker: WorkerProcess, settings: Any
) -> None:
    for name, value in SETTINGS.get(play.__name__, {}).items():
        setattr(settings, name, value)
    play(Stage(agent=agent_of(MODEL), worker=worker))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("asked", phrasings.PHRASINGS, ids=lambda asked: asked.said[:30])
def test_a_real_model_schedules_what_was_asked_for(asked: phrasings.Phrasing, worker: WorkerProcess) -> None:
    phrasings.play(Stage(agent=agent_of(MODEL), worker=worker), asked)
