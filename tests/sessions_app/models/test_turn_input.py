"""A turn's input is read by its fields; one module knows how it is stored."""

import re
from dataclasses import fields

from sessions_app.models import TurnInput
from tests.up import ROOT

STORAGE = {"sessions_app/models/turn.py", "sessions_app/models/turn_input.py"}
KEYS = "|".join(each.name for each in fields(TurnInput))
# of a turn's row: a key of the JSON by Python, by a lookup of the ORM, by SQLAlchemy, by SQL
NAMED = re.compile(
    r"\w*(?:turn|guest|running|host)\w*(?:\.metadata(?:\[|\.\w| \|)|\.c\.metadata(?:\[|\.))"
    rf"|(?:in|\|) \w*(?:turn|guest|running|host)\w*\.metadata|\bmetadata__(?:{KEYS})\b|\bmetadata ?->"
)


def test_only_one_module_knows_how_a_turns_input_is_stored() -> None:
    apps = (ROOT / app for app in ("config", "interfaces", "automations", "sessions_app"))
    modules = {path.relative_to(ROOT).as_posix(): path for app in apps for path in app.rglob("*.py")}
    assert modules.keys() >= STORAGE
    assert NAMED.search('turn.metadata["route"]'), "the search finds what it looks for"
    others = {name: path.read_text() for name, path in modules.items() if name not in STORAGE}
    assert {name: found for name, text in others.items() if (found := NAMED.findall(text))} == {}


def test_an_input_is_stored_without_its_defaults_and_read_back() -> None:
    assert TurnInput().to_json() == {}
    given = TurnInput(home="", replies_to=0, runs=("a:1", "b:1"), tasks=({"id": "a"},), deterministic=True)
    assert given.to_json().keys() == {"home", "replies_to", "runs", "tasks", "deterministic"}
    assert TurnInput.from_json(given.to_json() | {"of_a_newer_server": 1}) == given
