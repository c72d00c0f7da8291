"""The dashboard of the admin. Each part is shown to people who may view the rows that it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agent_core.execution import WAITING
from automations.models import CronJob, RunRecord, RunState, ScheduledMessage
from automations.runs import figures as runs
from automations.runs.describe import FAILED, span, why_failed
from automations.schedules.describe import describe_job
from config.operations.status import LaneNow, lane_now
from interfaces.admin.base import instant
from interfaces.admin.panels import Panel, label, link, link_to, list_url, table_panel
from sessions_app import metrics as counters
from sessions_app.mailbox import updates
from sessions_app.metrics import Counted
from sessions_app.models import (
    Agent,
    ConsentQuestion,
    Delivery,
    DeliveryState,
    ExecutionState,
    Lane,
    MailboxEvent,
    Session,
    SessionType,
    Turn,
    TurnState,
    Worker,
)
from sessions_app.operations import figures as sessions

SHOWN = 10  # rows of a table
MOST_COUNTED = 10_000  # rows of a list that are counted


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
    chosen: dict[str, str] = {}
    if states:
        chosen = {"state__in": ",".join(states)} if len(states) > 1 else {"state__exact": states[0]}
    if hour is not None:
        day = f"{hour:%Y-%m-%d}"
        chosen |= {
            "created_at_from_0": day,
            "created_at_from_1": f"{hour:%H}:00:00",
            "created_at_to_0": day,
            "created_at_to_1": f"{hour:%H}:59:59.999999",
        }
    return list_url(RunRecord, **chosen)


LONG_WAIT = 60.0  # seconds
_WAITING = ",".join(each.value for each in WAITING)


def workers_part() -> Iterator[Part]:
    """The number of live workers."""
    alive = len(sessions.live_workers(settings.RONDO_WORKER_LOST_SECONDS))
    note = "run turns" if alive else "none: start one"
    tone = "good" if alive else "bad"
    yield Tile(label="Live workers", value=str(alive), note=note, url=list_url(Worker), tone=tone)


def failing() -> Iterator[Part]:
    """Automations whose last run failed, or that an error disabled."""
    found = runs.failing_jobs(SHOWN)
    aside = runs.set_aside_jobs()
    disabled = aside[:MOST_COUNTED].count()
    count = found.count + disabled
    yield Tile(
        label="Failing automations",
        value=f"{count:,}{' or more' if found.cut else ''}",
        note=f"{disabled:,} of them disabled by an error" if disabled else "the last run failed, in 24 h",
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
            label(run.state),
            why_failed(run),
            link_to(list_url(RunRecord, job__id__exact=run.job_id, state__exact=RunState.FAILED), failures),
            link(run, instant(run.finished_at)),
        ]
        for run, failures in found.newest
    ]
    headers = ["automation", "agent", "state", "why", "failures in 24 h", "last (UTC)"]
    more = runs_url(RunState.FAILED)
    yield Panel(title="Automations that fail now", headers=headers, rows=rows, more=more, wide=True)


def failed_turns_part() -> Iterator[Part]:
    """Turns that failed in the last hour, by reason."""
    found = sessions.failed_turns(timedelta(hours=1))
    count = found.total()
    everything = list_url(Turn, state__exact=TurnState.FAILED)
    yield Tile(
        label="Turns failed",
        value=f"{count:,}",
        note="in the last hour",
        url=everything,
        tone="bad" if count else "good",
    )
    yield table_panel(
        "Turns failed in the last hour",
        ["reason", "meaning", "turns"],
        [
            [
                code or "-",
                FAILED.get(code, "see the turns"),
                link_to(list_url(Turn, state__exact=TurnState.FAILED, error_code__exact=code), f"{n:,}"),
            ]
            for code, n in found.most_common(SHOWN)
        ],
        more=everything,
    )


def dead_deliveries_part() -> Iterator[Part]:
    """Deliveries that were given up."""
    dead = sessions.dead_deliveries()
    count = dead[:MOST_COUNTED].count()
    url = list_url(Delivery, state__exact="failed")
    yield Tile(
        label="Dead deliveries",
        value=f"{count:,}",
        note="send them again or discard them" if count else "none was given up",
        url=url,
        tone="bad" if count else "good",
    )
    yield table_panel(
        "Dead deliveries",
        ["delivery", "channel", "why", "created (UTC)"],
        [
            [link(row, str(row.pk)), row.channel, row.last_error, instant(row.created_at)]
            for row in dead[:SHOWN]
        ],
        more=url,
    )


def waiting() -> Iterator[Part]:
    """Queued turns, questions to people, retries and mailboxes."""
    lanes = {lane: lane_now(lane) for lane in Lane}
    waiting = sum(each.waiting for each in lanes.values())
    oldest = max((each.oldest_seconds for each in lanes.values() if each.waiting), default=0.0)
    yield Tile(
        label="Turns waiting",
        value=f"{waiting:,}",
        note=f"the oldest for {span(timedelta(seconds=oldest))}" if waiting else "nothing waits",
        url=list_url(Turn, state__exact=TurnState.QUEUED),
        tone="warn" if oldest > LONG_WAIT else "good",
    )
    rows = [row for lane, now in lanes.items() for row in _lane_rows(lane, now)]
    for what, on, found, url in (
        (
            "plans with a question",
            "a person",
            sessions.waiting_executions(),
            list_url(ExecutionState, status__in=_WAITING),
        ),
        (
            "questions for consent",
            "a person",
            sessions.open_consents(),
            list_url(ConsentQuestion, state__exact="open"),
        ),
    ):
        first = found.values_list("asked_at", flat=True).first()
        rows.append([what, on, number(found[:MOST_COUNTED].count(), url), ago(first)])
    retries = runs.retrying_runs()[:MOST_COUNTED].count()
    again = list_url(RunRecord, not_before__isempty="0")
    rows.append(["runs before another attempt", "the time of the attempt", number(retries, again), "-"])
    unread = updates.unread()[:MOST_COUNTED].count()
    mail = list_url(MailboxEvent, acknowledged_at__isempty="1", dropped_at__isempty="1")
    rows.append(["mailbox updates", "the next turn of their session", number(unread, mail), "-"])
    yield table_panel("What waits, and on whom", ["what", "waits on", "number", "the oldest for"], rows)


def _lane_rows(lane: Lane, now: LaneNow) -> list[list[Any]]:
    what = "messages of people" if lane == Lane.PEOPLE else "turns of automations"
    url = list_url(Turn, state__exact=TurnState.QUEUED, lane__exact=lane)
    free = now.waiting - now.inactive - now.refused
    oldest = span(timedelta(seconds=now.oldest_seconds)) if now.waiting else "-"
    rows = [[what, "a worker, or their session", number(max(0, free), url), oldest]]
    if now.refused:
        rows.append([what, "other turns of their users", number(now.refused, url), "-"])
    if now.inactive:
        rows.append([what, "their accounts, which are inactive", number(now.inactive, url), "-"])
    return rows


HOURS = 24
LATE = 60_000.0  # milliseconds of lateness that are worth a look
OPEN = (RunState.QUEUED, RunState.RUNNING)
OUTCOMES = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED)


def runs_part() -> Iterator[Part]:
    """Lateness and outcomes of the runs of the last 24 hours."""
    found = runs.recent_runs()
    cut = (
        f"Only the newest {runs.NEWEST:,} are counted, since {found.since:%H:%M} UTC." if found.since else ""
    )
    if found.lateness is not None:
        p50, p95, p99 = (short_span(value) for value in found.lateness)
        yield Tile(
            label="Lateness",
            value=p50,
            note=f"the median in 24 h; p99 {p99}",
            url=list_url(RunRecord),
            tone="warn" if found.lateness[2] > LATE else "good",
        )
        text = f"From the slot until it was fired, of {found.count:,} runs in 24 hours. {cut}"
        yield table_panel("Lateness", ["p50", "p95", "p99"], [[p50, p95, p99]], note=text)
    yield _per_hour(found.hours, cut)


def _per_hour(found: dict[datetime, dict[str, int]], cut: str) -> Panel:
    most = max((sum(counts.values()) for counts in found.values()), default=0)
    begin = timezone.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [begin - timedelta(hours=n) for n in range(HOURS + 1)]
    return Panel(
        title="Runs per hour",
        headers=["hour (UTC)", "share", *OUTCOMES, "open"],
        rows=[_hour(hour, found.get(hour, {}), most) for hour in hours],
        more=list_url(RunRecord),
        note=cut,
        wide=True,
    )


def _hour(hour: datetime, counts: dict[str, int], most: int) -> list[Any]:
    still_open = sum(counts.get(state, 0) for state in OPEN)
    shown = [(str(state), counts.get(state, 0)) for state in OUTCOMES]
    cells = [number(count, runs_url(state, hour=hour)) if count else "0" for state, count in shown]
    return [
        link_to(runs_url(hour=hour), f"{hour:%a %H:%M}"),
        _bar([*shown, ("open", still_open)], most),
        *cells,
        number(still_open, runs_url(*OPEN, hour=hour)) if still_open else "0",
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


def queues() -> Iterator[Part]:
    """Running and queued turns by the queue of their hints."""
    rows = [
        [
            name,
            number(queue.running, list_url(Turn, state__exact=TurnState.RUNNING, lane__exact=queue.lane)),
            number(queue.queued, list_url(Turn, state__exact=TurnState.QUEUED, lane__exact=queue.lane)),
            ago(queue.oldest),
        ]
        for name, queue in list(sessions.turns_by_queue().items())[:SHOWN]
    ]
    yield table_panel("Turns by queue", ["queue", "running", "queued", "the oldest for"], rows)


def deliveries() -> Iterator[Part]:
    """Deliveries by state: what is open now, and what was made in the last 24 hours."""
    now, recent = sessions.open_deliveries(), sessions.recent_deliveries()
    rows = [
        [
            label(state),
            number(now[state], list_url(Delivery, state__exact=state)) if state in now else "-",
            number(recent.get(state, 0), list_url(Delivery, state__exact=state)),
        ]
        for state in DeliveryState
    ]
    cut = f"At most the newest {sessions.NEWEST:,} of 24 hours are counted."
    yield table_panel("Deliveries", ["state", "now", "made in 24 h"], rows, note=cut)


def heartbeats() -> Iterator[Part]:
    """What heartbeats came to, since counting began."""
    found = {figure.name: figure.value for figure in counters.figures()}
    url = list_url(Session, type__exact=SessionType.HEARTBEAT)
    rows = [
        [words, number(found.get(name, 0), url)]
        for words, name in (
            ("delivered: there was something to report", Counted.HEARTBEAT_DELIVER),
            ("suppressed: there was nothing to report", Counted.HEARTBEAT_SUPPRESS),
            ("skipped: their session was busy", Counted.HEARTBEAT_SKIPPED),
        )
    ]
    yield table_panel(
        "Heartbeats", ["heartbeats", "number"], rows, note="All since counting began, as in /metrics."
    )


def tokens() -> Iterator[Part]:
    """Tokens and their cost by agent."""
    rows = [
        [
            link_to(list_url(Turn, session__agent__id__exact=each.agent_id), f"{each.name} of {each.owner}"),
            f"{each.turns:,}",
            f"{each.input_tokens:,}",
            f"{each.output_tokens:,}",
            str(each.cost),
        ]
        for each in sessions.tokens_by_agent(SHOWN)
    ]
    note = f"At most the newest {sessions.NEWEST_TURNS:,} turns of 24 hours are counted, by list prices."
    yield table_panel(
        "Tokens and cost by agent", ["agent", "turns", "input", "output", "cost"], rows, note=note
    )


def next_slots_part() -> Iterator[Part]:
    """What is due next."""
    rows = []
    now = timezone.now()
    for at, thing in runs.next_slots(SHOWN):
        if isinstance(thing, CronJob):
            agent, what = thing.agent, describe_job(thing, thing.agent.timezone)
        else:
            agent, what = thing.session.agent, "scheduled message"
        wait = f"in {span(at - now)}" if at > now else f"overdue for {span(now - at)}"
        rows.append([instant(at), wait, link(thing), what, str(agent)])
    headers = ["slot (UTC)", "when", "what", "schedule", "agent"]
    yield table_panel("Next slots", headers, rows, more=list_url(CronJob, enabled__exact=1), wide=True)


PARTS: tuple[tuple[tuple[type[Model], ...], Callable[[], Iterator[Part]]], ...] = (
    ((Worker,), workers_part),
    ((CronJob, RunRecord), failing),
    ((Turn,), failed_turns_part),
    ((Delivery,), dead_deliveries_part),
    ((Turn, ExecutionState, ConsentQuestion, RunRecord, MailboxEvent), waiting),
    ((RunRecord,), runs_part),
    ((CronJob, ScheduledMessage), next_slots_part),
    ((Turn,), queues),
    ((Delivery,), deliveries),
    ((Session,), heartbeats),
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
