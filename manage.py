#!/usr/bin/env python
"""Rondo's command line.

`up` runs without Django, because it provides the settings that Django requires; `tour`, because it is a client of a
running server.
"""

import os
import sys


def main() -> int:
    """Run one command; the exit code is 0 or 1 (2 for wrong usage)."""
    if sys.argv[1:2] == ["up"]:
        from config.supervisor.main import main as up

        return up(sys.argv[2:])
    if sys.argv[1:2] == ["tour"]:
        from config.tour.main import main as tour

        return tour(sys.argv[2:])
    if sys.argv[1:2] in ([], ["help"], ["--help"], ["-h"]):
        from config.env import set_placeholders

        set_placeholders(os.environ)  # Django lists our commands only if the settings load
    from config.supervisor.join import join_running

    join_running(os.environ)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
