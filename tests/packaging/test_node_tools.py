"""The lock of npm's packages."""

from __future__ import annotations

import json
from typing import Any

from tests.up import ROOT

FILES = ROOT / "tests" / "api" / "typescript"


def read(name: str) -> Any:
    return json.loads((FILES / name).read_text())


def test_the_lock_pins_every_package_and_names_no_host() -> None:
    packages = read("package-lock.json")["packages"]
    named = packages.pop("")["dependencies"]
    assert named == read("package.json")["dependencies"]
    for name, version in named.items():
        assert packages[f"node_modules/{name}"]["version"] == version
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())
    assert not [name for name, each in packages.items() if "resolved" in each]
