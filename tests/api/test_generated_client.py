"""The client that is generated from the schema drives what programs use the API for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.api.conftest import Site
from tests.api.generated import generated_from
from tests.api.test_clients import code_of
from tests.tokens import token_of

pytestmark = [pytest.mark.full, pytest.mark.processes]


@pytest.fixture
def client(site: Site) -> Iterator[Any]:
    token = token_of(User.objects.create_user("ada"))
    with generated_from(site.url).connect(site.url, token) as connected:
        yield connected


def test_the_program_of_the_page_talks(site: Site, client: Any, tmp_path: Path) -> None:
    code = generated_from(site.url)
    code.call("create_agent", client=client, body=code.model("NewAgent", name="demo"))
    session = code.call("create_session", client=client, body=code.model("NewSession", agent="demo"))
    (tmp_path / "rondo_client").symlink_to(Path(code.module("client").__file__).parent)
    program = code_of("Python client", "python")
    for there, here in {"http://localhost:8000": site.url, "…": client.token}.items():
        assert there in program
        program = program.replace(there, here)
    (tmp_path / "talk.py").write_text(
        f"from uuid import UUID\nsession_id = UUID('{session.id}')\n{program}\nprint(turn.state)"
    )
    done = subprocess.run(
        [sys.executable, "talk.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "succeeded", done.stderr
