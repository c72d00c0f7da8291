"""`manage.py tour`: find the server, take the tour, and remove all that it created."""

import argparse
import json
import secrets
import signal
import sys
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import FrameType
from typing import NoReturn

from config.installation import COMMAND, DATA_FOLDER, UP
from config.tour.act import POLL_SECONDS
from config.tour.background import HEARTBEAT_OFF
from config.tour.client import Server, TourError
from config.tour.report import TourReport
from config.tour.story import Tour

REMOVE_SECONDS = 30.0  # to remove what the tour created


@dataclass(frozen=True, kw_only=True)
class TourOptions:
    """The flags of `manage.py tour`."""

    data_dir: Path
    url: str | None
    token: str | None
    agent: str
    model: str | None
    patience: float


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise TourError(f"{message} (see {self.prog} --help)")


def tour_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = _Parser(
        prog=f"{COMMAND} tour",
        description="Demonstrate the main features on a running server, through its public API.",
        epilog="The tour creates a session and an agent and removes them at the end, also after a failure or Ctrl-C.",
    )
    parser.add_argument(
        "--data-dir", default=DATA_FOLDER, type=Path, help=f"folder of `{COMMAND} up` (default: %(default)s)"
    )
    parser.add_argument("--url", help="URL of another server; needs --token")
    parser.add_argument("--token", help="API token for it")
    parser.add_argument("--agent", default="demo", help="agent to talk to (default: demo)")
    parser.add_argument("--model", help="use a new agent with this model, such as openai-chat:gpt-5")
    parser.add_argument(
        "--patience", default=180.0, type=float, help="seconds that a turn or run may take (default: 180)"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Take the tour. Returns 0 if all checks passed, else 1."""
    interrupted = Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()  # an exception is lost if this handler runs within a finalizer
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    code = 1
    with suppress(KeyboardInterrupt):
        try:
            options = TourOptions(**vars(tour_parser().parse_args(arguments)))
            code = _take(_server(options), options)
        except TourError as error:
            sys.stderr.write(f"rondo: {error}\n")
    if interrupted.is_set():
        sys.stderr.write("rondo: interrupted\n")
        return 1
    return code


def _server(options: TourOptions) -> Server:
    if options.url is not None:
        if options.token is None:
            raise TourError("--url needs --token")
        if urllib.parse.urlsplit(options.url).scheme not in {"http", "https"}:
            raise TourError("--url must start with http:// or https://")
        return Server(options.url, options.token)
    path = options.data_dir / "connection.json"
    try:
        connection = json.loads(path.read_text())
        return Server(connection["url"], options.token or connection["token"])
    except OSError as error:
        text = f"no server runs on {options.data_dir} ({path}: {error.strerror}); start it with `{UP}`"
        raise TourError(text) from None
    except (ValueError, KeyError, TypeError):
        raise TourError(f"{path} is not the connection file of a server; restart `{UP}`") from None


def _take(server: Server, options: TourOptions) -> int:
    mark, report = secrets.token_hex(6), TourReport()
    own, key = f"tour-{mark}", f"web:tour-{mark}"
    agent = options.agent if options.model is None else own
    model = _check_server(server, report, options)
    try:
        server.create("/api/agents/", {"name": own, "model": model, "heartbeat": HEARTBEAT_OFF})
        Tour(server=server, report=report, agent=agent, own=own, key=key, patience=options.patience).take()
    except TourError as error:
        report.check("the tour ran to its end", holds=False, why=error)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        # a response without a documented field
        report.check("the answers have their documented shape", holds=False, why=repr(error))
    finally:
        _clean_up(server, report, key, own)
    return 0 if report.end() else 1


def _check_server(server: Server, report: TourReport, options: TourOptions) -> str:
    """Check server, token and agent before anything is created; returns the agent's model."""
    listed = server.ask("GET", "/api/agents/")
    if listed.status in {401, 403}:
        raise TourError(f"{server.url} rejects the token ({listed}){_cure(options)}")
    if listed.status != 200 or "results" not in listed.body:
        raise TourError(f"{server.url} is not a working Rondo server ({listed})")
    model = options.model
    if model is None:
        found = server.ask("GET", f"/api/agents/{urllib.parse.quote(options.agent, safe='')}/")
        if found.status != 200:
            raise TourError(
                f"there is no agent {options.agent!r}; choose one with --agent, or a model with --model"
            )
        model = str(found.body["model"])
    whose = f"agent {options.agent}" if options.model is None else "a new agent"
    report.say(f"Tour of {server.url}, {whose}, model {model}")
    return model


def _cure(options: TourOptions) -> str:
    """What helps when the token of connection.json was replaced on the account page since `up` wrote it."""
    if options.token is not None or options.url is not None:
        return ""
    since = f"since {options.data_dir / 'connection.json'} was written"
    return f": it was replaced or revoked {since}; restart the server, or give the new one with --token"


def _clean_up(server: Server, report: TourReport, key: str, own: str) -> None:
    """Remove what an incomplete tour has left."""
    try:
        for session in server.every(f"/api/sessions/?key={urllib.parse.quote(key, safe='')}"):
            _remove(server, report, f"/api/sessions/{session['id']}/")
        _remove(server, report, f"/api/agents/{own}/")
    except TourError as error:
        report.check("nothing is left behind", holds=False, why=error)


def _remove(server: Server, report: TourReport, path: str) -> None:
    give_up = time.monotonic() + REMOVE_SECONDS
    while (answer := server.ask("DELETE", f"{path}?delete_automations=true")).status == 409:
        if time.monotonic() > give_up:
            break
        time.sleep(POLL_SECONDS)
    if answer.status not in {200, 404}:
        report.check(f"{path} was removed", holds=False, why=answer)
