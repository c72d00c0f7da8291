"""Without a browser: no way in or out leads to another site, and the two guards of answers, each by itself."""

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from django.test import Client

from interfaces.http.sign_in import issue
from interfaces.web.rendering import render, sanitize
from sessions_app.models import Allowance
from tests.admin.conftest import fast_passwords
from tests.conftest import new_person
from tests.injection.corpus import BLOCKS, ELSEWHERE, LINES, RAN

__all__ = ["fast_passwords"]
pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.5")]
HERE = "127.0.0.1"
NEXT = (
    f"https://{ELSEWHERE}/",
    f"//{ELSEWHERE}/",
    f"/\\{ELSEWHERE}/",
    f"/\t/{ELSEWHERE}/",
    f"http://127.0.0.1@{ELSEWHERE}/",
    f"javascript:{RAN}=1",
    f"data:text/html,<script>{RAN}=1</script>",
)


def is_here(location: str) -> bool:
    """Whether a browser stays on this site."""
    seen = re.sub(r"[\t\r\n]", "", location).replace("\\", "/").strip()
    at = urlsplit(seen)
    return at.scheme in {"", "http"} and at.netloc in {"", HERE} and not seen.startswith("//")


@pytest.mark.long("every way in and out")
def test_no_way_in_or_out_leads_to_another_site() -> None:
    person = new_person("ada")
    person.user.is_staff = person.user.is_superuser = True
    person.user.set_password("pw")
    person.user.save()
    for given in NEXT:
        Allowance.objects.all().delete()  # of signing in
        password = {"username": "ada", "password": "pw", "next": given}
        for address, is_signed_in, data in (
            ("/sign-in/", False, password),
            ("/admin/login/", False, password),
            (issue(person.user), False, {"next": given}),
            ("/sign-out/", True, {"next": given}),
            ("/admin/logout/", True, {"next": given}),
        ):
            client = Client(HTTP_HOST=HERE)
            if is_signed_in:
                client.force_login(person.user)
            pages = [client.get(address, {"next": given})]
            if address in {"/sign-in/", "/sign-out/"}:  # once for strangers, once for who is signed in
                pages += [client.get(f"/{given}"), client.get(f"//{given}")]
            for page in pages:
                assert is_here(page.headers.get("Location", "")), (address, page.headers)
                assert f'href="{given}' not in page.content.decode()
            answer = client.post(f"{address}?next={given}", data)
            assert answer.status_code in {200, 302, 303}, (address, answer.status_code)
            assert ("_auth_user_id" in client.session) is not is_signed_in, address
            assert is_here(answer.headers.get("Location", "")), (address, answer.headers)


ATTRIBUTES = {"href", "title", "rel", "target", "start", "class"}
FORBIDDEN = (
    '<form action="/account/tokens/"><input name="csrfmiddlewaretoken"><button formaction="/x">go</button></form>',
    '<a href="javascript:x" id="updater" name="csrfmiddlewaretoken" style="x" data-hx-get="/x">x</a>',
    '<div id="place" class="alert" hx-on:click="x" x-data="x" data-copy>x</div><p hx-get="/x">x</p>',
    '<svg><use href="#x"/></svg><math></math><template></template><object></object><embed><link><base><meta>',
    '<img src="/x"><video src="/x"></video><iframe src="/x"></iframe><style>x</style><script>x</script>',
)


class Seen(HTMLParser):
    """Collects the tags and attributes of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name == "href"]


def seen(html: str) -> Seen:
    found = Seen()
    found.feed(html)
    return found


def test_the_sanitiser_keeps_no_more_than_markdown_can_make() -> None:
    for html in (*LINES, *BLOCKS, *FORBIDDEN):
        found = seen(sanitize(html))
        assert found.tags <= {"p", "a", "div"}, html
        assert found.attributes <= ATTRIBUTES, html
        assert "class" not in found.attributes, html
        for link in found.links:
            assert ":" not in link or link.startswith(("http://", "https://", "mailto:")), html


def test_the_parser_makes_no_tag_of_html_in_a_text() -> None:
    for text in LINES:
        assert seen(render(text)).tags <= {"p", "a"}, text
