"""What dear requests are made of, and what one costs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from sessions_app.api.strict_json import DEEPEST

DEAREST = 0.2  # seconds of processor
LONGEST_REFUSAL = 100_000  # bytes
TRIES = 4  # of one that seems too dear: another process may have been at work


def many(item: Any) -> Callable[[int, int], Any]:
    """A list of as many of them as a body of so many bytes and values holds."""

    def made(size: int, values: int) -> Any:
        each = len(json.dumps(item)) + 2
        return [item] * min(size // each, values)

    return made


def many_keys(size: int, values: int) -> Any:
    return {f"{number:x}": 0 for number in range(min(size // 12, values))}


def long_keys(size: int, _values: int) -> Any:
    return {str(number) * (size // 60): 0 for number in range(10, 60, 2)}


def nested(_size: int, values: int) -> Any:
    """As deep as may be, as often as may be."""
    deep: Any = []
    for _ in range(DEEPEST - 8):
        deep = [deep]
    return [deep] * (values // (DEEPEST - 6))


WORST: dict[str, Callable[[int, int], Any]] = {
    "numbers": many(1),
    "texts": many(""),
    "objects": many({}),
    "nested lists": nested,
    "keys": many_keys,
    "long keys": long_keys,
    "a long number": lambda _size, _values: 10**99,
    "letters": lambda size, _values: "x" * size,
    "spaces": lambda size, _values: " " * size + "x",
    "signs": lambda size, _values: "a:[]{},- " * (size // 9),
    "others": lambda size, _values: "ü€\U0001f600" * (size // 24),
    "a text with a NUL": lambda size, _values: "x" * size + "\0",
}


def cost(send: Callable[[], Any], most: float) -> tuple[float, Any]:
    """Seconds of processor, the least of a few tries where one was dear; and the last answer."""
    least, answer = float("inf"), None
    for _ in range(TRIES):
        started = time.process_time()
        answer = send()
        least = min(least, time.process_time() - started)
        if least < most / 2:
            break
    return least, answer


def faults(what: str, send: Callable[[], Any], most: float = DEAREST) -> list[str]:
    """What is wrong with the cost or the answer of a request."""
    seconds, answer = cost(send, most)
    long = answer.status_code >= 400 and len(answer.content) > LONGEST_REFUSAL
    if seconds < most and not long and answer.status_code < 500:
        return []
    return [f"{what}: {seconds:.2f} s, {answer.status_code}, {len(answer.content)} bytes"]
