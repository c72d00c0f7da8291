"""Signals are handled at chosen points only, so that none arrives between starting a child and recording it."""

import signal

from config.supervisor.errors import StopRequested

STOP = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_WAITED = STOP | {signal.SIGCHLD}


def block() -> None:
    """Block signals; from now on only `stop_requested` and `pause` notice them."""
    for number in _WAITED:
        # a signal that our parent ignores (as a shell does for background jobs) would never reach us
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)


def stop_requested(seconds: float) -> bool:
    """Sleep up to `seconds`, or until a child ends. True if a signal asked us to stop."""
    arrived = signal.sigtimedwait(_WAITED, seconds)
    return arrived is not None and arrived.si_signo in STOP


def pause(seconds: float) -> None:
    """Sleep like `stop_requested`, but raise StopRequested."""
    if stop_requested(seconds):
        raise StopRequested
