"""The configuration: one typed module, one table in the docs."""

import os
import re
import sys
from ast import literal_eval
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from config import settings as usual
from config.env import EnvError, all_queues, load, queues_of, variables
from config.supervisor.datadir import Keys
from config.supervisor.fleet import Servers, UpOptions, child_environment
from interfaces.protocols import PROTOCOLS, read_protocols
from sessions_app.flags import ALL
from tests.up import run

REQUIRED = {
    "SECRET_KEY": "sixteen-or-more.",
    "DATABASE_URL": "postgresql://user:password@127.0.0.1/rondo",
    "CELERY_BROKER_URL": "redis://127.0.0.1/0",
}


def test_flags_have_their_defaults_unless_they_are_named() -> None:
    given = {"RONDO_FLAGS": "heartbeat.broadcast_scope=session, scheduler.cron_jobs=0"}
    flags = load(REQUIRED | given).rondo_flags
    assert flags["heartbeat.broadcast_scope"] == "session"
    assert (flags["scheduler.cron_jobs"], flags["tools.mcp"]) == (False, True)
    assert load(REQUIRED).rondo_flags == {each.name: each.default for each in ALL}


def test_missing_required_variables_are_named_in_one_line() -> None:
    for name in REQUIRED:
        with pytest.raises(EnvError, match=f"not set: {name} "):
            load({**REQUIRED, name: "  "})
    with pytest.raises(EnvError) as raised:
        load({})
    assert "SECRET_KEY, DATABASE_URL, CELERY_BROKER_URL" in str(raised.value)
    assert "\n" not in str(raised.value)


UNREADABLE: dict[str, list[str]] = {
    "DEBUG": ["maybe"],
    "TURN_SHARDS": ["0"],
    "DATABASE_URL": ["mysql://somewhere"],
    "CELERY_BROKER_URL": ["somewhere"],
    "RONDO_FLAGS": ["tools.teleport=1", "tools.mcp", "heartbeat.broadcast_scope=0"],
    "RONDO_KEEP_DAYS": ["-1"],
    "LOG_LEVEL": ["loud"],
    "RONDO_THROTTLE": ["often", "0/min", "5/week"],
    "RONDO_MODEL": ["openai-chat:", ":gpt-5", "openai-chat:gpt 5"],
    "RONDO_PLUGINS": ["a.b,.c"],
    "SECRET_KEY": ["fifteen-letters"],
    "SECRET_KEY_FALLBACKS": ["sixteen-or-more.,short"],
    "TURN_QUEUES": ["turns.8", "urgent"],
    "RONDO_DOORS": ["openai,soap", "none,openai"],
    "RONDO_CORS_ORIGINS": [
        *("app.example", "https://app.example/", "https://ada:x@app.example", "https://app.example,*")
    ],
}


def test_an_unreadable_value_is_refused_with_the_variables_name() -> None:
    for name, values in UNREADABLE.items():
        for value in values:
            with pytest.raises(EnvError, match=f"^{name} "):
                load({**REQUIRED, name: value})


def test_chat_services_without_their_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)  # as where it is not installed
    assert load(REQUIRED).rondo_notify == {}
    words = "RONDO_NOTIFY needs the package apprise, which is not installed"
    with pytest.raises(EnvError, match=words) as raised:
        load(REQUIRED | {"RONDO_NOTIFY": '{"team": "slack://key"}'})
    assert "slack" not in str(raised.value)


def test_a_model_is_offline_or_named_with_its_provider() -> None:
    for name in ("offline", "openai-chat:gpt-5", "openai-chat:org/model:free"):
        assert load({**REQUIRED, "RONDO_MODEL": name}).rondo_model == name


def test_debugging_and_tests_may_have_a_short_key() -> None:
    for excuse in ({"DEBUG": "1"}, {"PYTEST_VERSION": "9"}):
        assert load({**REQUIRED, "SECRET_KEY": "short", **excuse}).secret_key == "short"


def test_lists_are_separated_by_commas() -> None:
    env = load({**REQUIRED, "TURN_QUEUES": "turns.0, auto.0,turns.any,", "RONDO_PLUGINS": "a.b"})
    assert env.turn_queues == ("turns.0", "auto.0", "turns.any")
    assert env.rondo_plugins == ("a.b",)


def test_each_shard_has_separate_queues_for_people_and_automations() -> None:
    assert all_queues(2) == ("turns.0", "turns.1", "turns.any", "auto.0", "auto.1", "auto.any", "deliveries")
    assert queues_of(("turns",), 1) == ("turns.0", "turns.any")
    assert queues_of(("auto",), 1) == ("auto.0", "auto.any", "deliveries")
    assert queues_of(("auto.0", "turns"), 1) == ("auto.0", "turns.0", "turns.any")


def test_the_docs_table_has_each_variable_with_its_default_and_meaning() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    table = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    shown = {None: "required", "": "empty"}
    rows = [f"| `{each.name}` | {shown.get(each.default, f'`{each.default}`')} | " for each in variables()]
    assert [line[: len(row)] for line, row in zip(table, rows, strict=True)] == rows
    assert all(re.fullmatch(r".*\w.* \|", line[len(row) :]) for line, row in zip(table, rows, strict=True))


def test_the_docs_table_of_bounds_and_times_matches_the_settings() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    section = text.partition("## Bounds and times")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `([A-Z_]+)` \| `(.*?)` \|", section, re.MULTILINE))
    source = (Path(__file__).parents[2] / "config" / "settings.py").read_text()
    constants = source.partition("# Bounds and times")[2].partition("\n\n")[0]
    assert list(listed) == re.findall(r"^([A-Z_]+) =", constants, re.MULTILINE)
    assert {name: getattr(usual, name) for name in listed} == {n: literal_eval(v) for n, v in listed.items()}


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


TRACES = "import sessions_app.turns.run, automations.beat, config.celery"
BOTS = "import config.urls, sessions_app.worker.process; from interfaces.telegram.polling import Pollers;"
BOTS += "Pollers().keep()"
CHAT = "import interfaces.management.commands.chat"


@pytest.mark.full
def test_a_process_does_not_load_what_it_does_not_use() -> None:
    for program, unwanted in (
        (CHAT, {"rest_framework.serializers", "pydantic_ai"}),
        (BOTS, {"telegram", "mcp.server"}),
        (TRACES, {"opentelemetry.sdk", "opentelemetry.exporter"}),
    ):
        code = f"import sys, django; django.setup(); {program}; print({unwanted!r} & set(sys.modules))"
        environ = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
        assert run(sys.executable, "-c", code, env=environ, check=True).stdout == "set()\n", program


def test_an_up_that_other_machines_reach_lets_nobody_reach_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RONDO_THIS_MACHINE", raising=False)
    secrets: dict[str, Any] = dict.fromkeys((each.name for each in fields(Keys)), "x")
    keys = Keys(**secrets)
    servers = Servers(database_url="x", broker_url="x", database=None, broker=None)
    given: dict[str, Any] = {"port": 1, "data_dir": Path(), "workers": 1, "concurrency": 1, "beats": 1}
    for host, is_local in (("127.0.0.1", "1"), ("localhost", "1"), ("0.0.0.0", "0"), ("192.0.2.1", "0")):
        environ = child_environment(UpOptions(host=host, **given), keys, servers)
        assert environ["RONDO_THIS_MACHINE"] == is_local
