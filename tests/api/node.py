"""Node.js and packages from npm, where they are installed: `make node-tools` puts them into `.node/`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.up import ROOT

FILES = Path(__file__).parent / "typescript"
NODE = shutil.which("node")
MODULES = Path(os.environ.get("RONDO_NODE_MODULES") or ROOT / ".node" / "node_modules")
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")


def tool(name: str) -> str | None:
    """The path of a program of a package."""
    ours = MODULES / ".bin" / name
    return str(ours) if ours.exists() else shutil.which(name)


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip a test where one of the programs is missing."""
    missing = [name for name in programs if tool(name) is None]
    return pytest.mark.skipif(
        NODE is None or bool(missing),
        reason=f"not installed: {', '.join(missing) or 'node'} (make node-tools)",
    )
