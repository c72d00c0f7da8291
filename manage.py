#!/usr/bin/env python
"""Rondo's command line. A wheel installs this file as the command `rondo`."""

import sys
from pathlib import Path


def main() -> int:
    """Run one command; the exit code is 0 or 1 (2 for wrong usage)."""
    root = str(Path(__file__).resolve().parent)
    if root not in sys.path:  # in a wheel, the code lies in a folder of its own
        sys.path.insert(0, root)
    from config.command_line import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
