"""The page of a conversation in a real browser: the first piece of an answer, a long conversation, its bytes.

The model writes the time at which it gives its first piece into that piece, so that the page can compare it with the
time at which the piece is drawn. Both are on one machine and have one clock.
"""

from __future__ import annotations

import re
import shutil
import statistics
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks import data, fleet, panel, scrolling
from benchmarks.cost import p99
from benchmarks.plugin import STREAMING
from benchmarks.report import Figure
from benchmarks.servers import Servers
from benchmarks.sizes import Sizes

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage"]
TARGET_PIECE, TARGET_OPEN, TARGET_BYTES = 50.0, 1_000.0, 100.0  # ms, ms, kB
OPENED = 7  # times that the long conversation is opened
# resolves with the milliseconds from the model's first piece to the frame after it was put into the page
_WATCH = """() => new Promise((resolve) => {
  const place = document.getElementById("now");
  const seen = new MutationObserver(() => {
    const found = /At ([0-9.]+) ms/.exec(place.querySelector("#live .text")?.textContent ?? "");
    if (!found) return;
    seen.disconnect();
    requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now() - Number(found[1])));
  });
  seen.observe(place, { childList: true, subtree: true, characterData: true });
})"""
_OPENED = "() => performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"


def run(servers: Servers, sizes: Sizes, say: Callable[[str], None]) -> list[Figure]:
    """Measure all in one browser, then the panel of appointments. Without chromium there are no figures."""
    if CHROMIUM is None:
        say("skipped, because chromium is not installed (apt install chromium)")
        return []
    agent = data.person(STREAMING)
    short, long = data.sessions(agent, 2)
    scrolling.fill(long, sizes.messages_shown)
    key = _sign_in(agent.owner)
    with (
        fleet.worker(servers.folder, "pages", sizes.concurrency),
        fleet.web(servers.folder, HTTPS="0") as port,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        url = f"http://127.0.0.1:{port}"
        taken = _pieces(_window(browser, url, key), f"/sessions/{short.pk}/", sizes.answers)
        say(f"first piece: median {statistics.median(taken):.0f} ms")
        opened = [_open(_window(browser, url, key), f"/sessions/{long.pk}/") for _ in range(OPENED)]
        say(f"{sizes.messages_shown:,} messages: median {statistics.median(opened):.0f} ms")
        scrolled = [
            *scrolling.scroll(
                _window(browser, url, key), f"/sessions/{long.pk}/", sizes.messages_shown, sizes.pixels
            )
        ]
        say(f"scrolling: {scrolled[-2].value:.0f} ms, longest task {scrolled[-1].value:.0f} ms")
        size = _bytes(_window(browser, url, key), f"/sessions/{short.pk}/")
        browser.close()
    return [*_figures(taken, opened, size, sizes), *scrolled, *panel.run(agent)]


def _figures(taken: list[float], opened: list[float], size: float, sizes: Sizes) -> list[Figure]:
    name, long = "first piece of an answer to the screen", f"page of {sizes.messages_shown:,} messages"
    return [
        Figure(
            name=name,
            value=statistics.median(taken),
            unit="ms",
            at_most=TARGET_PIECE,
            note=f"from the model, median of {len(taken)} answers",
        ),
        Figure(name=f"{name}, p99", value=p99(taken), unit="ms", note=f"the latest {max(taken):.0f} ms"),
        Figure(
            name=f"{long} is opened",
            value=statistics.median(opened),
            unit="ms",
            at_most=TARGET_OPEN,
            note=f"median of {len(opened)} new windows, to the end of its scripts",
        ),
        Figure(
            name="first page with its files",
            value=size,
            unit="kB",
            at_most=TARGET_BYTES,
            note="compressed, in a window with an empty cache",
        ),
    ]


def _sign_in(user: Any) -> str:
    """The key of a signed-in session."""
    from django.test import Client

    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


def _window(browser: Browser, url: str, key: str) -> Page:
    context = browser.new_context(base_url=url)
    context.add_cookies([{"name": "sessionid", "value": key, "url": url}])
    return context.new_page()


def _pieces(page: Page, address: str, count: int) -> list[float]:
    """Milliseconds from the first piece of each answer to the screen. The first answer warms up."""
    page.goto(address)
    page.locator("textarea").wait_for()
    taken: list[float] = []
    for number in range(count + 1):
        page.evaluate(f"() => {{ window.piece = ({_WATCH})(); }}")
        page.get_by_label("Message", exact=True).fill(f"Message {number}")
        page.keyboard.press("Enter")
        taken.append(float(page.evaluate("() => window.piece")))
        page.locator("#live").wait_for(state="detached")
    page.context.close()
    return taken[1:]


def _open(page: Page, address: str) -> float:
    page.goto(address)
    page.locator(".entry").last.wait_for()
    taken = float(page.evaluate(_OPENED))
    page.context.close()
    return taken


def _bytes(page: Page, address: str) -> float:
    """Kilobytes of the page with all files that it loads, as they were sent."""
    sizes: list[int] = []
    page.on("requestfinished", lambda request: sizes.append(_sent(request)))
    page.goto(address)
    page.wait_for_load_state("load")
    page.context.close()
    return sum(sizes) / 1_000


def _sent(request: Any) -> int:
    if re.search(r"/events/", request.url):
        return 0
    found = request.sizes()
    return int(found["responseBodySize"] + found["responseHeadersSize"])
