class SetupError(Exception):
    """The system cannot start. The text is one line: what is wrong and what to do."""


class StopRequested(Exception):
    """Ctrl-C or SIGTERM arrived during a wait."""
