"""Shared parts of the commands: the agent and the session they are about, errors in one line, imports into an agent."""

from __future__ import annotations

import json
import re
import sys
import uuid
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.db.models import Q

from automations.nanobot_import.store_file import StoreRefused
from sessions_app.exceptions import BadInput, NotFound, SessionsError
from sessions_app.models import Agent, Session


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the command with one line if something is refused, or the database is away."""
    try:
        yield
    except SessionsError as refusal:
        raise CommandError(str(refusal)) from None
    except (Error, psycopg.Error) as error:
        name, doctor = type(error).__name__, f"{settings.RONDO_COMMAND} doctor"
        raise CommandError(f"the database does not answer ({name}); run `{doctor}`") from None


class LinesCommand(BaseCommand):
    """Prints `lines`. Exit code 1 with one line if something is refused, or the database is away."""

    requires_system_checks = ()

    def lines(self, options: dict[str, Any]) -> Iterator[str]:
        """What the command does, and says of it."""
        raise NotImplementedError

    def handle(self, *_: Any, **options: Any) -> None:
        with errors_in_one_line():
            for line in self.lines(options):
                self.stdout.write(plain(line))


class ImportCommand(BaseCommand):
    """Imports a file or folder into an agent, and prints a report."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agent", required=True, metavar="NAME", help="NAME, or USER/NAME")
        parser.add_argument("--dry-run", action="store_true", help="print the report, and import nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def print_report(self, source: Path, imported: Callable[[], Any], *, as_json: bool) -> None:
        """Exit code 1 if the source or the agent is refused; what was refused of the source is in the report."""
        try:
            report = imported()
        except (OSError, StoreRefused, SessionsError) as error:
            reason = str(error.strerror if isinstance(error, OSError) else error)
            if not isinstance(error, SessionsError):
                reason = f"{source}: {reason}"
            if not as_json:
                raise CommandError(f"{reason}; nothing was imported") from None
            problem = {"code": getattr(error, "code", "cannot_read"), "message": reason}
            self.stdout.write(json.dumps({"ok": False, "error": problem}))
            sys.exit(1)
        if as_json:
            self.stdout.write(json.dumps(report.to_json()))
        else:
            self.stdout.writelines(f"{line}\n" for line in report.in_words())


MOST_NAMESAKES = 5  # agents of one name that a refusal lists

# what could move the cursor or change colours; line ends and tabs stay
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """The text without control characters: what a model writes must not control the terminal."""
    return _CONTROL.sub("", text)


def json_option(name: str, text: str) -> Any:
    """The value of an option that is JSON. BadInput."""
    try:
        return json.loads(text)
    except ValueError:
        raise BadInput(f"--{name} must be JSON, not {text[:60]!r}", code=f"bad_{name}") from None


def choose_agent(name: str | None) -> Agent:
    """The agent `NAME` or `USER/NAME`; without a name the only one. NotFound names the agents to choose from."""
    if name:
        return agent_called(name)
    found = list(Agent.objects.select_related("owner").order_by("pk")[: MOST_NAMESAKES + 1])
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound("there is no agent; make one on the pages, in the admin or by the API")
    names = ", ".join(f"{each.owner.get_username()}/{each.name}" for each in found[:MOST_NAMESAKES])
    raise NotFound(f"there are several agents; name one with --agent, such as {names}")


def choose_session(text: str, agent: str | None) -> Session:
    """The session with this id, or with this key of the agent. NotFound."""
    rows = Session.objects.select_related("owner", "agent")
    try:
        rows = rows.filter(pk=uuid.UUID(text))
    except ValueError:
        rows = rows.filter(key=text, agent=choose_agent(agent))
    else:
        rows = rows.filter(agent=choose_agent(agent)) if agent else rows
    found = rows.first()
    if found is None:
        raise NotFound(f"there is no session {text[:100]!r}" + (f" of agent {agent!r}" if agent else ""))
    return found


def user_called(name: str) -> User:
    """The user of this name. NotFound."""
    found = User.objects.filter(username=name).first()
    if found is None:
        raise NotFound(f"there is no user {name!r}")
    return found


def agent_called(name: str) -> Agent:
    """Find an agent of any user by its name, or by `user/name` where several users have one. NotFound."""
    owner, _, rest = name.partition("/")
    found = list(
        Agent.objects.filter(Q(name=name) | Q(name=rest, owner__username=owner))
        .select_related("owner")
        .order_by("owner__username")[:MOST_NAMESAKES]
    )
    if not found:
        raise NotFound(f"there is no agent {name!r}")
    if len(found) > 1:
        names = ", ".join(f"{agent.owner.get_username()}/{agent.name}" for agent in found)
        raise NotFound(f"several users have an agent {name!r}; use one of {names}")
    return found[0]
