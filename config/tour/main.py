"""`manage.py tour`: where to go, the tour itself, and leaving nothing behind."""

import argparse
import json
import secrets
import signal
import sys
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from config.tour.act import LOOK_SECONDS
from config.tour.background import RESTS
from config.tour.client import Server, TourError
from config.tour.report import Report
from config.tour.story import Tour

LEAVE_SECONDS = 30.0  # for removing what the tour made


@dataclass(frozen=True, kw_only=True)
class Options:
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


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = _Parser(
        prog="manage.py tour",
        description="Run the main job on a running system, through its public API, and print what is seen.",
        epilog="It makes a session and an agent of its own and removes them, also after a failure or Ctrl-C.",
    )
    made.add_argument(
        "--data-dir", default=Path(".rondo"), type=Path, help="folder of `manage.py up` (default: .rondo)"
    )
    made.add_argument("--url", help="another server; --token goes with it")
    made.add_argument("--token", help="token of its API")
    made.add_argument("--agent", default="demo", help="whose session it is (default: demo)")
    made.add_argument("--model", help="use an agent of its own with this model, such as openai-chat:gpt-5")
    made.add_argument(
        "--patience", default=180.0, type=float, help="seconds that a turn or a run may take (default: 180)"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """0 when every check held, else 1."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        chosen = Options(**vars(parser().parse_args(arguments)))
        return _take(_server(chosen), chosen)
    except TourError as error:
        sys.stderr.write(f"rondo: {error}\n")
    except KeyboardInterrupt:
        sys.stderr.write("rondo: interrupted\n")
    return 1


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _server(chosen: Options) -> Server:
    if chosen.url is not None:
        if chosen.token is None:
            raise TourError("--url needs --token")
        if urllib.parse.urlsplit(chosen.url).scheme not in {"http", "https"}:
            raise TourError("--url must start with http:// or https://")
        return Server(chosen.url, chosen.token)
    path = chosen.data_dir / "connection.json"
    try:
        connection = json.loads(path.read_text())
        return Server(connection["url"], chosen.token or connection["token"])
    except OSError as error:
        text = f"nothing runs on {chosen.data_dir} ({path}: {error.strerror}); start it with `make up`"
        raise TourError(text) from None
    except (ValueError, KeyError, TypeError):
        raise TourError(f"cannot read {path}") from None


def _take(server: Server, chosen: Options) -> int:
    mark, report = secrets.token_hex(6), Report()
    own, key = f"tour-{mark}", f"web:tour-{mark}"
    agent = chosen.agent if chosen.model is None else own
    model = _greet(server, report, chosen)
    try:
        server.make("/api/agents/", {"name": own, "model": model, "heartbeat": RESTS})
        Tour(server=server, report=report, agent=agent, own=own, key=key, patience=chosen.patience).take()
    except TourError as error:
        report.check("the tour goes on", holds=False, why=error)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        # an answer that lacks what the API promises
        report.check("the answers have their documented shape", holds=False, why=repr(error))
    finally:
        _leave(server, report, key, own)
    return 0 if report.end() else 1


def _greet(server: Server, report: Report, chosen: Options) -> str:
    """Before anything is made: is this a Rondo, does the token open it, is the agent there? Its model."""
    listed = server.ask("GET", "/api/agents/")
    if listed.status in {401, 403}:
        raise TourError(f"{server.url} refuses the token ({listed})")
    if listed.status != 200 or "results" not in listed.body:
        raise TourError(f"{server.url} is no Rondo that can answer ({listed})")
    model = chosen.model
    if model is None:
        found = server.ask("GET", f"/api/agents/{urllib.parse.quote(chosen.agent, safe='')}/")
        if found.status != 200:
            raise TourError(
                f"there is no agent {chosen.agent}; name one with --agent, or a model with --model"
            )
        model = str(found.body["model"])
    whose = f"agent {chosen.agent}" if chosen.model is None else "an agent of its own"
    report.say(f"Tour of {server.url}, {whose}, model {model}")
    return model


def _leave(server: Server, report: Report, key: str, own: str) -> None:
    """Remove what is left of the tour; after a complete one nothing is."""
    try:
        for session in server.every(f"/api/sessions/?key={urllib.parse.quote(key, safe='')}"):
            _remove(server, report, f"/api/sessions/{session['id']}/")
        _remove(server, report, f"/api/agents/{own}/")
    except TourError as error:
        report.check("nothing is left behind", holds=False, why=error)


def _remove(server: Server, report: Report, path: str) -> None:
    give_up = time.monotonic() + LEAVE_SECONDS
    while (answer := server.ask("DELETE", f"{path}?delete_automations=true")).status == 409:
        if time.monotonic() > give_up:
            break
        time.sleep(LOOK_SECONDS)
    if answer.status not in {200, 404}:
        report.check(f"{path} was removed", holds=False, why=answer)
