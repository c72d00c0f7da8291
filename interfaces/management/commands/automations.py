from __future__ import annotations

import json
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db.models.functions import Now

from automations import selectors
from automations.exceptions import BadJob, JobNotFound
from automations.jobs.edit import PAUSE, NewJob, bind_job, parse_api_schedule, update_job
from automations.jobs.explain import explain, next_run
from automations.jobs.failing import try_again, try_last_again
from automations.jobs.validate import CHOICES, choices_of
from automations.models import Attention, CronJob, RunState, ScheduleKind
from automations.runs.describe import describe_run, when
from automations.schedules.describe import describe_job, preview
from automations.schedules.zone_files import zone_or_utc
from interfaces.terminal.command import LinesCommand, choose_agent, choose_session, json_option
from sessions_app.models import Agent, ConsentState, Session
from sessions_app.questions.question_reads import questions_of
from sessions_app.questions.unattended import until
from sessions_app.sessions.open import primary_session
from sessions_app.spending.caps import budget_of, caps_in_words, caps_text

MOST_LISTED = 200
MOST_RUNS = 50
NULL = "null"  # removes what is set
LONGEST_NAME = 30  # characters in the list
_OF_SCHEDULE = ("cron", "rule", "every", "at", "starts_at", "timezone", "except", "except_holidays")


class Command(LinesCommand):
    help = "List, preview, add, change and explain the automations of an agent; list its runs, try failed ones again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        _of_session(parser, default=None)
        verbs = parser.add_subparsers(dest="verb", metavar="list | add | update | explain | runs | retry")
        listing = verbs.add_parser("list", help="list automations; without a verb, too")
        _of_session(listing)
        add = verbs.add_parser("add", help="add an automation, and show its next five runs")
        add.add_argument("message", help="what the agent is told at each run")
        _of_session(add)
        _fields(add, is_new=True)
        add.add_argument("--allow-duplicate", action="store_true", help="though there is an equal automation")
        add.add_argument("--preview", action="store_true", help="only show the next five runs; add nothing")
        update = verbs.add_parser("update", help="change the given fields of an automation")
        update.add_argument("id", help="its id, as `list` shows it")
        update.add_argument("--message", default=SUPPRESS, help="what the agent is told at each run")
        _fields(update, is_new=False)
        update.add_argument(
            "--enabled", choices=["true", "false"], default=SUPPRESS, help="false pauses it, true resumes it"
        )
        for name in ("--paused-from", "--paused-until"):
            update.add_argument(
                name, metavar="TIME", default=SUPPRESS, help="pause for a time; null ends that"
            )
        explaining = verbs.add_parser("explain", help="say why it ran or did not run, and when it runs next")
        explaining.add_argument("id", help="its id, as `list` shows it")
        running = verbs.add_parser("runs", help=f"list the newest {MOST_RUNS} runs of an agent")
        _of_agent(running)
        running.add_argument("--state", choices=RunState.values)
        running.add_argument("--attention", choices=[each for each in Attention.values if each])
        retrying = verbs.add_parser("retry", help="try the last run again if it has failed")
        retrying.add_argument(
            "id", help="the automation's id, as `list` shows it, or a run's, as `runs` does"
        )

    def lines(self, options: dict[str, Any]) -> Iterator[str]:
        verbs: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
            "add": _add,
            "update": _update,
            "explain": _explain,
            "runs": _runs,
            "retry": _retry,
        }
        return verbs.get(options["verb"] or "", _list)(options)


def _of_agent(parser: ArgumentParser, default: Any = SUPPRESS) -> None:
    """By default without a default, which would replace what was given before the verb."""
    help_ = "NAME, or USER/NAME; default: the only one"
    parser.add_argument("--agent", metavar="NAME", default=default, help=help_)


def _of_session(parser: ArgumentParser, default: Any = SUPPRESS) -> None:
    _of_agent(parser, default)
    help_ = "id or key of a session of the agent"
    parser.add_argument("--session", metavar="ID", default=default, help=help_)


def _fields(parser: ArgumentParser, *, is_new: bool) -> None:
    """The options that `add` and `update` share. Those that are not given are missing; null removes what is set."""
    when_ = parser.add_mutually_exclusive_group(required=is_new)
    when_.add_argument("--cron", metavar="FIELDS", help='five fields, such as "0 9 * * 1-5"')
    when_.add_argument(
        "--rule", metavar="RULE", help='by RFC 5545, such as "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO"'
    )
    when_.add_argument("--every", metavar="SECONDS", type=int, help="an interval, such as 300")
    when_.add_argument("--at", metavar="TIME", help="once, such as 2031-05-01T09:00")
    parser.add_argument("--starts-at", metavar="TIME", help="local time from which a --rule counts")
    parser.add_argument("--timezone", metavar="ZONE", help="of --cron or --rule; default: the agent's")
    parser.add_argument(
        "--except", metavar="DATES", help="of --cron or --rule: days without runs, with commas"
    )
    parser.add_argument(
        "--except-holidays", metavar="DE", help="of --cron or --rule: nor on these public holidays"
    )
    given: dict[str, dict[str, Any]] = {
        "--name": {"help": "default: the beginning of the message"},
        "--model": {"help": "asked in place of the agent's model"},
        "--fallback-model": {"help": "asked in place of the agent's fallback model"},
        "--max-output-tokens": {"metavar": "N", "type": _number, "help": "the most tokens of one reply"},
        "--tools": {"metavar": "NAMES", "help": "the only tools that it is offered, with commas"},
        "--watch": {"metavar": "URL", "help": "run only if this public address answers differently"},
        "--pointer": {"metavar": "POINTER", "help": "with --watch: only this JSON value counts"},
        "--limits": {"metavar": "JSON", "help": 'caps of its runs: {"day": {"usd": "1.00"}}'},
    }
    for name, about in given.items():
        parser.add_argument(name, default=SUPPRESS, **about)


def _number(text: str) -> int | None:
    return None if text == NULL else int(text)


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
        firing = next_run(job.pk)
        state = job.state if job.enabled else "paused"
        words = describe_job(job, zone.key)
        about = (
            f"{words}; next: {when(firing, zone) if firing else '-'}{_chosen(job)}{_money(job, used[job.pk])}"
        )
        yield f"{job.pk:10} {state:10} {job.name[:LONGEST_NAME]:{LONGEST_NAME}}  {about}"
    if not found:
        yield f"{chosen.name} has no automations" + (" in this session." if opened else ".")
    yield from _open_questions(chosen, opened)


def _open_questions(agent: Agent, opened: Session | None) -> Iterator[str]:
    """What scheduled turns ask the owner, and where to answer."""
    asked = questions_of(agent.owner, ConsentState.OPEN).filter(session__agent=agent, expires_at__gt=Now())
    for each in asked.filter(session=opened) if opened else asked:
        tools = ", ".join(call.get("words") or call["name"] for call in each.calls)
        where = f"{settings.RONDO_COMMAND} chat --session {each.session_id}"
        yield f"Question #{each.pk}: may it use {tools}? Until {until(each, agent)}; answer it by `{where}`"


def _chosen(job: CronJob) -> str:
    """What the automation has of its own."""
    return "".join(
        f"; {name}: {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in choices_of(job).items()
    )


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


def _update(options: dict[str, Any]) -> Iterator[str]:
    job, _session = _bound_job(options)
    changes = _choices(options) | {name: options[name] for name in ("message",) if name in options}
    if "enabled" in options:
        changes["enabled"] = options["enabled"] == "true"
    for name in PAUSE & options.keys():
        changes[name] = None if options[name] == NULL else options[name]
    if any(options[each] is not None for each in _OF_SCHEDULE):
        changes["schedule"] = _schedule(options)
    yield f"Changed {update_job(job.pk, changes).name}."
    yield from _explain(options)


def _choices(options: dict[str, Any]) -> dict[str, Any]:
    """The given name, models, tools, gate and caps as the API takes them. BadJob."""
    found = {name: options[name] for name in ("name", *CHOICES) if name in options}
    if "tools" in options:
        names = [each.strip() for each in options["tools"].split(",") if each.strip()]
        found["allow_tools"] = None if names == [NULL] else names
    if options.get("pointer") and options.get("watch", NULL) == NULL:
        raise BadJob("--pointer belongs to --watch", code="bad_gate")
    if "watch" in options:
        gate = {"kind": "http_changed", "url": options["watch"], "pointer": options.get("pointer", "")}
        found["gate"] = None if options["watch"] == NULL else gate
    if "limits" in options:
        found["limits"] = json_option("limits", options["limits"])
    return found


def _session_to_use(options: dict[str, Any]) -> Session:
    if options["session"]:
        return choose_session(options["session"], options["agent"])
    return primary_session(choose_agent(options["agent"]))


def _schedule(options: dict[str, Any]) -> dict[str, Any]:
    """The schedule as the API takes it. BadJob."""
    more = {name: options[name] for name in ("timezone", "except_holidays") if options[name]}
    if options["except"]:
        more["except"] = options["except"].replace(",", " ").split()
    if more and options["cron"] is None and options["rule"] is None:
        name = next(iter(more)).replace("_", "-")
        raise BadJob(
            f"--{name} belongs to --cron or --rule; an --at may have an offset, such as 2031-05-01T09:00+02:00"
        )
    if options["starts_at"] and options["rule"] is None:
        raise BadJob("--starts-at belongs to --rule")
    if options["every"] is not None:
        return {"kind": ScheduleKind.EVERY, "seconds": options["every"]}
    if options["at"] is not None:
        return {"kind": ScheduleKind.AT, "at": options["at"]}
    if options["rule"] is not None:
        return {
            "kind": ScheduleKind.RRULE,
            "rule": options["rule"],
            "starts_at": options["starts_at"],
            **more,
        }
    return {"kind": ScheduleKind.CRON, "expr": options["cron"], **more}


def _bound_job(options: dict[str, Any]) -> tuple[CronJob, Session]:
    """The automation of this id, and its session. JobNotFound."""
    job = (
        CronJob.objects.select_related("session__owner", "agent")
        .filter(pk=options["id"].replace("\0", ""))
        .first()
    )
    if job is None or job.session is None:
        raise JobNotFound
    return job, job.session


def _runs(options: dict[str, Any]) -> Iterator[str]:
    agent = choose_agent(options["agent"])
    wanted = {name: options[name] for name in ("state", "attention") if options[name]}
    zone = zone_or_utc(agent.timezone)
    found = selectors.runs_of_user(agent.owner, wanted | {"agent_name": agent.name}).newest(MOST_RUNS)
    for run in found:
        cost = f" ${run.usage['usd']}" if "usd" in run.usage else ""
        about = f"{run.state:10} {run.attention or '-':13} {describe_run(run, zone)}{cost}"
        yield f"{run.run_id:32} {when(run.scheduled_for, zone)}  {about}"
    if not found:
        yield f"{agent.name} has no such runs."


def _retry(options: dict[str, Any]) -> Iterator[str]:
    given = options["id"].replace("\0", "")
    run = try_again(given) if ":" in given else try_last_again(_bound_job(options)[0].pk)
    job = run.of_job
    yield f"{job.name}: attempt {run.attempt} of its slot at {when(run.scheduled_for, zone_or_utc(job.timezone))}."


def _explain(options: dict[str, Any]) -> Iterator[str]:
    job, session = _bound_job(options)
    found = explain(session.owner, job.pk)
    yield f"{job.name}: {found.words} ({found.state})"
    yield found.now
    if found.next:
        yield "Next runs:"
        yield from (f"  {instant:%a %Y-%m-%d %H:%M:%S %Z}" for instant in found.next)
    used = selectors.usage_of_runs(job.pk)
    if job.limits:
        budget = budget_of("automation", job.pk, job.limits, zone=job.agent.timezone)
        yield f"Limits: {' '.join(caps_in_words(budget, is_partial=used.cost.is_partial).values())}"
    yield from (each for each in [_chosen(job).removeprefix("; ")] if each)
    if used.runs:
        yield f"Last 30 days: {used.words}"
    if found.last:
        yield "Last runs:"
        yield from (f"  {run.scheduled_for:%a %Y-%m-%d %H:%M:%S %Z}  {run.text}" for run in found.last)
    yield from (f"Warning: {text}" for text in found.warnings)
