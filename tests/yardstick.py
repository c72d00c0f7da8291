"""Work of a fixed size, so that costs are compared on whatever machine and beside whatever load."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def yardstick() -> None:
    """Work of a fixed size: a request's cost is a multiple of it."""
    total = 0
    for number in range(1_000_000):
        total += number


def processor_seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of this process for the work."""
    started = time.process_time()
    work()
    return time.process_time() - started


@contextmanager
def within(times: float) -> Iterator[None]:
    """The block costs at most so many yardsticks of processor time."""
    started = time.process_time()
    yield
    seconds = time.process_time() - started
    assert seconds < times * processor_seconds(yardstick)
