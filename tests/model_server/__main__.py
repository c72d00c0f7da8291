"""`python -m tests.model_server`: runs the model server until it is killed."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from tests.model_server import ModelServer


def main() -> None:
    """Serve on a free port, or the given one, and write the port to the given file."""
    parser = argparse.ArgumentParser(prog="tests.model_server", description="A model server for tests.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path)
    given = parser.parse_args()
    threading.stack_size(256 * 1024)  # hundreds of held requests are a thread each
    server = ModelServer(given.host, given.port)
    if given.port_file:
        temporary = given.port_file.with_suffix(".tmp")
        temporary.write_text(str(server.port))
        temporary.replace(given.port_file)  # atomic: a reader never sees half of it
    server.serve()


if __name__ == "__main__":
    main()
