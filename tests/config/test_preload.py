"""A web process that is loaded before it may serve, as `up` starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from config.installation import ROOT
from tests.api.conftest import FEW_CONNECTIONS
from tests.fleet import Process, until
from tests.up import free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


def answers(url: str) -> bool:
    try:
        return httpx2.get(url, headers={"X-Request-Id": "asked-for-health"}).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.full
def test_its_log_is_that_of_the_settings(tmp_path: Path) -> None:
    """One line for each event in the chosen format, with the id of the request, and no warning before them."""
    port, log = free_port(), tmp_path / "web.log"
    environ = os.environ | FEW_CONNECTIONS | {"LOG_FORMAT": "json"}
    command = [sys.executable, "-m", "config.preload", "config.web", "--port", str(port)]
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        )
    web = Process(name="web", log=log, child=child)
    try:
        assert child.stdin is not None
        child.stdin.close()  # now it may serve
        until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), 60, "the web process answers")
        web.wait_for("GET /healthz")
    finally:
        web.kill()
    lines = [json.loads(line) for line in web.text().splitlines()]
    assert "asked-for-health" in [line.get("request") for line in lines if "GET /healthz" in line["event"]]
