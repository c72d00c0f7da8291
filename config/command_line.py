"""The command line: `manage.py COMMAND` in a checkout, `rondo COMMAND` where a wheel is installed.

`up` runs without Django, because it provides the settings that Django requires; `mcp`, because it is a client of a
running server; the processes of a fleet, because they load it their own way. All other commands are
Django's: they use the servers of a running `up`, of the default data folder or of `--data-dir DIR`.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from importlib import import_module

from config.installation import COMMAND, VERSION
from config.supervisor import SetupError
from config.supervisor.datadir import join_running, without_data_dir

COMMANDS = {
    "up": "start everything: database, broker, web, workers, beat",
    "chat": "talk with an agent in the terminal",
    "agent": "show and change the settings of an agent",
    "automations": "list, add, change and explain automations, list runs",
    "routine": "list, add, change and remove routines of an agent",
    "spending": "show and set caps, and what turns cost",
    "status": "show workers, beats, waiting turns and the next job",
    "doctor": "check the server and suggest a fix for each problem",
    "sign_in_link": "print a link that signs a user in once",
    "token": "list, make and revoke the API tokens of a user",
    "mcp": "speak MCP on standard input and output",
    "export": "write everything of a user into one archive",
    "import_archive": "import such an archive into new agents of a user",
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
WITHOUT_DJANGO = {"up": "config.supervisor.main", "mcp": "config.mcp_bridge"}
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
    if name in WITHOUT_DJANGO:
        code: int = import_module(WITHOUT_DJANGO[name]).main(arguments)
        return code
    try:
        words, folder = without_data_dir(sys.argv)
        with suppress(SetupError) if _asks_for_help(words) else nullcontext():
            join_running(os.environ, folder)
    except SetupError as error:
        sys.stderr.write(f"rondo: {error}\n")
        return 1
    if name in PROCESSES:
        _run_process(name, words[2:])
        return 0
    return _django(name, words)


def _asks_for_help(words: Sequence[str]) -> bool:
    return not HELP.isdisjoint(words[1:2]) or not {"--help", "-h"}.isdisjoint(words)


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


def _run_process(name: str, arguments: Sequence[str]) -> None:
    """Run a process as `python -m` does. A worker takes Celery's flags, web takes uvicorn's; a repeated flag wins."""
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
