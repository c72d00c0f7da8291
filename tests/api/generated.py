"""A Python client generated from the schema that the server gives, as programs that use the API generate theirs."""

from __future__ import annotations

import atexit
import importlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx2

NAME = "generated_client"


@dataclass(frozen=True, kw_only=True)
class Generated:
    """The generated package."""

    def connect(self, url: str, token: str) -> Any:
        """A client of one user."""
        made = self.module("client").AuthenticatedClient(base_url=url, token=token, prefix="Token")
        return made.with_timeout(60)

    def module(self, name: str, /) -> Any:
        return importlib.import_module(f"{NAME}.{name}")

    def call(self, operation: str, /, *path: Any, client: Any, **given: Any) -> Any:
        """Call an operation; returns what it answers: one of its classes, also for an error."""
        [found] = (Path(self.module("api").__path__[0])).glob(f"*/{operation}.py")
        return self.module(f"api.{found.parent.name}.{operation}").sync(*path, client=client, **given)

    def model(self, name: str, /, **fields: Any) -> Any:
        """An instance of a class of the schema, from plain values."""
        return getattr(self.module("models"), name).from_dict(fields)


@cache
def generated_from(url: str) -> Generated:
    """Generate the client from a running server, and make it importable; once for each address."""
    folder = Path(tempfile.mkdtemp(prefix="rondo-client-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    schema = folder / "schema.json"
    schema.write_text(httpx2.get(f"{url}/api/schema/", headers={"Accept": "application/json"}).text)
    command = ["openapi_python_client", "generate", "--meta", "none", "--path", str(schema)]
    done = subprocess.run(
        [sys.executable, "-m", *command, "--output-path", str(folder / NAME)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout.lower(), done.stdout
    sys.path[:] = [each for each in sys.path if not (Path(each) / NAME).exists()]
    for loaded in [name for name in sys.modules if name.split(".")[0] == NAME]:
        del sys.modules[loaded]
    sys.path.insert(0, str(folder))
    return Generated()
