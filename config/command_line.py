"""The command line: `manage.py COMMAND` in a checkout, `rondo COMMAND` where a wheel is installed.

`up` runs without Django, because it provides the settings that Django requires; `mcp`, because it is a client of a
running server; the processes of a fleet, because they load it their own way. All other commands are
Django's: they use the servers of a running `up`, of the default data folder or of `--data-dir DIR`.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from config.installation import COMMAND, VERSION

COMMANDS = {
    "up": "start everything: database, broker, web, workers, beat",
    "chat": "talk with an agent in the terminal",
    "automations": "list, add and explain automations",
    "routine": "list, add, change and remove routines of an agent",
    "status": "show workers, beats, waiting turns and the next job",
    "doctor": "check the server and suggest a fix for each problem",
    "sign_in_link": "print a link that signs a user in once",
    "token": "list, make and revoke the API tokens of a user",
    "mcp": "speak MCP on standard input and output",
    "import_jobs": "import the jobs of nanobot",
    "import_everbot": "import the documents of an EverBot workspace",
    "maintain": "remove old rows now",
    "renew_secrets": "encrypt stored secrets with the present SECRET_KEY",
}
FLEET = {
    "migrate": "create or change the tables",
    "createsuperuser": "create the first account",
    "web": "run a web process",
    "worker": "run a worker process",
    "beat": "run a beat process",
}
PROCESSES = {"web", "worker", "beat"}
CONCURRENCY = 100  # turns that a worker runs at a time
SETTINGS = "config.settings"
HELP = {"help", "--help", "-h"}


def main() -> int:
    """Run one command; the exit code is 0 or 1 (2 for wrong usage)."""
    name, arguments = (sys.argv[1:2] or ["help"])[0], sys.argv[2:]
    if name in HELP and not arguments:
        sys.stdout.write(_overview())
        return 0
    if name in {"--version", "version"}:
        sys.stdout.write(f"Rondo {VERSION}\n")
        return 0
    without_django: Mapping[str, Callable[[Sequence[str]], int]] = {"up": _up, "mcp": _mcp}
    if name in without_django:
        return without_django[name](arguments)
    from config.supervisor import SetupError
    from config.supervisor.datadir import without_data_dir

    try:
        words, folder = without_data_dir(sys.argv)
        _join(folder, asks_for_help=_asks_for_help(words))
    except SetupError as error:
        sys.stderr.write(f"rondo: {error}\n")
        return 1
    if name in PROCESSES:
        _run_process(name, words[2:])
        return 0
    return _django(name, words)


def _asks_for_help(words: Sequence[str]) -> bool:
    return not HELP.isdisjoint(words[1:2]) or not {"--help", "-h"}.isdisjoint(words)


def _join(folder: Path | None, *, asks_for_help: bool) -> None:
    """Use the servers of a running `up`. SetupError, but not for who only wants to read how a command is used."""
    from config.supervisor import SetupError
    from config.supervisor.datadir import join_running

    try:
        join_running(os.environ, folder)
    except SetupError:
        if not asks_for_help:
            raise


def _overview() -> str:
    lines = [f"usage: {COMMAND} COMMAND …", ""]
    lines += [f"    {name:16} {about}" for name, about in COMMANDS.items()]
    lines += ["", "Processes on servers of your own, with settings in the environment:", ""]
    lines += [f"    {name:16} {about}" for name, about in FLEET.items()]
    lines += [
        "",
        f"`{COMMAND} COMMAND --help` shows the flags of a command, `{COMMAND} help --commands` lists also those",
        "of Django. --data-dir DIR, with any command: use the server whose data folder is DIR.",
    ]
    return "\n".join(lines) + "\n"


def _up(arguments: Sequence[str]) -> int:
    from config.supervisor.main import main as up

    return up(arguments)


def _mcp(arguments: Sequence[str]) -> int:
    from config.mcp_bridge import main as mcp

    return mcp(arguments)


def _run_process(name: str, arguments: Sequence[str]) -> None:
    """As `python -m`. The flags of a worker are Celery's, and those of web uvicorn's; the last one of a kind counts."""
    from config.supervisor.fleet import worker_command

    command = worker_command(f"worker{os.getpid()}", CONCURRENCY) if name == "worker" else [f"config.{name}"]
    sys.argv = [*command, *arguments]
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def _django(name: str, words: list[str]) -> int:
    error = ""
    if os.environ.setdefault("DJANGO_SETTINGS_MODULE", SETTINGS) == SETTINGS:
        error = _what_is_missing()
    import django
    from django.core import management

    if error:
        # only with settings Django knows which words are commands, and their flags
        django.setup(set_prefix=False)
        if not _asks_for_help(words) and name in management.get_commands():
            sys.stderr.write(f"rondo: {error}\n")
            return 1
    management.execute_from_command_line([COMMAND, *words[1:]])
    return 0


def _what_is_missing() -> str:
    """Why the settings cannot load; placeholders then stand for what is missing."""
    from config.env import EnvError, load, set_placeholders

    try:
        load(os.environ)
    except EnvError as error:
        set_placeholders(os.environ)
        return str(error)
    return ""
