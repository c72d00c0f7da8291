"""Pages in a real browser, on one web process and one worker for all tests of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from sessions_app.models import Agent, Session, Worker
from sessions_app.models.turn import OPEN_STATES
from tests.api.conftest import Site, serve
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


@dataclass(kw_only=True, eq=False)  # a plugin is hashed
class Shared:
    """A site and a browser for test after test. Each ends before a test that does not use it.

    The worker would take the turns of such a test, and Playwright's event loop runs in the thread of the tests.
    """

    site: Site | None = None
    browser: Browser | None = None
    _site_ends: ExitStack = field(default_factory=ExitStack)
    _browser_ends: ExitStack = field(default_factory=ExitStack)

    def start_site(self, folder: Path, database: Any) -> Site:
        """A web process and a worker. `database`: what lets this process use it between two tests."""

        def forget_the_worker() -> None:  # it outlived the last test's reset and may have registered again
            with database.unblock():
                Worker.objects.all().delete()

        self._site_ends.callback(forget_the_worker)
        self.site = self._site_ends.enter_context(contextmanager(serve)(folder, **ENVIRON))
        return self.site

    def start_browser(self) -> Browser:
        # Playwright's loop runs in this thread; the tests themselves are not asynchronous
        patch = self._browser_ends.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        self.browser = launch(self._browser_ends.enter_context(sync_playwright()))
        self._browser_ends.callback(self.browser.close)
        # Django has other connections while its loop runs; left open, the tests of the next browser would use them
        self._browser_ends.callback(connections.close_all)
        return self.browser

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """This test's own fixtures have ended."""
        needed = getattr(nextitem, "fixturenames", ())
        if "served" not in needed:
            self._site_ends.close()
            self.site = None
        if "browser" not in needed:
            self._browser_ends.close()
            self.browser = None

    def end(self) -> None:
        """After a run that stopped early, too."""
        self.pytest_runtest_teardown(None)


def _shared(request: pytest.FixtureRequest) -> Shared:
    """That of this run."""
    plugins = request.config.pluginmanager
    found = plugins.get_plugin(Shared.__name__)
    if not isinstance(found, Shared):
        found = Shared()
        plugins.register(found, Shared.__name__)
        request.session.addfinalizer(found.end)  # before the database goes
    return found


@pytest.fixture
def served(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Site:
    """The shared web process and worker."""
    shared = _shared(request)
    return shared.site or shared.start_site(tmp_path_factory.mktemp("web"), django_db_blocker)


@pytest.fixture
def browser(request: pytest.FixtureRequest) -> Browser:
    """The shared browser."""
    shared = _shared(request)
    return shared.browser or shared.start_browser()


@pytest.fixture
def visitor(transactional_db: None, served: Site, browser: Browser) -> Iterator[Visitor]:
    yield from visit(served, browser)


@pytest.fixture
def beat(served: Site) -> Iterator[None]:
    """A beat for one test."""
    started = served.fleet.beat()
    yield
    started.kill()
