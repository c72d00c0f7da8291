"""docs/deploy.md, followed on one machine: its blocks run in one shell with other folders and addresses."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.up import ROOT, run

PAGE = ROOT / "docs" / "deploy.md"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# what this machine has no right to, or tests elsewhere: accounts, packages, services, RabbitMQ
PRELUDE = """
set -eu
runuser() { shift 3; "$@"; }
systemctl() { echo "systemctl $*" >> "$FOLDER/systemctl"; }
"""


def blocks(section: str) -> list[str]:
    """The shell blocks of a section of the page; those before the first section under ``Deploy``."""
    _, *parts = SECTION.split("\n## Deploy\n" + PAGE.read_text())
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    return BLOCK.findall(texts[section])


@dataclass(kw_only=True)
class Machine:
    """Stands for all machines of the page. `places`: what its folders and addresses are here."""

    folder: Path
    environ: dict[str, str]
    places: dict[str, str] = field(default_factory=dict)
    known: list[str] = field(default_factory=list)

    def text(self, text: str) -> str:
        """The text with the places of this machine."""
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text

    def remember(self, block: str) -> None:
        """Functions and variables of the page that later blocks use."""
        self.known.append(self.text(block))

    def run(self, *given: str, **environ: str) -> str:
        """Run blocks of the page; what they print."""
        script = "\n".join([PRELUDE, *self.known, *map(self.text, given)])
        done = run("bash", "-c", script, cwd=self.folder, env=self.environ | environ, input="")
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def settings(self) -> dict[str, str]:
        """The variables of the page's file of settings, as systemd reads them."""
        lines = (self.folder / "etc" / "rondo.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def exec_start(unit: str, instance: str = "") -> list[str]:
    """The command of a unit file, with systemd's specifiers resolved."""
    text = (ROOT / "deploy" / "systemd" / unit).read_text()
    [line] = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    return [re.sub(r"%(.)", lambda at: {"i": instance, "%": "%"}[at[1]], word) for word in line.split()]


def clean() -> dict[str, str]:
    return {"PATH": os.defpath, "LANG": "C.UTF-8"}
