"""Figures of the last 24 hours, of what is open now, and what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from automations.models import CronJob, RunRecord, RunState
from automations.runs import figures as runs
from automations.runs.describe import span
from automations.schedules.describe import describe_job
from config.operations.dashboard.parts import SHOWN, Part, Tile, ago, number, runs_url, short_span
from interfaces.admin.base import instant
from interfaces.admin.panels import Panel, label, link, link_to, list_url, table_panel
from sessions_app import metrics as counters
from sessions_app.metrics import Counted
from sessions_app.models import Delivery, DeliveryState, Session, SessionType, Turn, TurnState
from sessions_app.operations import figures as sessions

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
