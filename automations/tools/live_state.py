"""The live state of this app: the conversation's automations and scheduled messages, the agent's routines."""

from __future__ import annotations

from django.db.models import Exists

from agent_core.planner.live import LiveState
from automations.models import CronJob, ExecutionMode, ScheduledMessage
from automations.scheduled_messages import MOST_WAITING, cancellable_messages, local_iso, unclaimed_turns
from automations.tools import cron_reads
from automations.tools import routines as routine_tools
from sessions_app.models import Agent
from sessions_app.single_line import one_line
from sessions_app.turns.tool_calls import ToolContext

AUTOMATIONS, ROUTINES, MESSAGES = "automations", "routines", "scheduled messages"
LONGEST_TEXT = 200  # characters of a scheduled message
# "remind me what she said" asks for memory, and mentions no appointment
REMIND_ME = tuple(
    f"remind {whom} {what}"
    for whom in ("me", "us")
    for what in ("to", "at", "on", "in", "every", "each", "daily", "today", "tonight", "tomorrow", "next")
)


def waiting_messages(context: ToolContext) -> str:
    """The scheduled messages that wait in the chat, the next one first, one line each."""
    rows = cancellable_messages(context.session.pk).order_by("send_at", "pk")
    return "\n".join(
        f"- {row.pk} {local_iso(row.send_at, context.agent.timezone)}: {one_line(row.message_text, LONGEST_TEXT)}"
        for row in rows[:MOST_WAITING]
    )


def existing_kinds(context: ToolContext) -> tuple[str, ...]:
    """The kinds of which the conversation has at least one row, by one statement."""
    jobs = CronJob.objects.filter(session=context.session)
    routines = CronJob.objects.filter(agent=context.agent).exclude(execution_mode=ExecutionMode.SESSION)
    waiting = ScheduledMessage.objects.waiting().filter(session=context.session)
    found = (
        Agent.objects.filter(pk=context.agent.pk)
        .values_list(
            Exists(jobs), Exists(routines), Exists(waiting), Exists(unclaimed_turns(context.session.pk))
        )
        .first()
    )
    names = (AUTOMATIONS, ROUTINES, MESSAGES, MESSAGES)
    return tuple(dict.fromkeys(name for name, is_there in zip(names, found or (), strict=False) if is_there))


# not "is scheduled": that may be said of anything
SCHEDULED = (
    *("what's scheduled", "what is scheduled", "anything scheduled", "do i have scheduled"),
    *("have i scheduled", "set an alarm", "set the alarm", "my alarms", "wake me", "个闹钟"),
)

KINDS = (
    LiveState(
        name=AUTOMATIONS,
        words=(
            *("automation", "automations", "cron", "cron job", "cron jobs", "reminder", "reminders"),
            *("schedule", "schedules", "appointment", "appointments", *REMIND_ME, *SCHEDULED),
            *("自动化", "定时任务", "提醒", "日程"),
        ),
        things=(
            *("automation", "automations", "cron", "cron job", "cron jobs", "reminder", "reminders"),
            *("自动化", "定时任务", "提醒"),
        ),
        read=cron_reads.list_automations,
    ),
    LiveState(
        name=ROUTINES,
        words=("routine", "routines", "background job", "background jobs", "例行", "后台任务"),
        things=("background job", "background jobs", "后台任务"),
        read=lambda context: routine_tools.list_routines(context, disabled_too=True),
    ),
    LiveState(
        name=MESSAGES,
        # a reminder may be a message or an automation, so both are read
        words=(
            *("scheduled message", "scheduled messages", "scheduled text", "scheduled texts"),
            *("reminder", "reminders", "schedule", "schedules", "will send", *REMIND_ME, *SCHEDULED),
            *("定时消息", "定时发送", "提醒"),
        ),
        things=(
            *("scheduled message", "scheduled messages", "scheduled text", "scheduled texts"),
            *("定时消息", "定时发送"),
        ),
        read=waiting_messages,
    ),
)
