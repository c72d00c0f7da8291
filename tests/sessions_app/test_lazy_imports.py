"""Libraries that are slow to load are not loaded where nobody needs them."""

from __future__ import annotations

import os
import sys

import pytest

from tests.up import run

TRACES = "import sessions_app.turns.run, automations.beat, config.celery"
BOTS = (
    "import config.urls, sessions_app.worker.process, interfaces.telegram.polling as polling;"
    "polling.Pollers().keep()"
)
CHAT = "import interfaces.management.commands.chat"


@pytest.mark.full
@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        (CHAT, ("rest_framework.serializers", "pydantic_ai")),
        (BOTS, ("telegram",)),
        (TRACES, ("opentelemetry.sdk", "opentelemetry.exporter")),
    ],
    ids=["chat", "bots", "traces"],
)
def test_a_process_does_not_load_what_it_does_not_use(program: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, django; django.setup(); {program}; print({set(unwanted)!r} & set(sys.modules))"
    environ = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    assert run(sys.executable, "-c", code, env=environ, check=True).stdout == "set()\n"
