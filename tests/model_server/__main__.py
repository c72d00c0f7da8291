"""`python -m tests.model_server`: runs the model server until it is killed."""

import argparse
import threading
from pathlib import Path

from tests.model_server import ModelServer


def main() -> None:
    """Serve on a free port, and write the port to the given file."""
    parser = argparse.ArgumentParser(prog="tests.model_server", description="A model server for tests.")
    parser.add_argument("--port-file", type=Path, required=True)
    file = parser.parse_args().port_file
    threading.stack_size(256 * 1024)  # hundreds of held requests are a thread each
    server = ModelServer()
    temporary = file.with_suffix(".tmp")
    temporary.write_text(str(server.port))
    temporary.replace(file)  # atomic: a reader never sees half of it
    server.serve()


if __name__ == "__main__":
    main()
