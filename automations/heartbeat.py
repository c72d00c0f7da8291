"""Heartbeats: a look around at intervals, and at once what is due of the inline routines (rules 5.1 to 5.6).

The turn runs in the agent's heartbeat session, whose history is short. What it says is kept there; what is worth
telling is deposited in a mailbox, never written into a conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest

from agent_core import prompts
from agent_core.heartbeat import judge
from agent_core.types import Ending, TurnResult
from automations import runs, told
from automations.briefing import briefing
from automations.deterministic import TASKS_KEY, said
from automations.heartbeat_apply import corruption, heartbeat_prose
from automations.intents import intents
from automations.models import CronJob, ExecutionMode, ScheduleKind
from automations.slot_kind import SlotKind
from automations.zone_files import zone_or_utc
from sessions_app import flags, metrics
from sessions_app.kinds import Trigger
from sessions_app.lines import one_line
from sessions_app.metrics import Counted
from sessions_app.models import Agent, Document, Message, Session, Turn, TurnKind, TurnStep

CHECK, TASKS, LOOK = "heartbeat.check", "heartbeat.tasks", "heartbeat.look"
TOLD = "heartbeat_md_told"  # the revision of HEARTBEAT.md whose fault the agent was told of
HISTORY = 12  # messages that the next heartbeat is shown
MOST_ROUTINES = 50


class HeartbeatKind(SlotKind):
    """A heartbeat's turn: with tasks in its metadata it does them, without it looks around."""

    name = TurnKind.HEARTBEAT
    policy: Mapping[str, Any] = MappingProxyType({"timeout_seconds": 120})
    plans = False

    def trigger(self, turn: Turn) -> Trigger:
        """What is due, or what there is to reflect on."""
        said(turn)  # known before the model is asked: whether it has to do what a program could not
        agent = Agent.objects.get(sessions=turn.session_id)
        tasks, broken = turn.metadata.get(TASKS_KEY, ()), 0
        now = datetime.now(UTC).astimezone(zone_or_utc(agent.timezone))
        given = {"now": now.isoformat(" ", "minutes"), "timezone": agent.timezone}
        if tasks:
            prompt = prompts.render(TASKS, given | {"warning": turn.metadata.get("warning", "")})
        else:
            warning, broken = _warning(agent, Session.objects.get(pk=turn.session_id))
            around = _around(agent) | {"warning": warning}
            if flags.reflects():
                prompt = prompts.render(CHECK, given | around | {"intents": _intents(agent)})
            else:
                prompt = prompts.render(LOOK, given | around)
        titles = ", ".join(one_line(task["title"], 80) for task in tasks)
        return Trigger(
            content=f"Heartbeat: {titles}" if tasks else "Heartbeat",
            model_content=prompt.text,
            metadata={"prompt_ref": prompt.ref.to_json(), "run_id": turn.origin_run or None},
            source={"kind": "heartbeat", "id": "", "name": "Heartbeat", "run_id": turn.origin_run},
            template=prompt.to_json() | {TOLD: broken},
        )

    def said(self, turn: Turn) -> str | None:
        """What the tasks come to without any model; None: they need one."""
        return said(turn)

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """Each task's run shares the outcome; what is worth telling is told; the history stays short."""
        ended = runs.closed_all(turn, result, closure)
        session = Session.objects.select_related("agent").get(pk=turn.session_id)
        _shorten(session)
        if result.ending is Ending.SUCCEEDED:
            _note_warning(turn, session)
            _tell(turn, session, result.reply, closure)
        for run in ended:
            if run.is_final and result.ending is Ending.FAILED:
                text = f"{run.job.name}: {closure}"
                mail = told.mail_of(
                    turn, "routine_failed", text, about=run.pk, source_key=session.key, urgent=True
                )
                told.tell(run.job.home_id, session.agent_id, mail)


def _note_warning(turn: Turn, session: Session) -> None:
    step = TurnStep.objects.filter(turn=turn, n=0).first()
    broken = step.data["trigger"]["template"].get(TOLD, 0) if step else 0
    if broken:
        session.variables[TOLD] = broken
        Session.objects.filter(pk=session.pk).update(variables=session.variables)


def _tell(turn: Turn, session: Session, reply: str, closure: str) -> None:
    """Suppressed: kept in the heartbeat's own session only. Delivered: one mail, to each home of the tasks."""
    tasks = turn.metadata.get(TASKS_KEY, ())
    if turn.metadata.get("deterministic"):
        _tell_each(turn, session, reply)
        return
    verdict = judge(reply, session.agent.heartbeat["ack_max_chars"])
    text = verdict.text
    if not reply.strip() and tasks:
        text = closure
    elif not verdict.deliver:
        metrics.count(Counted.HEARTBEAT_SUPPRESS)
        return
    for home in dict.fromkeys(told.home_of(task) for task in tasks) or {None: None}:
        mail = told.mail_of(turn, "heartbeat_result", text, about=str(home), source_key=session.key)
        told.tell(home, session.agent_id, mail)
    metrics.count(Counted.HEARTBEAT_DELIVER)


def _tell_each(turn: Turn, session: Session, reply: str) -> None:
    homes = {task["run"]: told.home_of(task) for task in turn.metadata[TASKS_KEY]}
    for line in json.loads(reply):
        mail = told.mail_of(turn, "reminder", line["display"], about=line["id"], source_key=session.key)
        told.tell(homes[line["run"]], session.agent_id, mail)


def _shorten(session: Session) -> None:
    """The window begins with a turn, so that no tool call in it is without its beginning."""
    begin = (
        Message.objects.filter(session=session, role="user", seq__gt=session.last_seq - HISTORY)
        .order_by("seq")
        .values_list("seq", flat=True)
        .first()
    )
    if begin is not None:
        Session.objects.filter(pk=session.pk).update(window_from_seq=Greatest(F("window_from_seq"), begin))


def _around(agent: Agent) -> dict[str, str]:
    """What a reflection looks at: routines, ended one-shots, the briefing, and HEARTBEAT.md's own words."""
    routines = CronJob.objects.filter(agent=agent).exclude(execution_mode=ExecutionMode.SESSION)
    rows = list(routines.select_related("clock").order_by("-created_at", "pk")[:MOST_ROUTINES])
    done = [row for row in rows if row.schedule_kind == ScheduleKind.AT and row.clock.next_run_at is None]
    listed = [row for row in rows if row not in done]
    return {
        "routines": "\n".join(_line(row) for row in listed) or "(none)",
        "finished": "\n".join(_line(row) for row in done) or "(none)",
        "briefing": briefing(agent),
        "notes": _shown(heartbeat_prose(agent.pk)) or "(none)",
    }


def _intents(agent: Agent) -> str:
    """What MEMORY.md is marked with: each becomes a routine once, by its line and the document's revision."""
    memory = Document.objects.filter(agent=agent, name="MEMORY.md").first()
    found = intents(memory.content)[:MOST_ROUTINES] if memory else ()
    if memory is None or not found:
        return "(none)"
    lines = "\n".join(f"- line {each.line}: {_shown(one_line(each.text, 200))}" for each in found)
    return f"(MEMORY.md has revision {memory.revision})\n{lines}"


def _warning(agent: Agent, session: Session) -> tuple[str, int]:
    """What is wrong with HEARTBEAT.md, once for each of its revisions; and that revision, 0 for nothing."""
    broken = corruption(agent.pk)
    if broken is None or session.variables.get(TOLD) == broken.revision:
        return "", 0
    text = (
        f"\n\nHEARTBEAT.md cannot be read: {broken.problem} The routines below are as they were. Mend it: a change"
        " of any routine with your routine tools writes it anew."
    )
    return text, broken.revision


def _shown(text: str) -> str:
    return prompts.inside_block(text.strip())


def _line(row: CronJob) -> str:
    state = "" if row.enabled else " (disabled)"
    what = prompts.inside_block(one_line(f"{row.name}: {row.description}", 200))
    return f"- [{row.pk}] {what}{state}"
