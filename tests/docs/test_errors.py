"""docs/errors.md and the page under /api/docs/errors/ explain every error code.

`RONDO_RECORD=1 pytest tests/docs/test_errors.py` writes the page again.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from interfaces.http.errors.codes import STATUS, code_of, type_of
from interfaces.http.schema.views import errors_as_markdown

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_page_is_up_to_date_and_has_an_anchor_for_each_code() -> None:
    if os.environ.get("RONDO_RECORD"):
        PAGE.write_text(errors_as_markdown())
    assert PAGE.read_text() == errors_as_markdown(), "write it again: RONDO_RECORD=1"
    assert sorted(re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE)) == sorted(STATUS)


@pytest.mark.django_db
def test_the_type_of_an_error_leads_everybody_to_its_code() -> None:
    refused = Client().get("/api/agents/")
    address, _, code = refused.json()["type"].partition("#")
    page = Client().get(address)
    assert page.status_code == 200
    assert page.headers["Content-Type"].startswith("text/html")
    assert f'id="{code}"' in page.content.decode()
    for each in STATUS:
        assert page.content.decode().count(f'id="{each}"') == 1, each
    assert Client().post(address).status_code == 405
    assert Client().get(f"{address}?x=1").status_code == 400


def test_the_documentation_may_be_elsewhere(settings: Any) -> None:
    settings.RONDO_DOCS_URL = "https://docs.example/errors"
    assert type_of(code_of(404)) == "https://docs.example/errors#not_found"
