"""Live state of an agent's documents and settings."""

from __future__ import annotations

from agent_core.planner import live
from agent_core.planner.live import LiveState
from sessions_app.models import Document
from sessions_app.turns.tool_calls import ToolContext


def documents_snapshot(context: ToolContext) -> str:
    """List names, revisions and sizes. The texts are in the system prompt, or read with a tool."""
    rows = Document.objects.filter(agent=context.agent).exclude(content="").order_by("name")
    return "\n".join(f"{row.name}: revision {row.revision}, {len(row.content)} characters" for row in rows)


def settings_snapshot(context: ToolContext) -> str:
    """Describe the agent's settings, without secrets."""
    agent = context.agent
    agent.refresh_from_db()  # they may have changed since the turn began
    beat = agent.heartbeat
    hours = "-".join(map(str, beat["active_hours"]))
    pulse = f"every {beat['interval_seconds']} s, active hours {hours}" if beat["enabled"] else "off"
    return (
        f"name: {agent.name}\nmodel: {agent.effective_model}\ntime zone: {agent.timezone}\n"
        f"unified session: {'on' if agent.unified_session else 'off'}\nheartbeat: {pulse}"
    )


def register_agent_live_state() -> None:
    """Register both kinds of live state."""
    live.register(
        LiveState(
            name="documents",
            words=("document", "documents", "memory.md", "user.md", "skills.md", "agents.md", "文档"),
            things=("memory.md", "user.md", "skills.md", "agents.md"),
            read=documents_snapshot,
        )
    )
    live.register(
        LiveState(
            name="settings",
            words=(
                *("setting", "settings", "configuration", "config", "time zone", "timezone", "heartbeat"),
                *("which model", "what model", "your model", "设置", "配置", "时区", "心跳"),
            ),
            things=(
                *("your model", "unified session", "the heartbeat", "your heartbeat", "heartbeat interval"),
                *("心跳间隔", "心跳已", "心跳未"),
            ),  # not "heartbeat" alone: people have one too
            read=settings_snapshot,
        )
    )
