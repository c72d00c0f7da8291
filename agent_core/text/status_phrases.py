"""Reason phrases of HTTP statuses, the same on every Python."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

# Python has these words of RFC 9110 from 3.13 on, and older ones before
_RFC_9110: Final = {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}


def status_phrase(status: int) -> str:
    """The phrase of a status, such as `Not Found` of 404. ValueError for a status that Python does not know."""
    return _RFC_9110.get(status) or HTTPStatus(status).phrase
