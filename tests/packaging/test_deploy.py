"""The files of deploy/ name what exists. What the page does with them is in test_fleet.py."""

import json
import re
import shutil
from typing import Any
from uuid import uuid4

import pytest

from config import env
from interfaces.http.server.bodies import longest_body
from interfaces.protocols import PROTOCOLS
from tests.packaging.page import blocks
from tests.up import ROOT, run

DEPLOY = ROOT / "deploy"


def test_the_page_names_every_file_of_deploy() -> None:
    text = (ROOT / "docs" / "deploy.md").read_text()
    names = {path.name for path in DEPLOY.iterdir() if path.is_file()}
    assert [name for name in names if f"deploy/{name}" not in text] == []


def test_the_proxy_passes_every_body_that_a_protocol_takes() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    usual, *places = re.split(r"^    location ~ ", text, flags=re.MULTILINE)
    sizes = [(place.split(" {")[0], _megabytes(place)) for place in places]
    message = f"/sessions/{uuid4()}/messages/"
    for path in (message, f"/api{message}", *(f"/{each.prefix}" for each in PROTOCOLS.values())):
        found = [size for pattern, size in sizes if re.search(pattern, path)]
        assert (found or [_megabytes(usual)])[0] * 1024 * 1024 > longest_body(path), path


def _megabytes(text: str) -> int:
    [size] = re.findall(r"client_max_body_size (\d+)m;", text)
    return int(size)


def test_files_of_settings_name_variables_that_exist() -> None:
    known = {each.name for each in env.variables()} | {"FORWARDED_ALLOW_IPS"}  # uvicorn's
    [_, settings, _] = blocks("Install")
    for text in ((DEPLOY / "rondo.env.example").read_text(), settings):
        named = set(re.findall(r"^([A-Z_]+)=", text, re.MULTILINE))
        assert len(named) > 5
        assert named - known == set()


@pytest.mark.full
def test_systemd_accepts_the_units() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = [str(path) for path in (DEPLOY / "systemd").iterdir()]
    done = run("systemd-analyze", "verify", *units)
    complaints = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert complaints == []  # the command is not installed here


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
