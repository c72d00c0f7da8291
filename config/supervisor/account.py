"""Which account the embedded servers run as, and where that account finds their programs.

PostgreSQL refuses to run as root. Started by root, the servers run as an account without rights; it may be
unable to enter the folders of the checkout. For data that does not matter (see `OWN_FOLDER`); programs are
copied.
"""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.supervisor.errors import SetupError

SHARED = Path("/var/lib/rondo")  # copies of programs, readable by everyone; made only when started by root

# A server is started inside its data folder and calls it by this name: the kernel then asks for no
# permission on the folders above, which the server's account may be unable to enter.
OWN_FOLDER = "/proc/self/cwd"


@dataclass(frozen=True, kw_only=True)
class Account:
    """uid and gid to run as; None means: as we are."""

    uid: int | None = None
    gid: int | None = None

    def popen(self) -> dict[str, Any]:
        """Arguments for subprocess that switch to this account."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, folder: Path) -> None:
        """Make `folder` if needed, ours alone."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.uid is not None and self.gid is not None:
            os.chown(folder, self.uid, self.gid)


def account_for(data: Path) -> Account:
    """The account that owns `data` already, else one without rights when we are root, else ourselves."""
    if os.geteuid() != 0:
        return Account()
    if data.is_dir() and (owner := data.stat()).st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    return Account(uid=65534, gid=65534)


def reachable(program: str, *, site: Path, parts: tuple[str, ...], label: str, account: Account) -> Path:
    """The path of `program` (relative to `site`) where `account` can run it.

    `parts` are the folders and files below `site` that belong together; `label` names their version. They
    are copied to SHARED with the same layout if the account cannot run the program where it is. Tried for
    real, because rights, mounts and ACLs on the way are many. Raises SetupError.
    """
    if _runs(site / program, account):
        return site / program
    copy = SHARED / label
    if _runs(copy / program, account):
        return copy / program
    try:
        _copy(site, parts, copy)
    except OSError as error:
        raise SetupError(f"cannot copy {label} to {SHARED}: {error}; start as an ordinary user") from None
    if not _runs(copy / program, account):
        raise SetupError(f"the account {account.uid} cannot run {copy / program}; start as an ordinary user")
    return copy / program


def _runs(program: Path, account: Account) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"], cwd="/", capture_output=True, timeout=20, check=False, **account.popen()
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _copy(site: Path, parts: tuple[str, ...], copy: Path) -> None:
    fresh = copy.with_name(f".{copy.name}.{os.getpid()}")
    for part in parts:
        source, target = site / part, fresh / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    for path in (copy.parent, fresh, *fresh.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
    shutil.rmtree(copy, ignore_errors=True)
    fresh.rename(copy)
