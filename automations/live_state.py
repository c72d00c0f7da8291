"""The live state that lies here: the conversation's automations and scheduled messages, the agent's routines."""

from __future__ import annotations

from agent_core.planner import live
from agent_core.planner.live import LiveState
from automations import message_tools, routine_tools, tools


def register() -> None:
    """Make them known."""
    live.register(
        LiveState(
            name="automations",
            words=(
                *("automation", "automations", "cron", "cron job", "cron jobs", "reminder", "reminders"),
                *("schedule", "schedules", "appointment", "appointments"),
                *("自动化", "定时任务", "提醒", "日程"),
            ),
            read=tools.listed,
        )
    )
    live.register(
        LiveState(
            name="routines",
            words=("routine", "routines", "background job", "background jobs", "例行", "后台任务"),
            read=lambda context: routine_tools.listed(context, disabled_too=True),
        )
    )
    live.register(
        LiveState(
            name="scheduled messages",
            # of a reminder nobody knows whether it is a message or an automation: both are looked at
            words=(
                *("scheduled message", "scheduled messages", "scheduled text", "scheduled texts"),
                *("reminder", "reminders", "schedule", "schedules", "will send"),
                *("定时消息", "定时发送", "提醒"),
            ),
            read=message_tools.listed,
        )
    )
