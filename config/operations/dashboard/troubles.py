"""What fails now and why, and what waits and on whom."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings

from agent_core.execution import WAITING
from automations.models import CronJob, RunRecord, RunState
from automations.runs import figures as runs
from automations.runs.describe import FAILED, span, why_failed
from config.operations.dashboard.parts import MOST_COUNTED, SHOWN, Part, Tile, ago, number, runs_url
from config.operations.status import LaneNow, lane_now
from interfaces.admin.base import instant
from interfaces.admin.panels import Panel, label, link, link_to, list_url, table_panel
from sessions_app.models import (
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
    unread = sessions.unacknowledged_mail()[:MOST_COUNTED].count()
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
