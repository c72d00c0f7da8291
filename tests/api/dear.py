"""What dear requests are made of, and what one costs."""

import json
from collections.abc import Callable
from typing import Any

from interfaces.http.strict_json import DEEPEST
from tests.yardstick import processor_seconds, yardstick

DEAREST = 6.0  # times the processor time of `yardstick`, see tests/yardstick.py
CHEAP = 0.1  # seconds of processor that are not compared with the yardstick
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
    """The cost in yardsticks, the least of a few tries if one was dear; and the last answer."""
    least, answers = float("inf"), []
    for _ in range(TRIES):
        seconds = processor_seconds(lambda: answers.append(send()))
        least = min(least, 0.0 if seconds < CHEAP else seconds / processor_seconds(yardstick))
        if least < most / 2:
            break
    return least, answers[-1]


def faults(what: str, send: Callable[[], Any], most: float = DEAREST) -> list[str]:
    """What is wrong with the cost or the answer of a request."""
    times, answer = cost(send, most)
    long = answer.status_code >= 400 and len(answer.content) > LONGEST_REFUSAL
    if times < most and not long and answer.status_code < 500:
        return []
    return [f"{what}: {times:.1f} times the yardstick, {answer.status_code}, {len(answer.content)} bytes"]
