from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from agent_core.types import with_note
from interfaces.terminal.command import choose_agent, choose_session, errors_in_one_line, plain
from interfaces.terminal.talk import Screen, Talk
from sessions_app.exceptions import SessionsError
from sessions_app.models import TurnState
from sessions_app.queue.receive import LONGEST_MESSAGE

ANSWERS = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}
HELP = "Ctrl-C stops an answer, then leaves; so do Ctrl-D and /quit."
QUIT = ("/quit", "/exit")
LONGEST_WAIT = 3600  # seconds


class Command(BaseCommand):
    help = "Talk with an agent. With a message on standard input, print only the answer."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--agent", metavar="NAME", help="NAME, or USER/NAME; default: the only one")
        parser.add_argument("--session", metavar="ID", help="id or key of a session; default: a new one")
        parser.add_argument(
            "--wait",
            type=int,
            default=600,
            metavar="SECONDS",
            help="how long a message of standard input may take; default: %(default)s",
        )

    def handle(self, *args: Any, agent: str | None, session: str | None, wait: int, **options: Any) -> None:
        """Exit code 1 if something is refused, or the message of standard input was not answered."""
        with errors_in_one_line():
            opened = choose_session(session, agent) if session else None
            chosen = opened.agent if opened else choose_agent(agent)
            talk = Talk(agent=chosen, session=opened, screen=Screen(to=sys.stdout, colours=_has_colours()))
            if sys.stdin.isatty() and sys.stdout.isatty():
                self._talk(talk)
            else:
                self._answer_input(talk, min(max(wait, 1), LONGEST_WAIT))

    def _answer_input(self, talk: Talk, seconds: int) -> None:
        content = sys.stdin.read(LONGEST_MESSAGE + 2).strip()
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - it has no path of its own
            talk.screen = Screen(to=nowhere)
            try:
                turn: Any = talk.send(content, seconds)
            except TimeoutError:
                raise CommandError(f"no answer within {seconds} seconds; the turn was cancelled") from None
            except KeyboardInterrupt:
                raise CommandError("stopped") from None
        if turn.state != TurnState.SUCCEEDED:
            raise CommandError(turn.error or f"the turn was {turn.state}")
        self.stdout.write(plain(with_note(turn.reply or "", turn.ended_by)))

    def _talk(self, talk: Talk) -> None:
        with suppress(ImportError):
            import readline  # noqa: F401 - `input` edits lines with it
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also if the parent process ignores Ctrl-C
        talk.screen.note(f"Talking with {talk.agent.name}. {HELP}")
        with suppress(EOFError, KeyboardInterrupt):
            while True:
                try:
                    _take_turn(talk)
                except SessionsError as error:
                    talk.screen.note(f"{error}.")
        talk.screen.to.write("\n")
        if talk.session is not None:
            talk.screen.note(f"To go on: {settings.RONDO_COMMAND} chat --session {talk.session.pk}")


def _take_turn(talk: Talk) -> None:
    """Ask the person for an answer to a question that waits, or else for a message. EOFError, KeyboardInterrupt."""
    talk.show_news()
    question = talk.question()
    if question is None:
        content = _ask("you> ")
        if content in QUIT:
            raise EOFError
        if content == "/help":
            talk.screen.note(HELP)
        elif content:
            talk.send(content)
        return
    answer = _ask_to_allow(talk, question) if question["calls"] else _ask("answer> ")
    if answer:
        talk.answer(question, answer)
    else:
        talk.leave_open(question)
        talk.screen.note("The question stays open.")


def _ask_to_allow(talk: Talk, question: dict[str, Any]) -> str:
    """`yes`, `no`, or empty."""
    for call in question["calls"]:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call["arguments"].items())
        talk.screen.line(f"  {call['name']}({arguments})")
    while (said := _ask("Allow this? [y/n] ").lower()) and said not in ANSWERS:
        talk.screen.note("Type y or n; an empty line leaves it open.")
    return ANSWERS.get(said, "")


def _ask(prompt: str) -> str:
    connection.close()  # nobody knows how long the person thinks
    return input(prompt).strip()


def _has_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
