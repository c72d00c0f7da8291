"""A page of another origin hears a session by docs/api.md, with a ticket for each connection, in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from sessions_app.models import Event, StreamTicket
from sessions_app.queue.receive import MessageInput, receive
from tests.api.conftest import serve
from tests.api.test_clients import code_of
from tests.browser import IN_BROWSER, Visitor, visit
from tests.fleet import until
from tests.proxy import Proxy
from tests.sessions_app.deliveries.receivers import http_receiver
from tests.talk import ended
from tests.tokens import token_of

pytestmark = [*IN_BROWSER, pytest.mark.full, pytest.mark.rule("9.2")]
START = """([server, token, session]) => {
  window.heard = [];
  listen(server, token, session, (each) => heard.push(each));
}"""


@pytest.fixture
def origin() -> Iterator[str]:
    """Another site, whose pages are empty but for a word."""
    with http_receiver() as receiver:
        yield receiver.url


@pytest.fixture
def visitor(transactional_db: None, origin: str, browser: Browser, tmp_path: Path) -> Iterator[Visitor]:
    """On a site whose API the pages of the other site may use."""
    with contextmanager(serve)(tmp_path, RONDO_CORS_ORIGINS=origin) as site:
        yield from visit(site, browser)


def test_each_connection_of_a_foreign_page_takes_a_ticket_and_goes_on(visitor: Visitor, origin: str) -> None:
    session, token = visitor.person.session(), token_of(visitor.person.user)
    proxy = Proxy(visitor.site.url)
    page = visitor.browser.new_page()

    def ids() -> list[str]:
        return [each["event_id"] for each in page.evaluate("heard")]

    def stored() -> list[str]:
        rows = Event.objects.filter(session=session, type__in=["message", "turn_end"])
        return [f"{row.xid}-{row.pk}" for row in rows.order_by("xid", "pk")]

    def hears_all_of(text: str) -> None:
        turn = receive(session.pk, MessageInput(content=text))
        until(lambda: ended(turn) and ids() == stored())

    try:
        page.goto(origin)
        page.add_script_tag(content=code_of("Read events on a page of another site", "js"))
        with page.expect_response(lambda answer: "/events/?ticket=" in answer.url and answer.ok):
            page.evaluate(START, [proxy.url, token, str(session.pk)])
        hears_all_of("one")
        for text in ("two", "three"):
            assert proxy.cut() >= 1
            hears_all_of(text)
        assert len(ids()) == 9
        assert not StreamTicket.objects.exists(), "each was used"
    finally:
        page.close()
        proxy.end()
