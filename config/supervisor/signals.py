"""Signals are taken at chosen points only, so none arrives between starting a child and remembering it."""

import signal

from config.supervisor.errors import StopRequested

STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_WAITED = STOP | {signal.SIGCHLD}


def block() -> None:
    """From here on `stop_asked` and `pause` are the only places that notice a signal."""
    for number in _WAITED:
        # What our parent ignores (a shell does so for background jobs) would be dropped before we see it.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)


def stop_asked(seconds: float) -> bool:
    """Sleep at most `seconds`, less when a child ends; True if we were asked to stop."""
    arrived = signal.sigtimedwait(_WAITED, seconds)
    return arrived is not None and arrived.si_signo in STOP


def pause(seconds: float) -> None:
    """Sleep as above. Raises StopRequested."""
    if stop_asked(seconds):
        raise StopRequested
