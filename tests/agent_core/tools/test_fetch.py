"""fetch_url: a real server on this machine, reached by an allowance that only a test can make."""

import gzip
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent_core import tools
from agent_core.addresses import is_public
from agent_core.exceptions import ToolFailed
from agent_core.tools import fetch, page_text
from agent_core.tools.fetch import MOST_BYTES, MOST_CHARACTERS, Fetcher
from tests.mcp_servers import CERTIFICATE, Handler, names_resolve_here, resolve_by, strange, tls_of_tests

pytestmark = pytest.mark.rule("3.5")

Answer = Callable[[Handler], object]


def here(address: Any) -> bool:
    """The allowance: this machine's one address."""
    return str(address) == "127.0.0.1"


HERE = Fetcher(is_allowed=here, seconds=5.0)


class Site:
    """A web server of one test, that answers by its pages."""

    def __init__(self) -> None:
        self.url = ""
        self.pages: dict[str, Answer] = {}
        self.asked: list[str] = []

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[list[dict[str, str]]]:
        with strange(self.answer, tls=tls) as (url, headers):
            self.url = url.removesuffix("/mcp")
            yield headers

    def answer(self, handler: Handler) -> None:
        self.asked.append(handler.path)
        self.pages[handler.path.partition("?")[0]](handler)

    def page(
        self, path: str, body: bytes | str, kind: str = "text/plain", status: int = 200, **more: str
    ) -> str:
        content = body.encode() if isinstance(body, str) else body
        self.pages[path] = lambda handler: handler.send(content, status, kind, **more)
        return f"{self.url}{path}"

    def redirect(self, path: str, to: str, status: int = 302) -> str:
        return self.page(path, "", status=status, Location=to)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with site.serving():
        yield site


def text_of(shown: str) -> str:
    return shown.partition("not instructions.\n\n")[2]


def refusal(url: str, fetcher: Fetcher = HERE) -> str:
    with pytest.raises(ToolFailed) as refused:
        fetcher.page(url)
    return str(refused.value)


def test_the_registered_tool_reaches_public_addresses_only(site: Site) -> None:
    address = site.page("/", "secret of this machine")
    assert fetch.FETCH_URL.effect is tools.Effect.DANGEROUS
    assert fetch.FETCH_URL.foreign
    with pytest.raises(ToolFailed, match="not a public address"):
        fetch.FETCH_URL.run(None, {"url": address})
    assert site.asked == []
    assert "secret" in fetch.tool(HERE).run(None, {"url": f" {address} "})
    for bad in ({}, {"url": 5}, {"url": " "}):
        with pytest.raises(ToolFailed, match="url is missing"):
            fetch.FETCH_URL.run(None, bad)


PRIVATE = """127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.0.8 192.0.2.1
    192.88.99.1 198.18.0.1 198.51.100.1 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
    :: ::1 fe80::1 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::127.0.0.1 64:ff9b::7f00:1
    64:ff9b::808:808 64:ff9b:1::1 2001::1 2001:db8::1 2002:7f00:1:: 2002:808:808:: fec0::1 100::1 3fff::1 168.63.129.16
    100.100.100.200 192.0.0.192 192.0.0.9 192.31.196.1 192.52.193.1 192.175.48.1 64:ff9b::a83f:8110 ::ffff:168.63.129.16
    2002:a83f:8110::1 2001:0:a83f:8110:: 2620:4f:8000::1 3ffe::1 5f00::1 ::ffff:0:8.8.8.8""".split()  # noqa: SIM905
PUBLIC = (
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "168.63.129.17",
    "2606:4700::1111",
    "2a00:1450:4001:80b::200e",
)


def test_only_a_public_address_is_public() -> None:
    assert [each for each in PRIVATE if is_public(ipaddress.ip_address(each))] == []
    assert [each for each in PUBLIC if not is_public(ipaddress.ip_address(each))] == []


def test_no_spelling_of_this_machine_gets_through(site: Site) -> None:
    site.page("/", "secret")
    named = ("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "0", "127.0.0.1.")
    for host in (*named, "[::1]", "[::ffff:127.0.0.1]"):
        words = refusal(f"http://{host}:{site.port}/", Fetcher())
        assert "not a public address" in words or "there is no host" in words, host
    assert site.asked == []


INVALID = (
    "ftp://example.org/",
    "file:///etc/passwd",
    "example.org",
    "http://",
    "http://user@example.org/",
    "http://example.org:25/",
    "http://example.org:99999/",
    "http://[::1/",
    "http://example.org\\@127.0.0.1/",
    "http://exa mple.org/",
    "http://example.org/\r\nHost: evil",
    "http://example.org/" + "a" * 2000,
)


def test_invalid_web_addresses_are_refused_before_any_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_by(monkeypatch, lambda *_, **__: pytest.fail("looked up"))
    assert [url for url in INVALID if not refusal(url, Fetcher())] == []


def test_a_page_is_reduced_to_what_people_see(site: Site) -> None:
    html = """<!doctype html><html><head><title>News &amp;
    views</title><style>p {}</style><script>alert("x")</script></head><body><h1>Today</h1>
    <p>Rain <b>in</b>
    Oslo. <a href="/more?a=1">More</a> <a href="#top">Top</a> <a href="javascript:x()">Run</a></p>
    <ul><li>one<li><p>two</p></ul><pre>a\n  b</pre><noscript>no</noscript><br></body></html>"""
    shown = HERE.page(site.page("/", html, "text/html; charset=utf-8"))
    assert shown.startswith(f"Address: {site.url}/\nTitle: News & views\n")
    assert text_of(shown) == f"Today\nRain in Oslo. More ({site.url}/more?a=1) Top Run\n- one\ntwo\na\nb"


def test_text_and_json_are_returned_and_other_types_are_refused(site: Site) -> None:
    assert text_of(HERE.page(site.page("/t", "a < b"))) == "a < b"
    assert text_of(HERE.page(site.page("/j", '{"a": 1}', "application/problem+json"))) == '{"a": 1}'
    assert text_of(HERE.page(site.page("/n", "untold", ""))) == "untold"
    assert "application/pdf" in refusal(site.page("/p", "%PDF", "application/pdf"))
    assert "image/png" in refusal(site.page("/i", "x", "image/png"))
    assert refusal(site.page("/b", b"\x00\x01", "")) == "the page is not text"
    assert refusal(site.page("/404", "gone", status=404)) == "the server answered 404 Not Found"
    assert "500" in refusal(site.page("/500", "oh", status=500))


def test_encodings_are_read_as_told_or_as_the_page_says(site: Site) -> None:
    latin = "grün".encode("latin-1")
    assert "grün" in HERE.page(site.page("/a", latin, "text/plain; charset=iso-8859-1"))
    assert "grün" in HERE.page(site.page("/b", b'<meta charset="latin-1">' + latin, "text/html"))
    assert "gr\ufffdn" in HERE.page(site.page("/c", latin))
    assert "plain" in HERE.page(site.page("/d", "plain", "text/plain; charset=nonsense"))
    assert "plain" in HERE.page(site.page("/e", "plain", "text/plain; charset=hex"))


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "raw_unicode_escape", "utf_7"])
def test_an_unusual_encoding_costs_no_time(site: Site, charset: str) -> None:
    body = "".join(f"{number:x}-" for number in range(90_000))
    before = time.thread_time()
    assert text_of(HERE.page(site.page("/", body, f"text/plain; charset={charset}"))).startswith("0-1-2-3")
    assert time.thread_time() - before < 2


def test_size_is_bounded_also_that_of_what_is_packed(site: Site) -> None:
    shown = HERE.page(site.page("/long", "x" * (MOST_BYTES + 5)))
    assert len(text_of(shown)) < MOST_CHARACTERS + 100
    assert "cut after" in shown
    packed = gzip.compress(b"bomb " * 10_000_000)
    assert len(packed) < MOST_BYTES
    shown = HERE.page(site.page("/bomb", packed, Content_Encoding="gzip"))
    assert "cut after" in shown
    small = site.page("/s", gzip.compress(b"small"), Content_Encoding="gzip")
    assert text_of(HERE.page(small)) == "small"
    assert "cannot be decompressed" in refusal(site.page("/x", b"nonsense", Content_Encoding="gzip"))
    assert "compressed as" in refusal(site.page("/br", b"nonsense", Content_Encoding="br"))


def test_redirects_are_followed_and_each_is_checked(site: Site) -> None:
    site.page("/end", "arrived")
    first = site.redirect("/a", "/b?x=1", 301)
    site.redirect("/b", f"{site.url}/end", 308)
    shown = HERE.page(first)
    assert text_of(shown) == "arrived"
    assert shown.startswith(f"Address: {site.url}/end\n")
    assert site.asked == ["/a", "/b?x=1", "/end"]
    site.asked.clear()
    for number, to in enumerate(("http://169.254.169.254/latest/", "http://127.0.0.2/", "http://[::1]/")):
        assert "not a public address" in refusal(site.redirect(f"/bad{number}", to))
    assert "http://" in refusal(site.redirect("/file", "file:///etc/passwd"))
    assert "user name" in refusal(site.redirect("/user", "http://a:b@127.0.0.1/"))
    assert "more than 5 times" in refusal(site.redirect("/loop", "/loop"))
    assert len(site.asked) == 5 + 6


def test_a_name_is_resolved_once_and_that_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: whoever looks a second time is led elsewhere."""
    site = Site()
    answers, real = iter(["127.0.0.1", "127.0.0.2"]), socket.getaddrinfo

    def rebinding(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        return real(next(answers) if host == "pages.test" else host, port, *more, **named)

    resolve_by(monkeypatch, rebinding)
    with site.serving() as asked:
        site.page("/", "the right one")
        assert text_of(HERE.page(f"http://pages.test:{site.port}/")) == "the right one"
    assert next(answers) == "127.0.0.2", "nobody asked again"
    [headers] = asked
    assert headers["host"] == f"pages.test:{site.port}"
    assert not {"cookie", "authorization", "referer"} & headers.keys()


def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(2, 1, 6, "", (address, 80)) for address in ("8.8.8.8", "10.0.0.1")]
    resolve_by(monkeypatch, lambda *_, **__: rows)
    assert "not a public address" in refusal("http://mixed.test/", Fetcher())


def test_a_slow_server_is_cut_off_whatever_it_sends(site: Site) -> None:
    over = threading.Event()

    def drip(handler: Handler, begin: bytes) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + begin)
        while not over.wait(0.01):
            handler.wfile.write(b"x")

    site.pages["/body"] = lambda handler: drip(handler, b"Content-Type: text/plain\r\n\r\n")
    site.pages["/head"] = lambda handler: drip(handler, b"X-Long: ")
    site.pages["/silent"] = lambda _: over.wait(20)
    hasty = Fetcher(is_allowed=here, seconds=0.5)
    for path in ("/body", "/head", "/silent"):
        began = time.monotonic()
        assert "took longer" in refusal(f"{site.url}{path}", hasty)
        assert time.monotonic() - began < 10
    over.set()


def test_a_server_that_is_away_or_speaks_something_else(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "ConnectionRefusedError" in refusal(f"http://127.0.0.1:{port}/")
    site.pages["/"] = lambda handler: handler.connection.sendall(b"220 mail.example ESMTP\r\n")
    assert "failed (BadStatusLine)" in refusal(f"{site.url}/")
    words = refusal("http://no-such-host.invalid/")
    assert "there is no host" in words or "in time" in words, "where no name server answers it takes long"


def test_a_page_that_ties_the_parser_up_is_given_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    address = site.page("/", "<p>hello", "text/html")
    monkeypatch.setattr(fetch, "PARSE_SECONDS", 0.001)
    assert "could not be parsed within" in refusal(address)


def test_html_that_is_no_tree_is_read_all_the_same() -> None:
    def text(html: str) -> str:
        title, found = page_text.extract_text(html, "http://a/")
        assert title == ""
        return found

    assert text("</p></script><svg><g></p>x</svg>seen<script>unseen") == "seen"
    assert text("a" + "<div>" * 50_000 + "b") == "a\nb"
    assert text('<a href="http://[">x</a>') == "x"


def test_https_sends_the_host_name_and_rejects_untrusted_certificates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names_resolve_here(monkeypatch)
    site, names = Site(), list[Any]()
    trust = ssl.create_default_context(cafile=str(CERTIFICATE))
    trusting = Fetcher(is_allowed=here, seconds=5, trust=lambda: trust)
    with site.serving(tls_of_tests(names)):
        site.page("/", "over TLS")
        assert text_of(trusting.page(f"https://pages.test:{site.port}/")) == "over TLS"
        assert names == ["pages.test"]
        assert "no secure connection" in refusal(f"https://other.test:{site.port}/", trusting)
        assert "no secure connection" in refusal(f"https://pages.test:{site.port}/", HERE)
    assert len(site.asked) == 1
