"""HEARTBEAT.md as text: what is ok, empty and corrupted, and that nothing is lost on the way (rule 6.6)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import strategies as st

from automations.routines import heartbeat_md
from automations.routines.heartbeat_md import Parse, Parsed, Task, prose, render_heartbeat_md
from tests.automations.schedules.examples import holds_for
from tests.yardstick import within

pytestmark = pytest.mark.rule("6.6")

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
TASK: dict[str, Any] = {"id": "daily_hn_check", "title": "Check Hacker News top stories"}
TASK |= {"description": "浏览 HN 首页", "schedule": "0 9 * * *", "timezone": "America/Los_Angeles"}
TASK |= {"execution_mode": "isolated", "source": "chat", "enabled": True, "state": "pending"}
TASK |= {"last_run_at": None, "next_run_at": "2026-02-12T09:00:00+00:00", "timeout_seconds": 120}
TASK |= {"retry": 0, "max_retry": 3, "error_message": None, "created_at": "2026-02-11T14:30:00+00:00"}
BLOCK = json.dumps({"version": 2, "tasks": [TASK]}, indent=2, ensure_ascii=False)
V2 = "# Heartbeat\n\nBe brief.\n\n## Tasks\n\n"
V2 += f"```json\n{BLOCK}\n```\n\nAsk before you delete anything.\n"


def read(content: str) -> Parsed:
    return heartbeat_md.parse_heartbeat_md(content, zone="UTC", now=NOW)


def block(data: Any) -> str:
    return f"Prose.\n\n```json\n{data if isinstance(data, str) else json.dumps(data)}\n```\n"


def tasks(*given: Any) -> str:
    return block({"version": 2, "tasks": list(given)})


def test_version_2_as_the_design_shows_it() -> None:
    parsed = read(V2)
    assert parsed.parse is Parse.OK
    run_time = {"state", "last_run_at", "retry", "error_message", "created_at"}
    assert parsed.tasks == (Task(**{name: TASK[name] for name in TASK.keys() - run_time}),)
    assert prose(V2) == "# Heartbeat\n\nBe brief.\n\nAsk before you delete anything."


@pytest.mark.rule("6.4")
@pytest.mark.parametrize("version", [{"version": 1}, {}])
def test_version_1_gets_defaults_for_what_it_does_not_have(version: Any) -> None:
    task = {"id": "a", "title": "A", "schedule": "30m", "state": "pending", "timeout_seconds": 60}
    parsed = read(block(version | {"tasks": [task]}))
    wanted = Task(id="a", title="A", schedule="30m", timeout_seconds=60, execution_mode="inline")
    assert parsed.tasks == (wanted,)
    assert (wanted.source, wanted.enabled, wanted.timezone) == ("manual", True, "")


def test_a_text_without_a_json_block_is_empty() -> None:
    blocks = ("```\n{}\n```\n", "```yaml\ntasks: []\n```\n", f"````markdown\n{V2}````\n")
    for content in ("", "Prose.\n", *blocks, '{"tasks": []}', "`json {}`"):
        assert read(content) == Parsed(parse=Parse.EMPTY), content


def test_a_json_block_that_lists_no_tasks_is_prose() -> None:
    """The routines get a block of their own beside it."""
    checks = {"lastChecks": {"email": 1_703_275_200}}
    objects: list[Any] = [checks, {"done_tasks": 3}, {"note": "tasks: none"}, {"title": "Settings"}]
    for data in (*objects, {}, [], [1, 2], "text"):
        content = block(json.dumps(data))
        assert read(content) == Parsed(parse=Parse.EMPTY), data
        assert prose(content) == content.strip()
        rendered = render_heartbeat_md(content, [A])
        assert [task.title for task in read(rendered).tasks] == ["A"]
        assert prose(rendered) == content.strip()


def test_another_json_block_in_the_prose_is_left_alone() -> None:
    content = 'See\n\n```json\n{"an": "example"}\n```\n\n' + V2
    assert read(content).tasks == read(V2).tasks
    assert '{"an": "example"}' in prose(content)


@pytest.mark.parametrize("name", ["priority", "tags", "owner", "notes", "x-color", "last_error", "备注"])
def test_a_field_of_somebody_else_is_kept(name: str) -> None:
    (task,) = read(tasks({"title": "A", "schedule": "1h", name: ["a", {"b": None}]})).tasks
    assert task.foreign == {name: ["a", {"b": None}]}
    assert (task.title, task.schedule) == ("A", "1h")


A = {"title": "A", "schedule": "1h"}
CORRUPTED: dict[str, tuple[str, str]] = {
    "cut": (V2[: V2.index('"source"')], "is not closed"),
    "a comma too many": (V2.replace('"enabled": true,', '"enabled": true,,'), "cannot be read"),
    "nothing in it": (block(""), "cannot be read"),
    "half of it": (block('{"version": 2, "tas'), "cannot be read"),
    "no tasks, and not readable": (block('{"lastChecks": }'), "cannot be read"),
    "a list": (block([A]), "not an object with a list"),
    "no list of tasks": (block({"version": 2, "task": []}), "not an object with a list"),
    "version 3": (block({"version": 3, "tasks": []}), "version must be one of"),
    "version true": (block({"version": True, "tasks": []}), "version must be one of"),
    "two blocks": (V2 + V2, "2 JSON blocks"),
    "no object": (tasks("A"), "task 1 is not an object"),
    "no title": (tasks({"schedule": "1h"}), "title is empty"),
    "title of two lines": (tasks(A | {"title": "a\nb"}), "title contains a line break"),
    "a misspelt field": (tasks(A, {"title": "B", "shedule": "1h"}), "task 2 ('B') has a field 'shedule'"),
    "another misspelt field": (tasks(A | {"next_run": "2031-01-01"}), "did you mean 'next_run_at'?"),
    "one that differs by its case": (tasks(A | {"Schedule": "1h"}), "did you mean 'schedule'?"),
    "a foreign field that is huge": (tasks(A | {"notes": "x" * 3000}), "too large to store"),
    "a foreign field that is deep": (tasks(A | {"notes": json.loads("[" * 60 + "]" * 60)}), "too large"),
    "half a character in a foreign field": (tasks(A | {"notes": "\ud800"}), "cannot be stored"),
    "bad schedule": (tasks(A | {"schedule": "hourly"}), "neither an interval"),
    "bad cron": (tasks(A | {"schedule": "61 * * * *"}), "task 1 ('A')"),
    "unknown zone": (tasks(A | {"timezone": "Mars/X"}), "no time zone"),
    "zone that is no text": (tasks(A | {"timezone": 5}), "timezone must be text"),
    "unknown mode": (tasks(A | {"execution_mode": "session"}), "execution_mode must be one of"),
    "enabled as text": (tasks(A | {"enabled": "yes"}), "enabled must be true or false"),
    "timeout of nothing": (tasks(A | {"timeout_seconds": 0}), "timeout_seconds must be"),
    "a time that is none": (tasks({"title": "A", "next_run_at": "tomorrow"}), "next_run_at"),
    "an id twice": (tasks(A | {"id": "x"}, A | {"id": "x"}), "two tasks have the id 'x'"),
    "an id that is no text": (tasks(A | {"id": 5}), "id must be text"),
    "half a character": (tasks(A | {"description": "\ud800"}), "cannot be stored"),
    "NUL": (tasks(A | {"description": "\x00"}), "cannot be stored"),
    "endless digits": (block('{"tasks": [], "version": ' + "9" * 5000 + "}"), "cannot be read"),
    "endless depth": (block("[" * 100_000), "cannot be read"),
    "too many": (tasks(*[A] * 1001), "more than 1000"),
}


@pytest.mark.parametrize("what", CORRUPTED)
def test_an_unreadable_block_is_named_and_replaced_by_a_repair(what: str) -> None:
    content, words = CORRUPTED[what]
    parsed = read(content)
    assert (parsed.parse, parsed.tasks) == (Parse.CORRUPTED, ())
    assert words in parsed.problem
    assert "```json" in heartbeat_md.task_blocks_text(content).lower()
    whole = heartbeat_md.replace_broken_block(f"Before.\n\n{content}", [A | {"id": "x"}])
    repaired = read(whole)
    assert (repaired.parse, [task.id for task in repaired.tasks]) == (Parse.OK, ["x"])
    assert whole.startswith("Before.\n\n")
    assert whole.count("```json") == 1


def test_a_repair_keeps_the_prose_that_an_open_block_swallowed() -> None:
    content = 'Before.\n\n```json\n{"version": 2, "tasks": [{"title": "Tea"}]}\n\n## Notes\n\nBe kind.\n'
    assert prose(heartbeat_md.replace_broken_block(content, [A])) == "Before.\n\n## Notes\n\nBe kind."


def test_rendering_replaces_the_block_and_keeps_every_other_letter() -> None:
    rendered = render_heartbeat_md(V2, [A])
    start, end = V2.index("```json"), V2.index("```\n\nAsk") + 3
    assert rendered.startswith(V2[:start])
    assert rendered.endswith(V2[end:])
    assert prose(rendered) == prose(V2)
    assert render_heartbeat_md("Prose.\n", []) == "Prose.\n"
    assert render_heartbeat_md("Prose.\n", [A]).startswith("Prose.\n\n## Tasks\n\n```json\n")
    assert render_heartbeat_md("", [A]).startswith("## Tasks\n\n```json\n")
    assert prose(render_heartbeat_md("Prose.\n", [A])) == "Prose."


def test_an_open_fence_in_prose_does_not_swallow_a_block() -> None:
    rendered = render_heartbeat_md("Look:\n```sh\nls", [A])
    assert read(rendered).parse is Parse.OK
    assert rendered.startswith("Look:\n```sh\nls\n```\n")


letters = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"])
words = st.text(letters, min_size=1, max_size=40)
CHOICES: dict[str, list[Any]] = {
    "timezone": ["UTC", "Asia/Shanghai"],
    "execution_mode": ["inline", "isolated"],
}
CHOICES |= {"source": ["manual", "chat", "heartbeat_reflect", "import"], "enabled": [True, False]}
CHOICES |= {"task_type": ["", "time_reminder"], "state": ["pending", "done"]}
task = st.fixed_dictionaries(
    {"title": words.filter(str.strip), "schedule": st.sampled_from(["30m", "1h", "2d", "0 9 * * 1-5"])},
    optional={
        "description": st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=80),
        "timeout_seconds": st.integers(1, 14_400),
        "max_retry": st.integers(0, 10),
        "error_message": st.none() | words,
        **{name: st.sampled_from(values) for name, values in CHOICES.items()},
    },
)
lines = st.lists(st.sampled_from(["Prose.", "", "# Heading", "```", "```sh", "````", "- x `y`", "## Tasks"]))


@holds_for(few=25, many=100, text=lines, given=st.lists(task, min_size=1, max_size=5))
def test_what_is_rendered_is_read_again(text: list[str], given: list[dict[str, Any]]) -> None:
    rendered = render_heartbeat_md("\n".join(text), given)
    parsed = read(rendered)
    assert parsed.parse is Parse.OK, parsed.problem
    run_time = {"state", "error_message"}
    assert parsed.tasks == tuple(
        Task(
            **{name: value for name, value in each.items() if name not in run_time},
            is_done=each.get("state") == "done" and each.get("schedule") is None,
        )
        for each in given
    )
    assert render_heartbeat_md(rendered, given) == rendered

    def kept(found: list[str]) -> list[str]:
        return [line for line in found if line.strip() and "`" not in line and line != "## Tasks"]

    assert kept(text) == kept(prose(rendered).split("\n"))


@holds_for(
    many=100,
    text=st.text(st.characters(codec="utf-8"), max_size=200),
    at=st.integers(0, len(V2)),
    cut=st.integers(0, 40),
)
def test_any_edited_text_is_read_as_ok_empty_or_corrupted(text: str, at: int, cut: int) -> None:
    content = V2[:at] + text + V2[at + cut :]
    parsed = read(content)
    assert parsed.parse in Parse
    assert bool(parsed.problem) is (parsed.parse is Parse.CORRUPTED)
    if parsed.parse is Parse.CORRUPTED:
        assert read(heartbeat_md.replace_broken_block(content, [A])).parse is Parse.OK


def test_a_block_of_line_ends_is_read_at_once() -> None:
    text = "# Heartbeat\n\n```json\n{" + "\r\n" * 30_000 + "}\n```\n"
    with within(20):
        read(text)
    for before in ("", "\n", "{\n\n  ", "[1,\r\n\r\n\t", " "):
        assert read(f'```json\n{before}"task": 1\n```\n').parse is Parse.CORRUPTED, before
