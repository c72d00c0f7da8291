"""Which text and JSON columns hold what users or models wrote, and how a JSON column holds it.

Every column of every model is in `TEXTS`, in `SHAPES` or in `OTHERS`; `tests/injection/test_columns.py` sees to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.apps import apps
from django.db import models

TEXTS: dict[str, str] = {
    "admin.LogEntry": "object_repr change_message",
    "auth.User": "username first_name last_name email",
    "auth.Group": "name",
    "sessions_app.Agent": "model fallback_model events_url",
    "sessions_app.Connection": "base_url last_error",
    "sessions_app.Document": "content",
    "sessions_app.DocumentRevision": "content",
    "sessions_app.Session": "key chat_id title",
    "sessions_app.Turn": "content idempotency_key model error error_detail",
    "sessions_app.ConsentQuestion": "text",
    "sessions_app.Message": "content model_content",
    "sessions_app.Delivery": "session_key idempotency_key address reason last_error",
    "sessions_app.ExecutionState": "request goal question reply final_answer last_error revise",
    "sessions_app.ApiToken": "name",
    "sessions_app.Hook": "name address",
    "sessions_app.IdempotencyKey": "address key body location",
    "sessions_app.MailboxEvent": "source_key event_type summary detail dedupe_key",
    "sessions_app.TaskState": "current_goal active_flow last_decision",
    "sessions_app.TelegramBot": "username last_error",
    "sessions_app.TelegramChat": "name",
    "sessions_app.Preference": "content",
    "sessions_app.Process": "host",
    "sessions_app.Worker": "host",
    "automations.CronJob": "name message fault ping_url",
    "automations.ScheduledMessage": "message_text created_by_tool_call_id cancelled_by_tool_call_id last_error",
    "automations.RunRecord": "session_key rendered_prompt error error_detail response_summary",
}
# of automations that belong to no session; the database allows them there only
LEGACY = "description task_type imported_id session_key channel to"


def _calls(text: str) -> list[dict[str, Any]]:
    return [{"id": "c1", "name": text, "arguments": {text: text, "items": text, "a": [{text: text}]}}]


def _steps(text: str) -> list[dict[str, Any]]:
    about = {"id": "1", "type": "tool", "status": "running"}
    return [about | {"title": text, "tool": text, "arguments": {text: text}, "instruction": text}]


SHAPES: dict[str, Callable[[str], Any]] = {
    "sessions_app.Agent.mcp_servers": lambda text: {"docs": {"url": f"https://docs.invalid/{text}"}},
    "sessions_app.Connection.allowed_models": lambda text: [text],
    "sessions_app.Agent.allow_tools": lambda text: [text],
    "sessions_app.Session.channel_meta": lambda text: {text: text},
    "sessions_app.Session.last_route": lambda text: {"channel": "web", "chat_id": text, "meta": {text: text}},
    "sessions_app.Session.variables": lambda text: {text: text},
    "sessions_app.Turn.metadata": lambda text: {text: text, "via": {"name": text}},
    "sessions_app.TurnStep.data": lambda text: {text: text},
    "sessions_app.ConsentQuestion.calls": lambda text: [each | {"version": "v"} for each in _calls(text)],
    "sessions_app.Message.parts": lambda text: {
        "calls": _calls(text),
        "results": [{"id": "c1", "name": text, "outcome": "ok", "output": text}],
    },
    "sessions_app.Message.metadata": lambda text: {
        "source": {"kind": "automation", "name": text, "run_id": text},
        "automation_name": text,
        "automation_run_id": text,
        "via": {"name": text},
        "closure": "failed",
    },
    "sessions_app.Delivery.meta": lambda text: {text: text},
    "sessions_app.Event.content": lambda text: {text: text},
    "sessions_app.ExecutionState.steps": _steps,
    "sessions_app.ExecutionState.observations": lambda text: [{"kind": "note", "source": text, "text": text}],
    "sessions_app.Hook.allow_tools": lambda text: [text],
    "sessions_app.MailboxEvent.artifacts": lambda text: [{"name": text, "url": f"javascript:{text}"}],
    "sessions_app.Process.settings": lambda text: {"channels": text},
    "sessions_app.TaskState.open_loops": lambda text: [text],
    "sessions_app.TaskState.important_facts": lambda text: [text],
    "sessions_app.Worker.findings": lambda text: [{"level": "warning", "text": text}],
    "automations.RunRecord.snapshot": lambda text: {"message": text, "name": text, text: text},
    "automations.RunRecord.prompt_variables": lambda text: {text: text},
}
SHAPE_OF_LEGACY = {"channel_meta": lambda text: {text: text}}

_MADE_HERE = "made by the server"
_KNOWN = "one of the values that the server knows"
_SECRET = "a secret, a hash or a key, which no page shows"
_CHECKED = "parsed before it is stored, by a rule that leaves no room for markup"
OTHERS: dict[str, dict[str, str]] = {
    _MADE_HERE: {
        "admin.LogEntry": "object_id",
        "auth.Permission": "name codename",
        "contenttypes.ContentType": "app_label model",
        "sessions_app.Allowance": "key",
        "sessions_app.ApiToken": "id",
        "sessions_app.Turn": "origin_run usage error_code cancel_reason",
        "sessions_app.ConsentQuestion": "id execution",
        "sessions_app.ClientChat": "chat told",
        "sessions_app.ClientMessage": "path request_key news",
        "sessions_app.Counter": "name labels",
        "sessions_app.Event": "run_id source_type",
        "sessions_app.ExecutionState": "id origin source current_step question_id catalogue closed_by",
        "sessions_app.Hook": "id",
        "sessions_app.MailboxEvent": "reason",
        "sessions_app.Process": "address version",
        "sessions_app.Pruning": "name position",
        "sessions_app.TelegramChat": "partial_key",
        "sessions_app.Worker": "shards",
        "automations.CronJob": "id stranger system_event",
        "automations.RunRecord": "run_id reason prompt_ref usage",
        "automations.ScheduledMessage": "id",
        "automations.ZoneData": "name fingerprint",
    },
    _KNOWN: {
        "sessions_app.Agent": "engine",
        "sessions_app.ClientChat": "door",
        "sessions_app.Connection": "provider",
        "sessions_app.MessageImage": "media_type",
        "sessions_app.Document": "name",
        "sessions_app.Session": "type state channel chat_type reopens_as",
        "sessions_app.Turn": "kind lane on_busy state",
        "sessions_app.TurnStep": "kind",
        "sessions_app.ConsentQuestion": "state",
        "sessions_app.Message": "role",
        "sessions_app.Delivery": "channel state",
        "sessions_app.Event": "scope type",
        "sessions_app.ExecutionState": "status",
        "sessions_app.Process": "kind",
        "sessions_app.Hook": "channel",
        "automations.CronJob": "kind schedule_kind execution_mode overlap catch_up source",
        "automations.ScheduledMessage": "chat_type status",
        "automations.RunRecord": "state",
    },
    _SECRET: {
        "auth.User": "password",
        "sessions.Session": "session_key session_data",
        "sessions_app.ApiToken": "token_sha256 prefix",
        "sessions_app.StreamTicket": "ticket_sha256",
        "sessions_app.Agent": "signing_secret",
        "sessions_app.Document": "imported_digest",
        "sessions_app.Connection": "secret_ciphertext",
        "sessions_app.Hook": "token_sha256 token_salt",
        "sessions_app.IdempotencyKey": "body_sha256",
        "sessions_app.Process": "fingerprints",
        "sessions_app.SignInLink": "token_sha256",
        "sessions_app.TelegramBot": "token_ciphertext code_sha256",
    },
    _CHECKED: {
        "sessions_app.Agent": "name timezone heartbeat policy model_settings",
        "sessions_app.Connection": "name",
        "automations.CronJob": "expr timezone policy",
    },
    "of rows without a message; the admin shows it by the function that shows `meta`": {
        "sessions_app.Delivery": "event",
    },
    "on no page: the tables have no pages in the admin": {
        "axes.AccessFailureLog": "user_agent ip_address username http_accept path_info",
        "axes.AccessAttempt": "user_agent ip_address username http_accept path_info get_data post_data",
        "axes.AccessLog": "user_agent ip_address username http_accept path_info session_hash",
        "automations.RemovedRoutine": "title",
    },
}
# columns with such text that no page shows
UNSEEN = ("admin.LogEntry.object_repr",)  # the dashboard has no list of recent actions


def text_columns() -> Iterator[str]:
    """Every column of every model that can hold text."""
    kinds = (models.CharField, models.TextField, models.JSONField, models.GenericIPAddressField)
    for model in apps.get_models():
        for each in model._meta.concrete_fields:
            if isinstance(each, kinds):
                yield f"{model._meta.label}.{each.name}"


def listed(names: dict[str, str]) -> list[str]:
    """`Model.column` of each column named after its model."""
    return [f"{model}.{name}" for model, line in names.items() for name in line.split()]


def hostile_columns() -> list[str]:
    """The columns with text of users or models."""
    legacy = [f"automations.CronJob.{name}" for name in (*LEGACY.split(), *SHAPE_OF_LEGACY)]
    return [*listed(TEXTS), *SHAPES, *legacy]
