class SetupError(Exception):
    """The system cannot start here. The text is one line: what is wrong and what to do about it."""


class StopRequested(Exception):
    """Ctrl-C or SIGTERM arrived while something was being waited for."""
