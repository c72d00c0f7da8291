"""The HTTP client of the tour, for JSON; it uses only the standard library."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from config.installation import UP

LOOPBACK = {"127.0.0.1", "localhost", "::1"}
REQUEST_SECONDS = 75.0  # longer than a message that is sent with `Prefer: wait=60`


class TourError(Exception):
    """The tour cannot start or continue. The text is one line."""


@dataclass(frozen=True, kw_only=True)
class ApiAnswer:
    """Status and JSON body of a response; {} without a body."""

    status: int
    body: Any

    def __str__(self) -> str:
        """The status and the text of the problem."""
        known = self.body if isinstance(self.body, dict) else {}
        said = known.get("detail") or known.get("code") or json.dumps(self.body)[:200]
        return f"{self.status} {said}"


class Server:
    """A running Rondo server, used by one user."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        host = urllib.parse.urlsplit(self.url).hostname
        # never use a configured proxy for this machine
        proxies = [urllib.request.ProxyHandler({})] if host in LOOPBACK else []
        self._opener = urllib.request.build_opener(*proxies)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> ApiAnswer:
        """Send a request and return any response. `headers`: write `_` for `-`. Raises TourError without a response."""
        request = urllib.request.Request(  # noqa: S310 - the user chose the address
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Token {self._token}",
                "Accept": "application/json",
                **({} if body is None else {"Content-Type": "application/json"}),
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )
        try:
            with self._opener.open(request, timeout=REQUEST_SECONDS) as response:
                return ApiAnswer(status=response.status, body=_json(response.read()))
        except urllib.error.HTTPError as error:
            return ApiAnswer(status=error.code, body=_json(error.read()))
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise TourError(f"no server answers at {self.url} ({reason}); start it with `{UP}`") from None

    def get(self, path: str) -> Any:
        """The body of a GET. Raises TourError unless the status is 200."""
        return self._expect(200, "GET", path, None)

    def create(self, path: str, body: dict[str, Any]) -> Any:
        """The body of a POST. Raises TourError unless the status is 201."""
        return self._expect(201, "POST", path, body)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """The body of a PATCH. Raises TourError unless the status is 200."""
        return self._expect(200, "PATCH", path, body)

    def every(self, path: str) -> Iterator[dict[str, Any]]:
        """All rows of a list, page by page."""
        following: str | None = path
        while following:
            page = self.get(following)
            yield from page["results"]
            following = _local(page["next"])

    def _expect(self, status: int, method: str, path: str, body: Any) -> Any:
        answer = self.ask(method, path, body)
        if answer.status != status:
            raise TourError(f"{method} {path} answered {answer} instead of {status}")
        return answer.body


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else {}
    except ValueError:
        return {"detail": " ".join(raw.decode(errors="replace").split())[:200]}


def _local(address: str | None) -> str | None:
    """Path and query of a page's URL: behind a proxy its host may differ."""
    if address is None:
        return None
    parts = urllib.parse.urlsplit(address)
    return f"{parts.path}?{parts.query}"
