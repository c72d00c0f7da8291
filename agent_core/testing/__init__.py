"""A model server for tests, controlled over HTTP or from Python."""

from __future__ import annotations

from agent_core.testing.server import ModelServer
from agent_core.testing.wire import Received

__all__ = ["ModelServer", "Received"]
