from collections.abc import Iterator
from typing import Any

import pytest

from agent_core import tools
from agent_core.exceptions import ToolError, UnknownTool
from agent_core.tool_spec import ToolSpec
from agent_core.tools import Tool
from agent_core.tools.schema import fit_call, refusal
from agent_core.types import ToolCall, ToolOutcome
from tests.yardstick import within

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["add", "list"]},
        "every": {"type": ["integer", "null"]},
        "names": {"type": "array", "items": {"type": "string"}},
        "at": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "deep": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
    },
    "required": ["action"],
    "additionalProperties": False,
}


def run(context: Any, arguments: dict[str, Any]) -> str:
    return "done"


def tool(name: str = "test_tool", **more: Any) -> Tool:
    return Tool(**{"name": name, "description": "d", "parameters": SCHEMA, "run": run, **more})


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    tools.unregister("test_tool")


def test_a_tool_may_register_twice_but_not_share_its_name_nor_be_what_a_provider_rejects() -> None:
    tools.register(tool())
    assert tools.register(tool()) == tools.get("test_tool")
    with pytest.raises(UnknownTool, match="nothing_here"):
        tools.get("nothing_here")
    bad = (
        {"description": "another"},
        {"name": "with space"},
        {"name": ""},
        {"parameters": {"type": "string"}},
    )
    for more in bad:
        with pytest.raises(ToolError):
            tools.register(tool(**more))


SPECS = {"t": ToolSpec(name="t", description="", parameters=SCHEMA)}


def refused(arguments: dict[str, Any], name: str = "t", unparsed: str | None = None) -> str | None:
    result = refusal(ToolCall(id="1", name=name, arguments=arguments, unparsed=unparsed), SPECS)
    if result is None:
        return None
    assert result.outcome is ToolOutcome.FAILED
    return result.output


NOTHING = object()
FITTING: tuple[dict[str, Any], ...] = (
    {"action": "list", "every": 3, "names": ["a"], "at": 1.5, "deep": {"x": True}},
    {"action": "add", "every": None, "at": "noon", "names": []},
    {"action": "add", "every": 3.0},
)
FAULTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "action is required"),
    ({"action": "run"}, "action must be one of 'add', 'list'"),
    ({"action": "add", "every": True}, "every must be of type integer or null"),
    ({"action": "add", "names": ["a", 1]}, "names[1] must be of type string"),
    ({"action": "add", "at": []}, "at matches none of the allowed schemas"),
    ({"action": "add", "deep": {}}, "deep.x is required"),
    ({"action": "add", "more": 1}, "more is not known"),
)


def test_the_model_is_told_what_does_not_fit() -> None:
    assert [given for given in FITTING if refused(given) is not None] == []
    assert [given for given, fault in FAULTS if fault not in str(refused(given))] == []
    assert refused({}, "x") == "There is no tool 'x'. Tools: t."
    assert "JSON object" in str(refused({}, unparsed="{bad"))


AS_WRITTEN: tuple[tuple[Any, Any], ...] = (
    # a schema of the parameter with what a model wrote for it, and what is meant: NOTHING leaves it out
    (({"type": "integer"}, "3.0"), 3),
    (({"type": "integer"}, 3.0), 3),
    (({"type": "number"}, "1.5"), 1.5),
    (({"type": "boolean"}, "True"), True),
    (({"type": "integer"}, "None"), NOTHING),
    (({"enum": [1, "2"]}, "2"), "2"),
    (({"enum": [1, True]}, "true"), True),
    (({"enum": [1, 2]}, "3"), "3"),
    (({"type": "array", "items": {"type": "integer"}}, '["1", 2]'), [1, 2]),
    (({"type": "object", "properties": {"n": {"type": "integer"}}}, '{"n": "1"}'), {"n": 1}),
    (({"type": "string"}, 12345), "12345"),
    (({"type": "string"}, None), NOTHING),
    (({"type": "integer"}, ""), NOTHING),
    (({"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["all"]}]}, "7"), 7),
    (({"type": "object", "properties": {"n": {"type": "string"}}}, {"n": None}), {}),
    # as they are: they fit, mean several things, or nothing
    (({"type": ["integer", "null"]}, None), None),
    (({}, None), None),
    (({"type": "string"}, "null"), "null"),
    (({"type": ["string", "integer"]}, "300"), "300"),
    (({"anyOf": [{"type": "integer"}, {"type": "boolean"}]}, "maybe"), "maybe"),
    (({"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "array"}]}, '["1"]'), '["1"]'),
    (({"type": "integer"}, "NaN"), "NaN"),
    (({"type": "integer"}, True), True),
    (({"type": "array"}, "[" * 100 + "]" * 100), "[" * 100 + "]" * 100),
)


@pytest.mark.rule("3.2")
def test_arguments_are_read_as_models_write_them() -> None:
    for (schema, given), meant in AS_WRITTEN:
        for required in ([], ["other"]):
            parameters = {"type": "object", "properties": {"a": schema}, "required": required}
            specs = {"t": ToolSpec(name="t", description="", parameters=parameters)}
            found = fit_call(ToolCall(id="1", name="t", arguments={"a": given}), specs).arguments
            assert repr(found) == repr({} if meant is NOTHING else {"a": meant}), (schema, given)
    needed = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    specs = {"t": ToolSpec(name="t", description="", parameters=needed)}
    kept = fit_call(ToolCall(id="1", name="t", arguments={"a": None, "b": 1}), specs)
    assert kept.arguments == {"a": None, "b": 1}


def wide(count: int) -> dict[str, Any]:
    """A schema that an item passes only as the last of many branches."""
    branches = [{"type": "object", "required": [f"p{number}"]} for number in range(count)]
    return {"type": "object", "properties": {"rows": {"type": "array", "items": {"anyOf": branches}}}}


@pytest.mark.rule("1.12")
def test_a_check_of_strangers_schema_and_arguments_ends_soon() -> None:
    deep: dict[str, Any] = {"items": {"enum": ["x"]}}
    for _ in range(40):
        deep = {"anyOf": [{"items": {"enum": ["y"] * 100}}, deep]}
    attacks: tuple[tuple[Any, list[Any]], ...] = (  # each row fits, which is found last
        (wide(300)["properties"]["rows"]["items"], [{"p299": 1}] * 50_000),
        ({"enum": ["y" * 9] * 900 + ["z"]}, ["z"] * 100_000),
        ({"required": ["r"] * 2_000}, [{"r": 1}] * 50_000),
        (deep, [["x"] * 10] * 10_000),
    )
    for items, rows in attacks:
        parameters = {"type": "object", "properties": {"rows": {"type": "array", "items": items}}}
        specs = {"t": ToolSpec(name="t", description="", parameters=parameters)}
        call = ToolCall(id="1", name="t", arguments={"rows": rows})
        with within(60):
            result = refusal(fit_call(call, specs), specs)
        assert result is not None
        assert "too large" in result.output
    specs = {"t": ToolSpec(name="t", description="", parameters=wide(50))}
    assert refusal(ToolCall(id="1", name="t", arguments={"rows": [{"p49": 1}] * 1_000}), specs) is None
