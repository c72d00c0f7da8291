"""A visitor of the pages, with processes that serve the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.api.conftest import Site
from tests.browser import Visitor, launch, serve, visit


@pytest.fixture(scope="module")
def served(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from serve(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Playwright's loop runs in this thread; the tests themselves are not asynchronous
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        found = launch(playwright)
        yield found
        found.close()


@pytest.fixture
def visitor(transactional_db: None, served: Site, browser: Browser) -> Iterator[Visitor]:
    yield from visit(served, browser)
