"""Named, versioned prompt templates: ``templates/prompts/<id>/v<N>.txt``.

A template is text with ``{{ name }}`` placeholders. A placeholder without a variable, or a variable without a
placeholder, is an error. Values are inserted as they are and never expanded again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_core.exceptions import PromptError

ROOT = Path(__file__).resolve().parent.parent / "templates" / "prompts"
_ID = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)*")
_PLACE = re.compile(r"\{\{ *([a-z][a-z0-9_]*) *\}\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptRef:
    """The template used, and the SHA-256 (hex) of the rendered text."""

    id: str
    version: int
    sha256: str

    def to_json(self) -> dict[str, str | int]:
        """Return ``{id, version, sha256}``."""
        return {"id": self.id, "version": self.version, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedPrompt:
    """A rendered template with its reference and variables."""

    ref: PromptRef
    text: str
    variables: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return ``{prompt_ref, variables}``, which step 0 of a journal stores."""
        return {"prompt_ref": self.ref.to_json(), "variables": dict(self.variables)}


def render_prompt(
    prompt_id: str, variables: Mapping[str, object], version: int | None = None
) -> RenderedPrompt:
    """Render a template, by default its latest version.

    Raises PromptError if the template is unknown or the variables do not match its placeholders.
    """
    number = latest_version(prompt_id) if version is None else version
    template = _template(prompt_id, number)
    values = {name: str(value) for name, value in variables.items()}
    places = set(_PLACE.findall(template))
    _check(f"{prompt_id} v{number}", places, set(values))
    text = _PLACE.sub(lambda place: values[place.group(1)], template)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    ref = PromptRef(id=prompt_id, version=number, sha256=sha256)
    return RenderedPrompt(ref=ref, text=text, variables=values)


def data_rule() -> str:
    """Return the rule on fenced data, which is part of several prompts."""
    return render_prompt("data.rule", {}).text


@lru_cache(maxsize=256)
def latest_version(prompt_id: str) -> int:
    """Return the highest version of a template. Raises PromptError if there is none."""
    if not _ID.fullmatch(prompt_id):
        raise PromptError(f"Invalid prompt id {prompt_id!r}; use lower-case words joined by dots.")
    names = [path.stem for path in (ROOT / prompt_id).glob("v*.txt")]
    versions = [int(name[1:]) for name in names if name[1:].isdecimal()]
    if not versions:
        raise PromptError(f"There is no prompt {prompt_id!r}.")
    return max(versions)


@lru_cache(maxsize=256)
def _template(prompt_id: str, version: int) -> str:
    latest_version(prompt_id)  # checks the id before it becomes a path
    try:
        text = (ROOT / prompt_id / f"v{version}.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PromptError(f"The prompt {prompt_id!r} has no version {version}.") from None
    return text.removesuffix("\n")


def _check(name: str, places: set[str], given: set[str]) -> None:
    if places - given:
        raise PromptError(f"{name} needs a value for {', '.join(sorted(places - given))}.")
    if given - places:
        raise PromptError(f"{name} has no placeholder for {', '.join(sorted(given - places))}.")
