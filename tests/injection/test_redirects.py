"""Signing in, entering by a link and signing out lead nowhere but to pages of this site."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from django.test import Client

from interfaces.http.sign_in import issue
from sessions_app.models import Allowance
from tests.admin.conftest import fast_passwords
from tests.conftest import new_person
from tests.injection.corpus import ELSEWHERE, RAN

__all__ = ["fast_passwords"]
pytestmark = [pytest.mark.django_db, pytest.mark.rule("10.5")]
HERE = "127.0.0.1"
NEXT = (
    f"https://{ELSEWHERE}/",
    f"//{ELSEWHERE}/",
    f"///{ELSEWHERE}/",
    f"/\\{ELSEWHERE}/",
    f"https:/\\{ELSEWHERE}/",
    f"\t//{ELSEWHERE}/",
    f"/\t/{ELSEWHERE}/",
    f"http://127.0.0.1@{ELSEWHERE}/",
    f"javascript:{RAN}=1",
    f"JavaScript\t:{RAN}=1",
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
            pages = client.get(address, {"next": given}), client.get(f"/{given}"), client.get(f"//{given}")
            for page in pages:
                assert is_here(page.headers.get("Location", "")), (address, page.headers)
                assert f'href="{given}' not in page.content.decode()
            answer = client.post(f"{address}?next={given}", data)
            assert answer.status_code in {200, 302, 303}, (address, answer.status_code)
            assert ("_auth_user_id" in client.session) is not is_signed_in, address
            assert is_here(answer.headers.get("Location", "")), (address, answer.headers)
