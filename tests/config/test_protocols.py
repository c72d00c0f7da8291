"""A protocol that is not served is neither imported nor addressed; nor are slow libraries that nobody needs."""

import os
import sys

import pytest

from interfaces.protocols import PROTOCOLS, read_protocols
from tests.up import run

LOOK = """
import sys
import django
django.setup()
import config.urls
from django.urls import get_resolver
print(*sys.modules)
print(*(str(each.pattern) for each in get_resolver().url_patterns))
"""


def test_an_unknown_protocol_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"must be none or some of .*openai.*, not soap"):
        read_protocols("openai,soap")


@pytest.mark.full
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_that_is_off_is_not_imported_and_has_no_address(name: str) -> None:
    others = ",".join(other for other in PROTOCOLS if other != name) or "none"
    package, prefix = PROTOCOLS[name].urls.rpartition(".")[0], PROTOCOLS[name].prefix
    modules, addresses = _look(name)
    assert package in modules
    assert prefix in addresses
    modules, addresses = _look(others)
    assert not [each for each in modules if each.startswith(package)]
    assert prefix not in addresses


def _look(served: str) -> tuple[list[str], list[str]]:
    """The modules and the addresses of a fresh process that serves these protocols."""
    environ = {**os.environ, "RONDO_DOORS": served, "DJANGO_SETTINGS_MODULE": "config.settings"}
    modules, addresses = run(sys.executable, "-c", LOOK, env=environ, check=True).stdout.splitlines()[-2:]
    return modules.split(), addresses.split()


@pytest.mark.full
def test_the_mcp_sdk_is_not_loaded_before_its_first_request() -> None:
    modules, _addresses = _look("mcp")
    assert "mcp.server" not in modules


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
