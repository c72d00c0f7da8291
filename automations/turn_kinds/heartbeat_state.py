"""The state that a heartbeat without tasks is shown: routines, briefing, HEARTBEAT.md, intents. One statement."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef

from agent_core.text import fence
from automations.heartbeats.briefing import briefing_of, briefing_rows, json_rows
from automations.jobs.removed_routines import latest_removed
from automations.models import CronJob, ExecutionMode, JobClock, ScheduleKind
from automations.routines import heartbeat_document, reflection
from automations.routines.heartbeat_document import Corruption
from automations.routines.heartbeat_md import prose
from automations.routines.plan import routine_schedule_text
from automations.schedules.zone_files import zone_or_utc
from sessions_app.models import Agent, Document
from sessions_app.single_line import one_line

MOST_ROUTINES = 50
MOST_REMOVED = 20
LONGEST_LINE = 200  # characters
LONGEST_BLOCK = 20_000  # characters of a broken block
_JOB = ("id", "name", "description", "execution_mode", "enabled", "timezone")
_SCHEDULE = ("schedule_kind", "expr", "every_seconds")


def state_variables(agent: Agent) -> dict[str, str]:
    """The variables of a reflection's prompt, all of them blocks."""
    found = Agent.objects.filter(pk=agent.pk).only("pk")
    row: Any = found.annotate(**briefing_rows(agent), **_rows()).first()
    routines = [_routine(each) for each in row.routines] if row else []
    done = [each for each in routines if each.schedule_kind == ScheduleKind.AT and _next(each) is None]
    listed = [each for each in routines if each not in done]
    documents = {each["name"]: each for each in row.texts} if row else {}
    broken, notes = _read_heartbeat_md(agent, documents.get(heartbeat_document.NAME))
    return {
        "routines": _block("routines", "\n".join([*map(_line, listed), *_removed(row)])),
        "finished": _block("finished", "\n".join(map(_line, done))),
        "briefing": briefing_of(row, agent, whole=True),
        "notes": _block("HEARTBEAT.md", notes, fence.INSTRUCTIONS),
        "warning": _warning(broken),
        "intents": _intents(documents.get(reflection.MEMORY)),
    }


def _rows() -> dict[str, ArraySubquery]:
    routines = CronJob.objects.filter(agent=OuterRef("pk")).exclude(execution_mode=ExecutionMode.SESSION)
    # enabled ones first; disabled ones are listed so that they are not registered again
    ordered = routines.order_by("-enabled", "-created_at", "pk")[:MOST_ROUTINES]
    named = Document.objects.filter(
        agent=OuterRef("pk"), name__in=[heartbeat_document.NAME, reflection.MEMORY]
    )
    return {
        "routines": json_rows(ordered, *_JOB, *_SCHEDULE, "clock__next_run_at"),
        "removed": ArraySubquery(latest_removed(OuterRef("pk")).values("title")[:MOST_REMOVED]),
        "texts": json_rows(named, "name", "content", "revision"),
    }


def _routine(row: Mapping[str, Any]) -> CronJob:
    following = row["clock__next_run_at"]
    job = CronJob(**{name: row[name] for name in (*_JOB, *_SCHEDULE)})
    job.clock = JobClock(next_run_at=datetime.fromisoformat(following) if following else None)
    return job


def _next(row: CronJob) -> datetime | None:
    return row.clock.next_run_at


def _read_heartbeat_md(agent: Agent, row: Mapping[str, Any] | None) -> tuple[Corruption | None, str]:
    """The corruption of HEARTBEAT.md, if any, and its prose."""
    if row is None:
        return None, ""
    return heartbeat_document.corruption_of(row["content"], agent, row["revision"]), prose(row["content"])


def _intents(memory: Mapping[str, Any] | None) -> str:
    """The intents of MEMORY.md with their lines and the document's revision, by which they are registered once."""
    found = reflection.find_intents(memory["content"])[:MOST_ROUTINES] if memory else ()
    if memory is None or not found:
        return _block("intents", "")
    lines = "\n".join(f"- line {each.line}: {one_line(each.text, LONGEST_LINE)}" for each in found)
    return _block("intents", f"(MEMORY.md has revision {memory['revision']})\n{lines}")


def _warning(broken: Corruption | None) -> str:
    """The problem of a corrupted HEARTBEAT.md and its broken block; empty when it can be read."""
    if broken is None:
        return ""
    blocks = broken.blocks.strip()
    if len(blocks) > LONGEST_BLOCK:
        blocks = f"{blocks[:LONGEST_BLOCK]}\n[... the rest is in HEARTBEAT.md: use read_document]"
    return (
        f"\n\nHEARTBEAT.md (revision {broken.revision}) cannot be read: {broken.problem} Until it is repaired"
        " the routines are as they were, and new tasks in it are not done. Repair it now with the tool"
        " repair_heartbeat: pass that revision, and all tasks of the block below as they were meant."
        f"\n\n{_block('HEARTBEAT.md', blocks)}"
    )


def _block(name: str, text: str, kind: str = fence.DATA) -> str:
    return fence.fenced(name, text.strip() or "(none)", kind)


def _line(row: CronJob) -> str:
    what = one_line(f"{row.name}: {row.description}", LONGEST_LINE)
    plan = f"{routine_schedule_text(row) or 'once'}, {row.execution_mode}"
    state = f"next {_at(row)}" if row.enabled else "disabled by a person: leave it so"
    return f"- [{row.pk}] {what} ({plan}, {state})"


def _at(row: CronJob) -> str:
    following = _next(row)
    if following is None:
        return "never, it is done"
    return following.astimezone(zone_or_utc(row.timezone)).isoformat(" ", "minutes")


def _removed(row: Any) -> list[str]:
    return [
        f"- {one_line(title, LONGEST_LINE)} (removed by a person: do not register it again)"
        for title in (row.removed if row else ())
    ]
