"""The pages of docs/ by name, and the sections of a page, for the tests that compare them with the code."""

import json
import re
import sys
from pathlib import Path

from tests.up import ROOT

DOCS = ROOT / "docs"


def page(name: str) -> str:
    """The text of a page, such as `api.md`."""
    return (DOCS / name).read_text()


def checkout(folder: Path, url: str, token: str) -> Path:
    """A folder in which the commands of a page find the Python and the data folder of an `up`."""
    (folder / ".rondo").mkdir()
    (folder / ".rondo" / "connection.json").write_text(json.dumps({"url": url, "token": token}))
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    return folder


def blocks(text: str, kind: str) -> list[str]:
    """The code blocks of a kind, such as `sh`, in a text."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(name: str, heading: str) -> str:
    """The text under one heading of a page, up to the next heading of the same or a higher level."""
    found: list[str] = []
    level, fence = 0, ""
    for line in page(name).splitlines(keepends=True):
        mark = re.match(r"`{3,}", line)
        if mark and not fence:
            fence = mark[0]
        elif fence and line.strip() == fence:
            fence = ""
        depth = 0 if fence else len(line) - len(line.lstrip("#"))
        if level and depth and depth <= level:
            break
        if level:
            found.append(line)
        elif depth and line.lstrip("#").strip() == heading:
            level = depth
    assert found, f"{name} has no section {heading!r}"
    return "".join(found)
