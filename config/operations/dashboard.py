"""The admin's first page and its sidebar. Each part is shown to people who may view the rows that it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agent_core.execution import WAITING
from automations.models import Attention, CronJob, RunRecord, RunState, ScheduledMessage
from automations.models.health import health_of
from automations.runs import figures as runs
from automations.runs.describe import FAILED, NEEDS_LOOK, span, why_failed
from automations.schedules.describe import describe_job
from config.operations.status import LaneNow, lane_now
from interfaces.admin.panels import Panel, instant, label, link, link_to, list_url, outcome
from sessions_app.mailbox import updates
from sessions_app.models import (
    Agent,
    ConsentQuestion,
    Delivery,
    ExecutionState,
    Lane,
    MailboxEvent,
    Turn,
    TurnState,
    Worker,
)
from sessions_app.operations import figures as sessions

SHOWN = 10  # rows of a table
MOST_COUNTED = 10_000  # rows of a list that are counted
LONG_WAIT = 60.0  # seconds that a turn may wait
LATE = 60_000.0  # milliseconds of lateness that are worth a look
OPEN = (RunState.QUEUED, RunState.RUNNING)
OUTCOMES = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number at the top of the page. `tone`: `good`, `warn`, `bad` or nothing; `note` says it in words."""

    label: str
    value: str
    note: str
    url: str
    tone: str = ""


Part = Tile | Panel


def number(count: int, url: str) -> SafeString:
    """A count that leads to its list; `10,000 or more` where counting ends."""
    return link_to(url, f"{MOST_COUNTED:,} or more" if count == MOST_COUNTED else f"{count:,}")


def ago(since: datetime | None) -> str:
    """How long ago it was; a dash for None."""
    return "-" if since is None else span(timezone.now() - since)


def short_span(milliseconds: float) -> str:
    """`40 ms`, `2 min`."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    return span(timedelta(milliseconds=milliseconds))


def runs_url(*states: str, hour: datetime | None = None) -> str:
    """The list of runs: in one of these states if there are any, and of one hour (UTC) or of all time."""
    chosen = {"state__in" if len(states) > 1 else "state__exact": ",".join(states)} if states else {}
    if hour is not None:
        for end, time in (("from", f"{hour:%H}:00:00"), ("to", f"{hour:%H}:59:59.999999")):
            chosen |= {f"created_at_{end}_0": f"{hour:%Y-%m-%d}", f"created_at_{end}_1": time}
    return list_url(RunRecord, **chosen)


def workers() -> Iterator[Part]:
    """The number of live workers."""
    alive = len(sessions.live_workers())
    note, tone = ("run turns", "good") if alive else ("none: start one", "bad")
    yield Tile(label="Live workers", value=str(alive), note=note, url=list_url(Worker), tone=tone)


def failing_automations() -> Iterator[Part]:
    """Automations whose last run failed, whose last runs need attention, or that an error disabled."""
    found = runs.failing_jobs(SHOWN)
    aside = runs.set_aside_jobs()
    disabled = aside[:MOST_COUNTED].count()
    count = found.count + disabled
    yield Tile(
        label="Failing automations",
        value=f"{count:,}{' or more' if found.cut else ''}",
        note=f"{disabled:,} of them disabled by an error"
        if disabled
        else "the last run failed, or three needed attention",
        url=list_url(CronJob, fault__isempty="0") if disabled else runs_url(RunState.FAILED),
        tone="bad" if count else "good",
    )
    rows = [
        [link(job), str(job.agent), label("set aside"), job.fault, "-", "-"]
        for job in aside.select_related("agent__owner").order_by("-id")[:SHOWN]
    ]
    rows += [
        [
            link(run.of_job),
            str(run.of_job.agent),
            outcome(run.state, run.attention),
            NEEDS_LOOK[Attention(run.attention)] if run.attention else why_failed(run),
            link_to(list_url(RunRecord, job__id__exact=run.job_id), failures),
            link(run, run.finished_at),
        ]
        for run, failures in found.newest
    ]
    yield Panel(
        title="Automations that fail now",
        headers=["automation", "agent", "state", "why", "failures in 24 h", "last (UTC)"],
        rows=rows,
        more=runs_url(RunState.FAILED),
        wide=True,
    )


def failed_turns() -> Iterator[Part]:
    """Turns that failed in the last hour, by reason."""
    found = sessions.failed_turns(timedelta(hours=1))
    count, url = found.total(), list_url(Turn, state__exact=TurnState.FAILED)
    tone = "bad" if count else "good"
    yield Tile(label="Turns failed", value=f"{count:,}", note="in the last hour", url=url, tone=tone)
    yield Panel(
        title="Turns failed in the last hour",
        headers=["reason", "meaning", "turns"],
        rows=[
            [
                code or "-",
                FAILED.get(code, "see the turns"),
                link_to(list_url(Turn, state__exact=TurnState.FAILED, error_code__exact=code), f"{n:,}"),
            ]
            for code, n in found.most_common(SHOWN)
        ],
        more=url,
    )


def dead_deliveries() -> Iterator[Part]:
    """Deliveries that were given up."""
    dead, url = sessions.dead_deliveries(), list_url(Delivery, state__exact="failed")
    count = dead[:MOST_COUNTED].count()
    note, tone = ("send them again or discard them", "bad") if count else ("none was given up", "good")
    yield Tile(label="Dead deliveries", value=f"{count:,}", note=note, url=url, tone=tone)
    yield Panel(
        title="Dead deliveries",
        headers=["delivery", "channel", "why", "created (UTC)"],
        rows=[[link(row, row.pk), row.channel, row.last_error, row.created_at] for row in dead[:SHOWN]],
        more=url,
    )


def waiting() -> Iterator[Part]:
    """Queued turns, questions to people, retries and mailboxes."""
    lanes = {lane: lane_now(lane) for lane in Lane}
    count = sum(each.waiting for each in lanes.values())
    oldest = max((each.oldest_seconds for each in lanes.values() if each.waiting), default=0.0)
    yield Tile(
        label="Turns waiting",
        value=f"{count:,}",
        note=f"the oldest for {span(timedelta(seconds=oldest))}" if count else "nothing waits",
        url=list_url(Turn, state__exact=TurnState.QUEUED),
        tone="warn" if oldest > LONG_WAIT else "good",
    )
    plans, consents = sessions.waiting_executions(), sessions.open_consents()
    plans_url = list_url(ExecutionState, status__in=",".join(each.value for each in WAITING))
    mail_url = list_url(MailboxEvent, acknowledged_at__isempty="1", dropped_at__isempty="1")
    others: list[tuple[str, str, Any, str, Any]] = [
        ("plans with a question", "a person", plans, plans_url, plans),
        (
            "questions for consent",
            "a person",
            consents,
            list_url(ConsentQuestion, state__exact="open"),
            consents,
        ),
        (
            "runs before another attempt",
            "the time of the attempt",
            runs.retrying_runs(),
            list_url(RunRecord, not_before__isempty="0"),
            None,
        ),
        ("mailbox updates", "the next turn of their session", updates.unread(), mail_url, None),
    ]
    rows = [row for lane, now in lanes.items() for row in _lane_rows(lane, now)]
    for what, waits_on, found, url, asked in others:
        since = asked.values_list("asked_at", flat=True).first() if asked is not None else None
        rows.append([what, waits_on, number(found[:MOST_COUNTED].count(), url), ago(since)])
    yield Panel(
        title="What waits, and on whom", headers=["what", "waits on", "number", "the oldest for"], rows=rows
    )


def _lane_rows(lane: Lane, now: LaneNow) -> Iterator[list[Any]]:
    what = "messages of people" if lane == Lane.PEOPLE else "turns of automations"
    url = list_url(Turn, state__exact=TurnState.QUEUED, lane__exact=lane)
    free = max(0, now.waiting - now.inactive - now.refused)
    oldest = span(timedelta(seconds=now.oldest_seconds)) if now.waiting else "-"
    yield [what, "a worker, or their session", number(free, url), oldest]
    if now.refused:
        yield [what, "other turns of their users", number(now.refused, url), "-"]
    if now.inactive:
        yield [what, "their accounts, which are inactive", number(now.inactive, url), "-"]


def recent_runs() -> Iterator[Part]:
    """Lateness and outcomes of the runs of the last 24 hours."""
    found = runs.recent_runs()
    if found.lateness is not None:
        p50, p95, p99 = (short_span(value) for value in found.lateness)
        yield Tile(
            label="Lateness",
            value=p50,
            note=f"the median in 24 h; p95 {p95}, p99 {p99}",
            url=list_url(RunRecord),
            tone="warn" if found.lateness[2] > LATE else "good",
        )
    most = max((sum(counts.values()) for counts in found.hours.values()), default=0)
    cut = (
        f"Only the newest {runs.NEWEST:,} are counted, since {found.since:%H:%M} UTC." if found.since else ""
    )
    yield Panel(
        title="Runs per hour",
        headers=["hour (UTC)", "share", *OUTCOMES, "open"],
        rows=[_hour(hour, counts, most) for hour, counts in sorted(found.hours.items(), reverse=True)],
        more=list_url(RunRecord),
        note=cut,
        wide=True,
    )


def _hour(hour: datetime, counts: dict[str, int], most: int) -> list[Any]:
    still_open = sum(counts.get(state, 0) for state in OPEN)
    parts: list[tuple[str, tuple[str, ...], int]] = [
        *((state, (state,), counts.get(state, 0)) for state in OUTCOMES),
        ("open", OPEN, still_open),
    ]
    return [
        link_to(runs_url(hour=hour), f"{hour:%a %H:%M}"),
        _bar([(name, count) for name, _states, count in parts], most),
        *(number(count, runs_url(*states, hour=hour)) if count else "0" for _name, states, count in parts),
    ]


def _bar(counts: list[tuple[str, int]], most: int) -> SafeString:
    """A bar with a part for each state, as wide as its share of the fullest hour. The numbers stand beside it."""
    left, parts = 0.0, []
    for state, count in counts:
        width = 100 * count / (most or 1)
        parts.append((state, f"{left:.2f}", f"{width:.2f}"))
        left += width
    rects = format_html_join("", '<rect class="{}" x="{}" width="{}" height="10"/>', parts)
    return format_html(
        '<svg class="rondo-bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>',
        rects,
    )


def tokens() -> Iterator[Part]:
    """Tokens and their cost by agent."""
    yield Panel(
        title="Tokens and cost by agent",
        headers=["agent", "turns", "input", "output", "cost"],
        rows=[
            [
                link_to(
                    list_url(Turn, session__agent__id__exact=each.agent_id), f"{each.name} of {each.owner}"
                ),
                f"{each.turns:,}",
                f"{each.input_tokens:,}",
                f"{each.output_tokens:,}",
                str(each.cost),
            ]
            for each in sessions.tokens_by_agent(SHOWN)
        ],
        note=f"At most the newest {sessions.NEWEST_TURNS:,} turns of 24 hours are counted, by list prices.",
    )


def next_slots() -> Iterator[Part]:
    """The jobs and messages that are due next."""
    rows = []
    now = timezone.now()
    for at, thing in runs.next_slots(SHOWN):
        if isinstance(thing, CronJob):
            agent, what = thing.agent, describe_job(thing, thing.agent.timezone)
        else:
            agent, what = thing.session.agent, "scheduled message"
        wait = f"in {span(at - now)}" if at > now else f"overdue for {span(now - at)}"
        until = health_of(thing).backoff_until
        if until is not None and until > max(at, now):
            wait = f"skipped: slowed down until {instant(until)}"
        rows.append([at, wait, link(thing), what, str(agent)])
    headers = ["slot (UTC)", "when", "what", "schedule", "agent"]
    more = list_url(CronJob, enabled__exact=1)
    yield Panel(title="Next slots", headers=headers, rows=rows, more=more, wide=True)


PARTS: tuple[tuple[tuple[type[Model], ...], Callable[[], Iterator[Part]]], ...] = (
    ((Worker,), workers),
    ((CronJob, RunRecord), failing_automations),
    ((Turn,), failed_turns),
    ((Delivery,), dead_deliveries),
    ((Turn, ExecutionState, ConsentQuestion, RunRecord, MailboxEvent), waiting),
    ((RunRecord,), recent_runs),
    ((CronJob, ScheduledMessage), next_slots),
    ((Turn, Agent), tokens),
)


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The context of the admin's first page, with `tiles` and `panels`."""
    parts = [
        part for models, read in PARTS if all(may_view(request, model) for model in models) for part in read()
    ]
    return context | {
        "title": "Dashboard",
        "tiles": [part for part in parts if isinstance(part, Tile)],
        "panels": [part for part in parts if isinstance(part, Panel)],
    }


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whether the person may view this model's list in the admin."""
    return admin.site.get_model_admin(model).has_view_permission(request)


GROUPS = {  # by title: name of the link, model, icon
    "People": (
        ("Users", "auth.user", "person"),
        ("Groups", "auth.group", "group"),
        ("Tokens", "sessions_app.apitoken", "key"),
        ("Caps", "sessions_app.userlimits", "savings"),
        ("Sessions", "sessions_app.session", "forum"),
        ("Preferences", "sessions_app.preference", "tune"),
    ),
    "Agents": (
        ("Agents", "sessions_app.agent", "smart_toy"),
        ("Documents", "sessions_app.document", "description"),
        ("Hooks", "sessions_app.hook", "webhook"),
        ("Connections", "sessions_app.connection", "key"),
        ("Telegram bots", "sessions_app.telegrambot", "chat"),
    ),
    "Appointments": (
        ("Automations", "automations.cronjob", "event_repeat"),
        ("Runs", "automations.runrecord", "history"),
        ("Scheduled messages", "automations.scheduledmessage", "schedule_send"),
    ),
    "Turns": (
        ("Turns", "sessions_app.turn", "sync_alt"),
        ("Messages", "sessions_app.message", "chat"),
        ("Plans", "sessions_app.executionstate", "account_tree"),
        ("Questions for consent", "sessions_app.consentquestion", "help"),
    ),
    "Deliveries": (
        ("Deliveries", "sessions_app.delivery", "send"),
        ("Mailboxes", "sessions_app.mailboxevent", "inbox"),
    ),
    "Internals": (
        ("Processes", "sessions_app.process", "dns"),
        ("Workers", "sessions_app.worker", "memory"),
        ("Journal steps", "sessions_app.turnstep", "list"),
        ("Events", "sessions_app.event", "bolt"),
        ("Task states", "sessions_app.taskstate", "psychology"),
        ("Document revisions", "sessions_app.documentrevision", "restore_page"),
        ("Idempotency keys", "sessions_app.idempotencykey", "fingerprint"),
        ("Rate limits", "sessions_app.allowance", "speed"),
        ("Spending", "sessions_app.spending", "payments"),
        ("Reservations", "sessions_app.reservation", "hourglass"),
    ),
}


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups of links, without those to lists that the person may not view."""
    home = {"title": "Dashboard", "icon": "monitoring", "link": reverse("admin:index")}
    groups: list[dict[str, Any]] = [{"items": [home]}]
    for title, entries in GROUPS.items():
        items = [
            {"title": name, "icon": icon, "link": reverse(f"admin:{model.replace('.', '_')}_changelist")}
            for name, model, icon in entries
            if may_view(request, apps.get_model(model))
        ]
        if items:
            groups.append({"title": title, "separator": True, "items": items})
    return groups
