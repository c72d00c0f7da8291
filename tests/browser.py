"""Pages in a real browser, on one web process and one worker for all tests of a run."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from sessions_app.models import Agent, Session
from sessions_app.models.turn import OPEN_STATES
from tests.api.conftest import Site, shared_of, shared_site
from tests.conftest import Person, new_person
from tests.fleet import until
from tests.model_server import ModelServer

# Debian's browser without windows takes a bit more than half of the time of the whole one
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser: apt install chromium-headless-shell (or chromium)"
)
IN_BROWSER = [pytest.mark.django_db(transaction=True), pytest.mark.processes, NEEDS_CHROMIUM]
ENVIRON = {"HTTPS": "0", "RONDO_PLUGINS": "tests.plugins"}  # browsers keep cookies of HTTPS to HTTPS
expect.set_options(timeout=20_000)  # a busy machine


def launch(playwright: Any) -> Browser:
    """A browser without a window."""
    options = ["--no-sandbox", "--disable-dev-shm-usage"]
    found: Browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
    return found


@dataclass(kw_only=True)
class Visitor:
    """A signed-in person with an agent on the model server. `complaints`: what their browser reported."""

    site: Site
    browser: Browser
    person: Person
    complaints: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    @property
    def model(self) -> ModelServer:
        return self.site.model

    def window(self, user: Any = None, **options: Any) -> Page:
        """A new window of the person's, or of another user; several do not share drafts."""
        context = self.browser.new_context(base_url=self.site.url, reduced_motion="reduce", **options)
        self.contexts.append(context)
        client = Client()
        client.force_login(user or self.person.user)
        cookie = client.cookies["sessionid"].value
        context.add_cookies([{"name": "sessionid", "value": cookie, "url": self.site.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.on("console", self._hear)
        return page

    def conversation(self, session: Session | None = None, **options: Any) -> Page:
        """A window that shows a session, by default a new one."""
        page = self.window(**options)
        page.goto(f"/sessions/{(session or self.person.session()).pk}/")
        return page

    def _hear(self, message: Any) -> None:
        # requests that are refused on purpose, or while the server is away, are reported as errors, too
        requests = ("Failed to load resource", "Response Status Error Code", "htmx:")
        if message.type == "error" and not message.text.startswith(requests):
            self.complaints.append(message.text)


def visit(site: Site, browser: Browser, **agent: Any) -> Iterator[Visitor]:
    """A visitor with an agent; at the end every turn has ended and the browser has no complaints."""
    from sessions_app.models import Turn

    site.model.reset()
    visitor = Visitor(site=site, browser=browser, person=new_person("ada", model="openai-chat:test", **agent))
    yield visitor
    for context in visitor.contexts:
        context.close()
    site.model.release_all()
    until(lambda: not Turn.objects.filter(state__in=OPEN_STATES).exists(), 20, "every turn has ended")
    assert not visitor.complaints, visitor.complaints


def say(page: Page, text: str) -> None:
    """Write a message and send it."""
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")


def serious(page: Page) -> list[str]:
    """What axe calls serious or critical on the page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{page.url} {each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


def use_engine(person: Person, engine: str) -> None:
    """Switch the agent's engine."""
    Agent.objects.filter(pk=person.agent.pk).update(engine=engine)


@pytest.fixture
def served(request: pytest.FixtureRequest, django_db_setup: None) -> Site:
    """The shared web process and worker."""
    return shared_site(request, "served", **ENVIRON)


def _start_browser(stack: ExitStack) -> Browser:
    # Playwright's loop runs in this thread; the tests themselves are not asynchronous
    stack.enter_context(pytest.MonkeyPatch.context()).setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    browser = launch(stack.enter_context(sync_playwright()))
    stack.callback(browser.close)
    # Django has other connections while its loop runs; left open, the tests of the next browser would use them
    stack.callback(connections.close_all)
    return browser


@pytest.fixture
def browser(request: pytest.FixtureRequest) -> Browser:
    """The shared browser."""
    found: Browser = shared_of(request).get("browser", _start_browser)
    return found


@pytest.fixture
def visitor(transactional_db: None, served: Site, browser: Browser) -> Iterator[Visitor]:
    yield from visit(served, browser)


@pytest.fixture
def beat(served: Site) -> Iterator[None]:
    """A beat for one test."""
    started = served.fleet.beat()
    yield
    started.kill()
