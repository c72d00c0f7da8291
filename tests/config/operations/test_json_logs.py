"""With `LOG_FORMAT=json` a process writes nothing but lines of JSON, from its start to its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.conftest import start_web
from tests.fleet import QUICK, Fleet

pytestmark = pytest.mark.processes


@pytest.mark.long("real processes, from their start to their end")
def test_every_line_of_a_process_is_json(fleet: Fleet, tmp_path: Path) -> None:
    _, web = start_web(tmp_path, LOG_FORMAT="json", **QUICK)
    fleet.processes.append(web)
    started = [web, fleet.worker(LOG_FORMAT="json"), fleet.beat(LOG_FORMAT="json")]
    for process in started:
        process.stop()
        lines = process.text().splitlines()
        assert lines, process.name
        assert [line for line in lines if not line.startswith("{")] == [], process.name
        assert all(json.loads(line)["level"] for line in lines)
