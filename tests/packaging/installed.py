"""A wheel of this checkout, installed into an environment with the packages of requirements.lock and no others."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from typing import Any

from tests.up import ROOT, run

PIN = re.compile(r"^([a-z0-9._-]+)==([^ ]+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    """The versions of a lock file, by the names of their packages."""
    return dict(PIN.findall((ROOT / lock).read_text()))


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def build_wheel(folder: Path) -> Path:
    """Build it from the checkout, without a network; the file."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The environment, a home, and an empty folder to stand in."""

    folder: Path
    environ: dict[str, str]

    @property
    def command(self) -> str:
        return str(self.folder / "env" / "bin" / "rondo")

    @property
    def stand(self) -> Path:
        return self.folder / "empty"

    @property
    def data(self) -> Path:
        """Where `rondo` keeps its data unless told otherwise."""
        return self.folder / "home" / ".local" / "share" / "rondo"

    def run(self, *arguments: str, typed: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """Run `rondo` to its end."""
        return run(self.command, *arguments, cwd=self.stand, env=self.environ | environ, input=typed)


def install(wheel: Path, folder: Path) -> Installed:
    """Install the wheel below `folder`. The packages of the lock are links, since installing them takes a minute."""
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    [site] = (folder / "env" / "lib").glob("python*/site-packages")
    for name in pins("requirements.lock"):
        _link(name, site)
    # without --no-deps: pip finds all that the wheel requires, or refuses
    pip = (sys.executable, "-m", "pip", "--python", str(python))
    run(*pip, "install", "-q", "--no-index", str(wheel), check=True)
    for name in ("empty", "home"):
        (folder / name).mkdir()
    environ = {"HOME": str(folder / "home"), "PATH": os.defpath, "LANG": "C.UTF-8"}
    return Installed(folder=folder, environ=environ)


def _link(name: str, site: Path) -> None:
    found = distribution(name)
    tops = {PurePosixPath(file).parts[0] for file in found.files or ()}
    for top in tops - {"..", "__pycache__"}:
        link = site / top
        if not link.exists():
            link.symlink_to(Path(str(found.locate_file(top))).resolve())
