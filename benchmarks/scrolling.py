"""How smoothly a long conversation scrolls: the frames while earlier messages are loaded, and among all of them.

Wheel events move the page. Chromium has no window and no graphics card here, so that the processor paints.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

from benchmarks.report import Figure

TARGET_FRAME, TARGET_TASK = 50.0, 100.0  # ms
LATE_FRAME, LONG_TASK = 50.0, 50.0  # ms
SPEED = 3_000  # pixels a second
PATIENCE = 600.0  # seconds until all messages are loaded
_RECORD = """() => {
  window.record = { frames: [], tasks: [], on: true };
  const { frames, tasks } = window.record;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) tasks.push(each.duration); })
    .observe({ type: "longtask" });
  let before = performance.now();
  const step = (now) => { frames.push(now - before); before = now; if (window.record.on) requestAnimationFrame(step); };
  requestAnimationFrame(step);
}"""
_RECORDED = "() => { const all = window.record; all.on = false; return [all.frames.slice(2), all.tasks]; }"
_LOADED = """() => [document.querySelectorAll(".entry").length, document.querySelector(".older") === null,
  document.getElementById("scroll").scrollTop]"""
_CODE = "```python\ndef area(width, height):\n    return width * height  # in square metres\n\n\n"
_ROWS = "\n".join(f"| row {n} | {n * n} | some words about it |" for n in range(12))
_TEXTS = (
    "Some **words** of an answer, with `code` and a [link](https://example.com).\n\n- one\n- two",
    _CODE + "\n".join(f"print(area({n}, {n + 1}))" for n in range(12)) + "\n```\n\nIt prints twelve numbers.",
    f"| name | number | remark |\n|---|---|---|\n{_ROWS}",
    "\n\n".join("A sentence of a long answer that goes on for a while. " * 6 for _ in range(8)),
)


@dataclass(frozen=True, kw_only=True)
class Smoothness:
    """Milliseconds of each frame and of each task above 50 ms."""

    frames: list[float]
    tasks: list[float]

    @property
    def p95(self) -> float:
        """The frame time that 95 % of the frames do not exceed."""
        return sorted(self.frames)[len(self.frames) * 95 // 100]

    @property
    def longest(self) -> float:
        """The longest task; 0 if none took more than 50 ms."""
        return max(self.tasks, default=0.0)

    @property
    def note(self) -> str:
        """The other figures in words."""
        late = sum(frame > LATE_FRAME for frame in self.frames) / len(self.frames)
        blocked = sum(task - LONG_TASK for task in self.tasks)
        return (
            f"median {statistics.median(self.frames):.0f} ms, {late:.1%} of {len(self.frames):,} frames above "
            f"{LATE_FRAME:.0f} ms, {blocked:.0f} ms blocked"
        )


def fill(session: Any, count: int) -> None:
    """Store a history of short and long messages, tables and code."""
    from sessions_app.models import Message, Session

    Message.objects.bulk_create(
        Message(
            session=session,
            seq=n,
            role="user" if n % 2 else "assistant",
            content=f"{n}: a short question" if n % 2 else f"{n}:\n\n{_TEXTS[n // 2 % len(_TEXTS)]}",
        )
        for n in range(1, count + 1)
    )
    Session.objects.filter(pk=session.pk).update(last_seq=count)


def scroll(page: Page, address: str, count: int, pixels: int) -> Iterator[Figure]:
    """Load all `count` messages by scrolling up, then scroll down and up by so many pixels."""
    page.goto(address)
    page.locator(".entry").last.wait_for()
    page.locator("#scroll").hover()
    page.evaluate(_RECORD)
    loaded = _load(page)
    yield from _figures(f"loading {count:,} messages by scrolling", _recorded(page), f"; {loaded:,} entries")
    page.evaluate(_RECORD)
    for distance in (-pixels, pixels):  # down, then up
        _gesture(page, distance)
    size = page.evaluate("() => document.getElementsByTagName('*').length")
    yield from _figures(f"scrolling through {count:,} messages", _recorded(page), f"; {size:,} elements")
    page.context.close()


def _load(page: Page) -> int:
    """Scroll up until the first message is there; returns the number of entries in the page."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        entries, is_whole, at = page.evaluate(_LOADED)
        if is_whole and at == 0:
            return int(entries)
        page.mouse.wheel(0, -1_500)
    raise TimeoutError(f"the first message was not reached within {PATIENCE:.0f} s")


def _gesture(page: Page, distance: int) -> None:
    """Turn the wheel; positive distances scroll up."""
    box = page.locator("#scroll").bounding_box() or {"x": 0, "y": 0, "width": 0, "height": 0}
    client = page.context.new_cdp_session(page)
    client.send(
        "Input.synthesizeScrollGesture",
        {
            "x": box["x"] + box["width"] / 2,
            "y": box["y"] + box["height"] / 2,
            "yDistance": distance,
            "speed": SPEED,
            "gestureSourceType": "mouse",
        },
    )
    client.detach()


def _recorded(page: Page) -> Smoothness:
    frames, tasks = page.evaluate(_RECORDED)
    return Smoothness(frames=frames, tasks=tasks)


def _figures(name: str, found: Smoothness, more: str) -> Iterator[Figure]:
    yield Figure(
        name=f"{name}, p95 frame", value=found.p95, unit="ms", at_most=TARGET_FRAME, note=found.note + more
    )
    yield Figure(
        name=f"{name}, longest task",
        value=found.longest,
        unit="ms",
        at_most=TARGET_TASK,
        note="0: none above 50 ms",
    )
