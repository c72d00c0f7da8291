"""The address that `up` prints first."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from tests.api.conftest import Caller

pytestmark = pytest.mark.django_db


def test_the_front_page_leads_to_admin_docs_and_health(
    nobody: Client, ada: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    response = nobody.get("/")
    assert response.status_code == 200
    page = response.content.decode()
    links = re.findall(r'<a href="([^"]+)"', page)
    assert {"/admin/", "/api/docs/", "/readyz"} <= set(links)
    assert "//" not in page  # nothing from elsewhere
    assert not caplog.records
    ada.client.force_login(ada.user)
    for link in links:
        answer = ada.client.get(link, follow=True)
        assert answer.status_code == (503 if link == "/readyz" else 200), link  # no worker runs here


def test_the_front_page_takes_nothing(nobody: Client) -> None:
    assert nobody.post("/").status_code == 405
