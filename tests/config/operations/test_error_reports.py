"""Errors reach a server that takes envelopes, without a text, a variable or a secret."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User

from sessions_app.queue.receive import MessageInput, receive
from tests.conftest import Person
from tests.fleet import Fleet, until
from tests.model_server import ModelServer
from tests.talk import ended

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def envelopes() -> Iterator[tuple[str, list[bytes]]]:
    """The DSN of a server, and what it took."""
    pytest.importorskip("sentry_sdk", reason="the extra sentry is not installed")
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://public@127.0.0.1:{server.server_address[1]}/1", taken
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.mark.full
def test_the_error_of_a_tool_is_reported_by_its_class_and_ids_alone(
    envelopes: tuple[str, list[bytes]], fleet: Fleet, model_server: ModelServer, person_with_server: Person
) -> None:
    dsn, taken = envelopes
    User.objects.filter(pk=person_with_server.user.pk).update(username="lovelace")  # "ada" may be in an id
    worker = fleet.worker(RONDO_SENTRY_DSN=dsn)
    session = person_with_server.session()
    turn = receive(session.pk, MessageInput(content='use tool break with {"name": "told-in-private"}'))
    until(lambda: ended(turn))
    until(lambda: taken, what="a report")
    assert worker.stop() == 0
    [event] = [json.loads(each.splitlines()[2]) for each in taken if b'"type":"event"' in each]
    assert event["logentry"]["message"] == "tool_failed"
    assert (event["tags"]["session"], event["tags"]["turn"]) == (str(session.pk), str(turn.pk))
    [raised] = event["exception"]["values"]
    assert (raised["type"], raised["stacktrace"]["frames"][-1]["function"]) == ("RuntimeError", "_break")
    sent = b"".join(taken)
    for secret in (
        b"secret-from-a-tool",
        b"told-in-private",
        b"test-key",
        b"lovelace",
        b"vars",
        b"context_line",
    ):
        assert secret not in sent, secret
