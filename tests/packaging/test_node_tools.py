"""`make test` installs npm's packages once, and goes on without them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.up import ROOT

FILES = ROOT / "tests" / "api" / "typescript"
STUB = """#!/bin/sh
echo "$@" >> {calls}
exit {status}
"""


def read(name: str) -> Any:
    return json.loads((FILES / name).read_text())


def npm(folder: Path, status: int) -> tuple[dict[str, str], Path]:
    """An environment with a program `npm` that ends with this status, and the file of its calls."""
    folder.mkdir()
    calls = folder / "calls"
    calls.touch()
    program = folder / "npm"
    program.write_text(STUB.format(calls=calls, status=status))
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}, calls


def make(environ: dict[str, str], packages: Path) -> str:
    """What `make test` prints that runs no test; it must succeed."""
    installed = ["--assume-old=.venv/.ready", "--assume-old=.venv/.ready-dev"]
    command = ["make", *installed, "test", "ARGS=--version", f"NODE_PACKAGES={packages}"]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_packages_are_installed_once(tmp_path: Path) -> None:
    environ, calls = npm(tmp_path / "bin", 0)
    packages = tmp_path / "packages"
    assert "Installing npm's packages" in make(environ, packages)
    assert (packages / "package-lock.json").read_text() == (FILES / "package-lock.json").read_text()
    assert "npm" not in make(environ, packages)
    assert len(calls.read_text().splitlines()) == 1


def test_the_tests_run_where_npm_or_its_registry_is_missing(tmp_path: Path) -> None:
    environ, calls = npm(tmp_path / "bin", 1)
    packages = tmp_path / "packages"
    for attempt in (1, 2):  # each run tries again
        said = make(environ, packages)
        assert said.count("Skipping the tests of the TypeScript client") == 1
        assert len(calls.read_text().splitlines()) == attempt


@pytest.mark.parametrize("target", ["up", "tour"])
def test_a_server_needs_no_package_of_npm(target: str) -> None:
    command = ["make", "--dry-run", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "npm" not in done.stdout


def test_the_lock_pins_every_package_and_names_no_host() -> None:
    packages = read("package-lock.json")["packages"]
    named = packages.pop("")["dependencies"]
    assert named == read("package.json")["dependencies"]
    for name, version in named.items():
        assert packages[f"node_modules/{name}"]["version"] == version
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())
    assert not [name for name, each in packages.items() if "resolved" in each]
