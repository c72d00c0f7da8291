import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from config.installation import COMMAND, DATA_FOLDER
from config.supervisor import SetupError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - the address for a browser on this machine


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The flags of `manage.py up`."""

    host: str
    port: int
    data_dir: Path
    workers: int
    concurrency: int
    beats: int

    @property
    def serves_loopback(self) -> bool:
        """Whether the web process can be reached by a loopback address."""
        return self.host in LOOPBACK or self.host in WILDCARDS

    @property
    def url(self) -> str:
        """The URL of the web process on this machine."""
        host = WILDCARDS.get(self.host, f"[{self.host}]" if ":" in self.host else self.host)
        return f"http://{host}:{self.port}"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SetupError(f"{message} (see {self.prog} --help)")


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(raw: str) -> int:
        if not raw.isascii() or not raw.isdigit() or not least <= int(raw) <= most:
            raise argparse.ArgumentTypeError(f"must be a number from {least} to {most}, not {raw!r}")
        return int(raw)

    return read


def up_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"{COMMAND} up",
        description="Start everything: database, broker, web, workers, beat. Ctrl-C stops it.",
        epilog="Set DATABASE_URL or CELERY_BROKER_URL to use your own servers instead of the embedded ones.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address that the web process listens on")
    parser.add_argument("--port", default=8000, type=_number(1, 65535), help="port of the web process")
    parser.add_argument("--data-dir", default=DATA_FOLDER, type=Path, help="folder of data, secrets and logs")
    parser.add_argument(
        "--workers",
        default=1,
        type=_number(0, 64),
        help="pairs of workers, for people and for other work",
    )
    parser.add_argument(
        "--concurrency", default=100, type=_number(1, 2000), help="turns that a worker runs at a time"
    )
    parser.add_argument("--beats", default=1, type=_number(0, 16), help="beat processes")
    return parser


def parse_up_options(arguments: Sequence[str]) -> UpOptions:
    """Parse the command line. Raises SetupError for wrong usage; --help prints and exits."""
    return UpOptions(**vars(up_parser().parse_args(arguments)))
