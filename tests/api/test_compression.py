"""Pages and static files are compressed for clients that take it; nothing else is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from tests.api.conftest import Caller

pytestmark = pytest.mark.django_db
TAKES = {"Accept-Encoding": "gzip, deflate, br"}


def test_pages_are_compressed_for_those_who_take_it(ada: Caller) -> None:
    ada.client.force_login(ada.user)
    address = f"/sessions/{ada.session()}/"
    compressed = ada.client.get(address, headers=TAKES)
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert b"<title>" in gzip.decompress(compressed.content)
    assert "Accept-Encoding" in compressed.headers["Vary"]
    assert "Content-Encoding" not in ada.client.get(address).headers


def test_static_files_are_compressed_whole(client: Client) -> None:
    found = finders.find("django_htmx/htmx-2.min.js")
    assert isinstance(found, str)
    answer = client.get("/static/django_htmx/htmx-2.min.js", headers=TAKES)
    assert answer.headers["Content-Encoding"] == "gzip"
    sent = answer.getvalue()
    assert gzip.decompress(sent) == Path(found).read_bytes()
    assert len(sent) < 20_000


def test_the_api_is_sent_as_it_is(ada: Caller) -> None:
    answer = ada.client.get("/api/schema/", headers=TAKES)
    assert "Content-Encoding" not in answer.headers
    events = ada.client.get(
        f"/api/sessions/{ada.session()}/events/", headers=TAKES | {"Authorization": f"Token {ada.token}"}
    )
    assert events.headers["Content-Type"].startswith("text/event-stream")
    assert "Content-Encoding" not in events.headers
    events.close()
