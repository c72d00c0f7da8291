"""A model server for tests, controlled over HTTP or from Python."""

from tests.model_server.server import ModelServer
from tests.model_server.wire import Received

__all__ = ["ModelServer", "Received"]
