from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db.models.functions import Now

from automations import selectors
from automations.exceptions import BadJob, JobNotFound
from automations.jobs.edit import NewJob, bind_job, parse_api_schedule
from automations.jobs.explain import explain
from automations.jobs.failing import try_last_again
from automations.models import CronJob, ScheduleKind
from automations.runs.describe import when
from automations.schedules.describe import describe_job, preview
from automations.schedules.zone_files import zone_or_utc
from interfaces.terminal.command import choose_agent, choose_session, errors_in_one_line, plain
from sessions_app.models import Agent, ConsentState, Session
from sessions_app.questions.question_reads import questions_of
from sessions_app.questions.unattended import until
from sessions_app.sessions.open import primary_session
from sessions_app.spending.caps import caps_text

MOST_LISTED = 200
LONGEST_NAME = 30  # characters in the list


class Command(BaseCommand):
    help = "List, preview, add and explain the automations of an agent, and try their failed runs again."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", metavar="list | add | explain | retry")
        listing = verbs.add_parser("list", help="list automations; without a verb, too")
        _of_session(listing)
        add = verbs.add_parser("add", help="add an automation, and show its next five runs")
        add.add_argument("message", help="what the agent is told at each run")
        _of_session(add)
        when_ = add.add_mutually_exclusive_group(required=True)
        when_.add_argument("--cron", metavar="FIELDS", help='five fields, such as "0 9 * * 1-5"')
        when_.add_argument("--every", metavar="SECONDS", type=int, help="an interval, such as 300")
        when_.add_argument("--at", metavar="TIME", help="once, such as 2031-05-01T09:00")
        add.add_argument("--timezone", metavar="ZONE", help="of --cron; default: the agent's")
        add.add_argument("--name", default="", help="default: the beginning of the message")
        add.add_argument("--model", default="", help="asked in place of the agent's model")
        add.add_argument("--fallback-model", default="", help="asked in place of the agent's fallback model")
        add.add_argument("--max-output-tokens", metavar="N", type=int, help="the most tokens of one reply")
        add.add_argument("--tools", metavar="NAMES", help="the only tools that it is offered, with commas")
        add.add_argument("--watch", metavar="URL", help="run only if this public address answers differently")
        add.add_argument("--pointer", metavar="POINTER", help="with --watch: only this JSON value counts")
        add.add_argument("--limits", metavar="JSON", help='caps of its runs: {"day": {"usd": "1.00"}}')
        add.add_argument("--allow-duplicate", action="store_true", help="though there is an equal automation")
        add.add_argument("--preview", action="store_true", help="only show the next five runs; add nothing")
        explaining = verbs.add_parser("explain", help="say why it ran or did not run, and when it runs next")
        explaining.add_argument("id", help="its id, as `list` shows it")
        retrying = verbs.add_parser("retry", help="try the last run again if it has failed")
        retrying.add_argument("id", help="the automation's id, as `list` shows it")

    def handle(self, *args: Any, verb: str | None, **options: Any) -> None:
        """Exit code 1 with one line if it is refused."""
        verbs: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
            "add": _add,
            "explain": _explain,
            "retry": _retry,
        }
        with errors_in_one_line():
            for line in verbs.get(verb or "", _list)(options):
                self.stdout.write(plain(line))


def _of_session(parser: ArgumentParser) -> None:
    parser.add_argument("--agent", metavar="NAME", help="NAME, or USER/NAME; default: the only one")
    parser.add_argument("--session", metavar="ID", help="id or key of a session of the agent")


def _list(options: dict[str, Any]) -> Iterator[str]:
    agent, session = options.get("agent"), options.get("session")
    opened = choose_session(session, agent) if session else None
    chosen = opened.agent if opened else choose_agent(agent)
    rows = selectors.automations(chosen.owner).filter(agent=chosen)
    rows = selectors.automations_of(chosen.owner, opened.pk) if opened else rows
    found = list(rows.order_by("created_at", "id")[:MOST_LISTED])
    used = {job.pk: selectors.usage_of_runs(job.pk) for job in found}
    for job in found:
        zone = zone_or_utc(job.timezone)
        firing = job.clock.next_run_at
        next_run = when(firing, zone) if firing and job.enabled else "-"
        state = selectors.state_of(job) if job.enabled else "paused"
        words = describe_job(job, zone.key)
        about = f"{words}; next: {next_run}{_money(job, used[job.pk])}"
        yield f"{job.pk:10} {state:10} {job.name[:LONGEST_NAME]:{LONGEST_NAME}}  {about}"
    if not found:
        yield f"{chosen.name} has no automations" + (" in this session." if opened else ".")
    yield from _open_questions(chosen, opened)


def _open_questions(agent: Agent, opened: Session | None) -> Iterator[str]:
    """What scheduled turns ask the owner, and where to answer."""
    asked = questions_of(agent.owner, ConsentState.OPEN).filter(session__agent=agent, expires_at__gt=Now())
    for each in asked.filter(session=opened) if opened else asked:
        tools = ", ".join(call["name"] for call in each.calls)
        where = f"{settings.RONDO_COMMAND} chat --session {each.session_id}"
        yield f"Question #{each.pk}: may it use {tools}? Until {until(each, agent)}; answer it by `{where}`"


def _money(job: CronJob, used: selectors.RunsUsage) -> str:
    """The automation's caps, and the cost of its runs in the last 30 days."""
    caps = f"; limits: {caps_text(job.limits)}" if job.limits else ""
    if not used.runs:
        return caps
    cost = "cost unknown" if used.is_unknown else f"${used.usd}, ${used.usd_per_run} a run"
    return f"{caps}; runs in 30 days: {used.runs}, {cost}"


def _add(options: dict[str, Any]) -> Iterator[str]:
    session = _session_to_use(options)
    zone = session.agent.timezone
    schedule = _schedule(options)
    now = datetime.now(UTC)
    shown = preview(parse_api_schedule(schedule, zone, now), now, zone=zone)
    if not options["preview"]:
        given = NewJob(
            session_id=session.pk,
            message=options["message"],
            name=options["name"],
            schedule=schedule,
            allow_duplicate=options["allow_duplicate"],
            **_choices(options),
        )
        job = bind_job(given)
        yield f"Added {job.pk}: {job.name}"
        if job.limits:
            yield f"Limits: {caps_text(job.limits)}"
    yield f"Runs {shown.words}:"
    yield from (f"  {instant:%a %Y-%m-%d %H:%M:%S %Z}" for instant in shown.next)
    yield from (f"Warning: {text}" for text in shown.warnings)


def _choices(options: dict[str, Any]) -> dict[str, Any]:
    """Models, tools and gate as the API takes them. BadJob."""
    if options["pointer"] and not options["watch"]:
        raise BadJob("--pointer belongs to --watch", code="bad_gate")
    gate = {"kind": "http_changed", "url": options["watch"], "pointer": options["pointer"] or ""}
    names = options["tools"]
    return {
        **{name: options[name] for name in ("model", "fallback_model", "max_output_tokens")},
        "allow_tools": None if names is None else [each.strip() for each in names.split(",") if each.strip()],
        "gate": gate if options["watch"] else None,
        "limits": _limits(options["limits"]),
    }


def _limits(text: str | None) -> Any:
    """Caps as the API takes them. BadJob."""
    if text is None:
        return {}
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadJob(f"--limits must be JSON, not {text[:60]!r}", code="bad_limits") from error


def _session_to_use(options: dict[str, Any]) -> Session:
    if options["session"]:
        return choose_session(options["session"], options["agent"])
    return primary_session(choose_agent(options["agent"]))


def _schedule(options: dict[str, Any]) -> dict[str, Any]:
    """The schedule as the API takes it. BadJob."""
    if options["timezone"] and options["cron"] is None:
        raise BadJob(
            "--timezone belongs to --cron; an --at may have an offset, such as 2031-05-01T09:00+02:00"
        )
    if options["every"] is not None:
        given: dict[str, Any] = {"kind": ScheduleKind.EVERY, "seconds": options["every"]}
    elif options["at"] is not None:
        given = {"kind": ScheduleKind.AT, "at": options["at"]}
    else:
        given = {"kind": ScheduleKind.CRON, "expr": options["cron"]}
    return given | ({"timezone": options["timezone"]} if options["timezone"] else {})


def _bound_job(options: dict[str, Any]) -> tuple[CronJob, Session]:
    """The automation of this id, and its session. JobNotFound."""
    job = CronJob.objects.select_related("session__owner").filter(pk=options["id"].replace("\0", "")).first()
    if job is None or job.session is None:
        raise JobNotFound
    return job, job.session


def _retry(options: dict[str, Any]) -> Iterator[str]:
    job, _session = _bound_job(options)
    run = try_last_again(job.pk)
    yield f"{job.name}: attempt {run.attempt} of its slot at {when(run.scheduled_for, zone_or_utc(job.timezone))}."


def _explain(options: dict[str, Any]) -> Iterator[str]:
    job, session = _bound_job(options)
    found = explain(session.owner, job.pk)
    yield f"{job.name}: {found.words} ({found.state})"
    yield found.now
    if found.next:
        yield "Next runs:"
        yield from (f"  {instant:%a %Y-%m-%d %H:%M:%S %Z}" for instant in found.next)
    if found.last:
        yield "Last runs:"
        yield from (f"  {run.scheduled_for:%a %Y-%m-%d %H:%M:%S %Z}  {run.text}" for run in found.last)
    yield from (f"Warning: {text}" for text in found.warnings)
