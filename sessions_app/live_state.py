"""The live state that lies here: documents and the agent's own settings."""

from __future__ import annotations

from agent_core.planner import live
from agent_core.planner.live import LiveState
from sessions_app.models import Document
from sessions_app.tools import ToolContext


def documents(context: ToolContext) -> str:
    """Names, revisions and sizes; what stands in them is in the system prompt, or read with a tool."""
    rows = Document.objects.filter(agent=context.agent).exclude(content="").order_by("name")
    return "\n".join(f"{row.name}: revision {row.revision}, {len(row.content)} characters" for row in rows)


def settings(context: ToolContext) -> str:
    """What people may know of an agent, and no key of anything."""
    agent = context.agent
    agent.refresh_from_db()  # a plan may take its time
    beat = agent.heartbeat
    hours = "-".join(map(str, beat["active_hours"]))
    pulse = f"every {beat['interval_seconds']} s, active hours {hours}" if beat["enabled"] else "off"
    return (
        f"name: {agent.name}\nmodel: {agent.effective_model}\ntime zone: {agent.timezone}\n"
        f"unified session: {'on' if agent.unified_session else 'off'}\nheartbeat: {pulse}"
    )


def register() -> None:
    """Make them known."""
    live.register(
        LiveState(
            name="documents",
            words=("document", "documents", "memory.md", "user.md", "skills.md", "agents.md", "文档"),
            read=documents,
        )
    )
    live.register(
        LiveState(
            name="settings",
            words=(
                *("setting", "settings", "configuration", "config", "time zone", "timezone", "heartbeat"),
                *("which model", "what model", "your model", "设置", "配置", "时区", "心跳"),
            ),
            read=settings,
        )
    )
