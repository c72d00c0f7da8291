"""One line per event, with session, turn, run and worker where they are known."""

import io
import logging
import logging.config
from collections.abc import Iterator

import pytest
import structlog

from config import database, logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What the handler writes; nothing stays bound afterwards."""
    yield io.StringIO()
    structlog.contextvars.clear_contextvars()


def _handler(stream: io.StringIO, log_format: str) -> logging.Logger:
    formatter = logs.logging_config("INFO", log_format)["formatters"]["line"]
    made = formatter["()"](**{name: value for name, value in formatter.items() if name != "()"})
    handler = logging.StreamHandler(stream)
    handler.setFormatter(made)
    logger = logging.Logger("tests.lines", logging.INFO)  # noqa: LOG001  (of this test alone)
    logger.addHandler(handler)
    return logger


def test_a_line_of_the_standard_library_carries_what_is_bound(stream: io.StringIO) -> None:
    logger = _handler(stream, "text")
    structlog.contextvars.bind_contextvars(run="j:1", turn=7, session="s", worker="w")
    logger.warning("took %d ms", 12, extra={"queue": "turns.0"})
    line = stream.getvalue().rstrip("\n")
    assert line.endswith(" WARNING tests.lines: took 12 ms worker=w session=s turn=7 run=j:1 queue=turns.0")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_line_has_the_token_of_an_address(stream: io.StringIO, log_format: str) -> None:
    logger = _handler(stream, log_format)
    logger.info('1.2.3.4 - "%s %s HTTP/1.1" %d', "GET", "/enter/very-secret/?x=1", 200)
    for address in ("/join/very-secret/", "/password/MQ/very-secret/", "/calendar/very-secret.ics"):
        logger.info('1.2.3.4 - "%s %s HTTP/1.1" %d', "GET", address, 200)
    logger.error("Internal Server Error: %s", "/enter/very-secret", extra={"path": "/enter/very-secret"})
    logger.info("Not Found: %s", "/calendar/very-secret.ics")
    assert "secret" not in stream.getvalue()
    assert "GET /enter/***/?x=1 HTTP/1.1" in stream.getvalue()


def test_nothing_is_left_of_the_colours_that_uvicorn_adds(stream: io.StringIO) -> None:
    _handler(stream, "text").info("started", extra={"color_message": "\x1b[1mstarted"})
    assert "color" not in stream.getvalue()


def test_a_database_url_is_parsed_with_its_escapes_and_options() -> None:
    url = "postgresql://a%40b:p%2Fw@db.example:6543/rondo?sslmode=require"
    made = database.database_settings(url, pool_size=3)
    read = [made[key] for key in ("USER", "PASSWORD", "HOST", "PORT", "NAME")]
    assert read == ["a@b", "p/w", "db.example", "6543", "rondo"]
    assert made["OPTIONS"]["sslmode"] == "require"
    assert "-c idle_in_transaction_session_timeout=20s" in made["OPTIONS"]["options"]
    assert made["OPTIONS"]["pool"]["max_size"] == 3
