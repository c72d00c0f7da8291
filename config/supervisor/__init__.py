"""`manage.py up`: one process that starts, supervises and stops all processes of Rondo. It does not load Django.

Every child dies with this process, whatever kills it. The kernel ties the parent-death signal to the thread that
forked, so children are started from the main thread, and nothing here uses threads.
"""


class SetupError(Exception):
    """The system cannot start. The text is one line: what is wrong and what to do."""


class StopRequested(Exception):
    """Ctrl-C or SIGTERM arrived during a wait."""
