"""The address that `up` prints first."""

from __future__ import annotations

import pytest
from django.test import Client

from sessions_app.models import Session, SessionType
from tests.api.conftest import Caller

pytestmark = pytest.mark.django_db


def test_the_front_page_asks_strangers_to_sign_in(nobody: Client, caplog: pytest.LogCaptureFixture) -> None:
    response = nobody.get("/")
    assert (response.status_code, response.headers["Location"]) == (302, "/sign-in/?next=/")
    assert nobody.get(response.headers["Location"]).status_code == 200
    assert not caplog.records


def test_the_front_page_leads_to_the_latest_conversation(ada: Caller) -> None:
    ada.client.force_login(ada.user)
    session = ada.session()
    assert ada.client.get("/").headers["Location"] == f"/sessions/{session}/"


def test_a_conversation_can_be_begun_from_every_page(ada: Caller) -> None:
    ada.client.force_login(ada.user)
    Session.objects.update(type=SessionType.HEARTBEAT)  # which the list does not show: the welcome page
    for address in ("/", "/account/"):
        page = ada.client.get(address)
        assert page.status_code == 200
        assert b'<input type="hidden" name="agent" value="demo">' in page.content, address
