"""The channels of the server pass the kit that every channel must pass."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from config import env
from sessions_app.channels import base
from sessions_app.channels.base import Unsent
from sessions_app.channels.mail import Email
from sessions_app.channels.notify import Notify
from sessions_app.channels.testing import ChannelContract, Stage, Taken, parcel
from sessions_app.channels.webhook import Webhook
from tests.sessions_app.deliveries.receivers import MailServer, Received, Receiver, http_receiver, mail_server
from tests.up import ROOT

pytestmark = pytest.mark.rule("9.3")


class TestWebhook(ChannelContract):
    @pytest.fixture
    def stage(self, settings: Any) -> Iterator[Stage]:
        with http_receiver() as receiver:
            settings.RONDO_WEBHOOK_HOSTS = [receiver.host]
            yield Stage(
                channel=Webhook(),
                address=f"{receiver.url}/in?for=me",
                bad=(
                    "ftp://example.org/",
                    "example.org",
                    "https://u:p@example.org/",
                    "http://x:22/",
                    "https://x/#f",
                ),
                taken=lambda: [Taken(key=each.key, text=each.data["text"]) for each in receiver.taken()],
                trouble=lambda kind: _http_trouble(receiver, "/in?for=me", kind),
            )


@contextmanager
def _http_trouble(receiver: Receiver, path: str, kind: str) -> Iterator[None]:
    receiver.set(path, {"refuses": "503", "hangs": "hang", "gone": "half"}[kind])
    try:
        yield
    finally:
        receiver.set(path, "take")


class TestEmail(ChannelContract):
    @pytest.fixture
    def stage(self, settings: Any) -> Iterator[Stage]:
        with mail_server() as server:
            settings.RONDO_MAIL_SERVER = env.mail_server(f"smtp://127.0.0.1:{server.port}")
            settings.DEFAULT_FROM_EMAIL = "Rondo <rondo@example.org>"
            yield Stage(
                channel=Email(),
                address="ada@example.org",
                bad=("ada", "Ada <ada@example.org>", "a@b@c", "ada@example.org\nBcc: eve@example.org"),
                taken=lambda: [_letter(each) for each in server.letters],
                trouble=lambda kind: _mail_trouble(server, settings, kind),
            )

    def test_what_it_refuses_is_said(self, stage: Stage) -> None:
        with stage.trouble("refuses"), pytest.raises(Unsent, match="the mail server answered 451"):
            stage.channel.send(parcel(stage))


def _letter(letter: Any) -> Taken:
    assert (letter["To"], letter["From"]) == ("ada@example.org", "Rondo <rondo@example.org>")
    assert letter["Message-ID"].startswith(f"<{letter['Rondo-Delivery']}@")
    return Taken(
        key=letter["Rondo-Delivery"], text=letter.get_content().replace("\r\n", "\n").removesuffix("\n")
    )


@contextmanager
def _mail_trouble(server: MailServer, settings: Any, kind: str) -> Iterator[None]:
    server.refuse, server.hang = "451 later" * (kind == "refuses"), kind == "hangs"
    port = 1 if kind == "gone" else server.port
    settings.RONDO_MAIL_SERVER = settings.RONDO_MAIL_SERVER | {"port": port}
    try:
        yield
    finally:
        server.refuse, server.hang = "", False
        settings.RONDO_MAIL_SERVER = settings.RONDO_MAIL_SERVER | {"port": server.port}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the library, at its import
class TestNotify(ChannelContract):
    @pytest.fixture
    def stage(self, settings: Any) -> Iterator[Stage]:
        pytest.importorskip("apprise", reason="the extra `notify` is not installed")
        with http_receiver() as receiver:
            settings.RONDO_NOTIFY = {"team": f"json://{receiver.host}/in?cto=1&rto=1"}
            yield Stage(
                channel=Notify(),
                address="team",
                bad=("nobody", "Team", f"json://{receiver.host}"),
                taken=lambda: [Taken(key=None, text=_message(each)) for each in receiver.taken()],
                trouble=lambda kind: _http_trouble(receiver, "/in", kind),
            )


def _message(notice: Received) -> str:
    return str(json.loads(notice.body)["message"])


EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def example(folder: Path) -> Any:
    """The channel of docs/channels.md as it stands there, its program and its file put into a folder."""
    [code] = EXAMPLE.findall((ROOT / "docs" / "channels.md").read_text())
    module: dict[str, Any] = {}
    exec(compile(code, "docs/channels.md", "exec"), module)
    base.unregister("program")
    module["PROGRAMS"]["log"] = [str(folder / "program")]
    return module["Program"]()


@pytest.mark.full
class TestExample(ChannelContract):
    """What the page shows how to add."""

    @pytest.fixture
    def stage(self, tmp_path: Path) -> Stage:
        _program(
            tmp_path, 'tee "$0.$(date +%s%N).text" > "$0.out"; printf %s "$DELIVERY" > "$0.$(date +%s%N).key"'
        )
        return Stage(
            channel=example(tmp_path),
            address="log",
            bad=("nothing", "LOG"),
            taken=lambda: _taken_by_program(tmp_path),
            trouble=lambda kind: _program_trouble(tmp_path, kind),
        )


def _program(folder: Path, script: str) -> None:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _taken_by_program(folder: Path) -> list[Taken]:
    texts, keys = (sorted(folder.glob(f"program.*.{kind}")) for kind in ("text", "key"))
    return [Taken(key=key.read_text(), text=text.read_text()) for text, key in zip(texts, keys, strict=True)]


@contextmanager
def _program_trouble(folder: Path, kind: str) -> Iterator[None]:
    before = (folder / "program").read_text().partition("\n")[2].strip()
    if kind == "gone":
        (folder / "program").unlink()
    else:
        _program(folder, {"refuses": "exit 3", "hangs": "exec sleep 20"}[kind])
    try:
        yield
    finally:
        _program(folder, before)
