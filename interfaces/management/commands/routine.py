from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandParser

from automations.exceptions import RoutineNotFound
from automations.models import Source
from automations.routines.edit import NewRoutine, add_routine, remove_routine, update_routine
from automations.routines.reads import routine_of, shown_routines
from interfaces.terminal.command import agent_called, json_option
from sessions_app.exceptions import SessionsError
from sessions_app.models import Agent
from sessions_app.spending.caps import budget_of, shown_caps

MODES = ["inline", "isolated"]
SOURCES = [each for each in Source.values if each != Source.SYSTEM]
CHANGES = (
    *("title", "description", "instructions", "schedule", "execution_mode", "timezone"),
    *("timeout_seconds", "policy", "limits", "gate"),
)
OBJECTS = {"policy", "limits", "gate"}


class _Parser(CommandParser):
    """Prints wrong arguments like any other error: as JSON, with exit code 1."""

    def error(self, message: str) -> NoReturn:
        refuse("bad_call", message)


class Command(BaseCommand):
    help = "Add, list, change and remove the routines of an agent. Prints one JSON object."
    requires_system_checks = []  # their messages must not mix with the JSON

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.__class__ = _Parser
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)
        add = _of_agent(verbs.add_parser("add", help="add a routine", argument_default=SUPPRESS))
        add.add_argument("--title", required=True)
        _fields(add)
        add.add_argument(
            "--next-run-at",
            metavar="TIME",
            help="ISO time of the first run; without --schedule, of the only run",
        )
        add.add_argument("--source", choices=SOURCES)
        add.add_argument("--allow-duplicate", action="store_true")
        listing = _of_agent(verbs.add_parser("list", help="list routines"))
        listing.add_argument("--include-disabled", action="store_true")
        update = _of_agent(verbs.add_parser("update", help="change a routine", argument_default=SUPPRESS))
        update.add_argument("--id", required=True, dest="routine_id")
        update.add_argument("--title")
        _fields(update)
        update.add_argument("--enabled", choices=["true", "false"])
        remove = _of_agent(verbs.add_parser("remove", help="disable a routine"))
        remove.add_argument("--id", required=True, dest="routine_id")
        remove.add_argument("--hard", action="store_true", help="delete it with its runs")

    def handle(self, *args: Any, verb: str, agent: str, **options: Any) -> None:
        """Run one subcommand. Exit code 1 with the error when it is refused."""
        verbs: dict[str, Callable[[Agent, dict[str, Any]], dict[str, Any]]] = {
            "add": _add,
            "list": _list,
            "update": _update,
            "remove": _remove,
        }
        try:
            answer = verbs[verb](agent_called(agent), options)
        except SessionsError as error:
            refuse(error.code, str(error))
        self.stdout.write(json.dumps({"ok": True} | answer, ensure_ascii=False))


def refuse(code: str, message: str) -> NoReturn:
    """Print the error as JSON, and exit with code 1."""
    problem = {"ok": False, "error": {"code": code, "message": message}}
    sys.stdout.write(json.dumps(problem, ensure_ascii=False) + "\n")
    sys.exit(1)


def _of_agent(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument("--agent", required=True, metavar="NAME", help="NAME, or USER/NAME")
    return parser


def _fields(parser: ArgumentParser) -> None:
    """The options that `add` and `update` share."""
    parser.add_argument("--description")
    parser.add_argument("--instructions", help="the routine's standing instructions")
    parser.add_argument("--schedule", metavar="WHEN", help="30m, 1h, 2d, or five cron fields; default: once")
    parser.add_argument("--execution-mode", choices=MODES)
    parser.add_argument("--timezone", metavar="ZONE", help="default: the agent's")
    parser.add_argument("--timeout-seconds", type=int, metavar="N")
    of_turn, of_runs = '{"max_tool_calls": 5}', '{"day": {"usd": "1.00"}}'
    gate = '{"kind": "http_changed", "url": "https://example.org/news"}'
    parser.add_argument("--policy", metavar="JSON", help=f"limits of one turn: {of_turn}")
    parser.add_argument("--limits", metavar="JSON", help=f"caps of its runs: {of_runs}")
    parser.add_argument("--gate", metavar="JSON", help=f"a check before the model: {gate}; null: none")


def _given(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The given options of these names. BadInput."""
    found = {name: options[name] for name in names if name in options}
    return found | {name: json_option(name, found[name]) for name in OBJECTS & found.keys()}


def _add(agent: Agent, options: dict[str, Any]) -> dict[str, Any]:
    given = _given(options, (*CHANGES, "next_run_at", "source", "allow_duplicate"))
    return _shown(add_routine(NewRoutine(agent_id=agent.pk, **given)).pk)


def _list(agent: Agent, options: dict[str, Any]) -> dict[str, Any]:
    rows = shown_routines(agent=agent)
    rows = rows if options["include_disabled"] else rows.filter(enabled=True)
    return {"routines": _as_json(rows)}


def _update(agent: Agent, options: dict[str, Any]) -> dict[str, Any]:
    changes = _given(options, CHANGES)
    if "enabled" in options:
        changes["enabled"] = options["enabled"] == "true"
    return _shown(update_routine(_own(agent, options), changes).pk)


def _remove(agent: Agent, options: dict[str, Any]) -> dict[str, Any]:
    routine_id = _own(agent, options)
    if not options["hard"]:
        remove_routine(routine_id)
        return _shown(routine_id)
    shown = _shown(routine_id)  # before it is deleted
    remove_routine(routine_id, hard=True)
    return shown


def _own(agent: Agent, options: dict[str, Any]) -> str:
    """The id of a routine of this agent. RoutineNotFound."""
    routine_id: str = options["routine_id"]
    if not shown_routines(agent=agent, pk=routine_id).exists():
        raise RoutineNotFound(f"agent {agent.name!r} has no routine {routine_id!r}")
    return routine_id


def _shown(routine_id: str) -> dict[str, Any]:
    [routine] = _as_json(shown_routines(pk=routine_id))
    return {"routine": routine}


def _as_json(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """The routines as the API shows them, with what is spent of their caps."""
    found = [routine_of(row) for row in rows]
    caps = shown_caps(budget_of("automation", each.id, each.limits, zone=each.zone) for each in found)
    return [each.to_json() | {"limits": limits} for each, limits in zip(found, caps, strict=True)]
