import hashlib
from pathlib import Path

import pytest

from agent_core import prompts
from agent_core.exceptions import PromptError

REMINDER = "cron.agent_turn.reminder"
VARIABLES = {"name": "daily", "task": "Do it.", "scheduled_for": "now", "timezone": "UTC"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(prompts, "ROOT", tmp_path)
    (tmp_path / "greeting").mkdir()
    for version in (1, 2, 10):
        (tmp_path / "greeting" / f"v{version}.txt").write_text(f"v{version} hello {{{{ name }}}}\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _clean() -> object:
    yield
    prompts.latest_version.cache_clear()
    prompts._template.cache_clear()


def test_the_reminder_carries_its_reference_and_the_rendered_texts_hash() -> None:
    rendered = prompts.render_prompt(REMINDER, VARIABLES)
    expected = {"id": REMINDER, "version": 1, "sha256": hashlib.sha256(rendered.text.encode()).hexdigest()}
    assert rendered.ref.to_json() == expected
    assert rendered.text.endswith("\n\nDo it.")
    assert rendered.variables == VARIABLES


def test_the_latest_version_is_the_highest_number(root: Path) -> None:
    assert prompts.render_prompt("greeting", {"name": "Ann"}).text == "v10 hello Ann"
    assert prompts.render_prompt("greeting", {"name": "Ann"}, version=2).ref.version == 2


NAMED = {"name": "a"}
BAD: tuple[tuple[str, dict[str, str], int | None], ...] = (
    ("greeting", {}, None),
    ("greeting", {"name": "a", "extra": "b"}, None),
    *((crooked, NAMED, None) for crooked in ("none", "../greeting", "", "a/b", "greeting/../greeting")),
    ("greeting", NAMED, 3),
)


@pytest.mark.parametrize(("prompt_id", "variables", "version"), BAD)
def test_other_variables_and_unknown_ids_and_versions_are_refused(
    root: Path, prompt_id: str, variables: dict[str, str], version: int | None
) -> None:
    with pytest.raises(PromptError):
        prompts.render_prompt(prompt_id, variables, version=version)


def test_a_value_is_never_expanded_again() -> None:
    text = prompts.render_prompt(REMINDER, {**VARIABLES, "task": "{{ name }} {0} $name \\1"}).text
    assert "{{ name }} {0} $name \\1" in text
