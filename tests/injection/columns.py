"""Which text and JSON columns hold what users or models wrote, and how a JSON column holds it.

A column that is neither in `OTHERS` nor in `SHAPES` holds plain text of theirs, also one that was added just now.
"""

import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from django.apps import apps
from django.db import models

ATTACHED = [uuid.UUID(int=number + 1) for number in range(8)]  # files of every message
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
        "files": [str(each) for each in ATTACHED],
    },
    "sessions_app.Delivery.meta": lambda text: {text: text},
    "sessions_app.Event.content": lambda text: {text: text},
    "sessions_app.ExecutionState.steps": _steps,
    "sessions_app.ExecutionState.observations": lambda text: [{"kind": "note", "source": text, "text": text}],
    "sessions_app.Hook.allow_tools": lambda text: [text],
    "sessions_app.MailboxEvent.artifacts": lambda text: [{"name": text, "url": f"javascript:{text}"}],
    "sessions_app.TaskState.open_loops": lambda text: [text],
    "sessions_app.TaskState.important_facts": lambda text: [text],
    "automations.RunRecord.snapshot": lambda text: {"message": text, "name": text, text: text},
    "automations.RunRecord.prompt_variables": lambda text: {text: text},
}
SHAPE_OF_LEGACY = {"channel_meta": lambda text: {text: text}}

# made by the server, one of the values that it knows, a secret or its hash, or checked by a rule that leaves no room
# for markup; removed routines have no pages, and `event` is of deliveries without a message
OTHERS = {
    "admin.LogEntry": "object_id",
    "auth.Permission": "name codename",
    "auth.User": "password",
    "automations.CronJob": "id stranger system_event kind schedule_kind execution_mode overlap catch_up source"
    " expr timezone except_holidays policy allow_tools gate limits",
    "automations.JobClock": "moved",
    "automations.JobHealth": "told paused_reason",
    "automations.JobPreflight": "problems",
    "automations.RemovedRoutine": "title",
    "automations.RunRecord": "run_id reason prompt_ref usage state attention gate_seen cap",
    "automations.ScheduledMessage": "id chat_type status",
    "automations.ToldCause": "cause",
    "automations.ZoneData": "name fingerprint",
    "sessions_app.Agent": "engine signing_secret name timezone heartbeat policy model_settings limits",
    "sessions_app.Allowance": "key",
    "sessions_app.ApiToken": "id token_sha256 prefix",
    "sessions_app.Attachment": "media_type",
    "sessions_app.CalendarAddress": "token_sha256",
    "sessions_app.ClientChat": "chat told door",
    "sessions_app.ClientMessage": "path request_key news",
    "sessions_app.Connection": "provider secret_ciphertext name limits prices",
    "sessions_app.ConsentQuestion": "id execution state run same_call closed_because",
    "sessions_app.Counter": "name labels",
    "sessions_app.Delivery": "channel state event",
    "sessions_app.Document": "name imported_digest",
    "sessions_app.Event": "run_id source_type scope type",
    "sessions_app.ExecutionState": "id origin source current_step question_id catalogue closed_by status",
    "sessions_app.Hook": "id channel token_sha256 token_salt",
    "sessions_app.IdempotencyKey": "body_sha256",
    "sessions_app.Invitation": "token_sha256",
    "sessions_app.MailboxEvent": "reason",
    "sessions_app.Message": "role",
    "sessions_app.Process": "address version kind",
    "sessions_app.Pruning": "name position",
    "sessions_app.PushSubscription": "name endpoint key secret server_key",
    "sessions_app.Session": "type state channel chat_type reopens_as",
    "sessions_app.SignInLink": "token_sha256",
    "sessions_app.StreamTicket": "ticket_sha256",
    "sessions_app.TelegramBot": "token_ciphertext code_sha256",
    "sessions_app.TelegramChat": "partial_key",
    "sessions_app.Turn": "origin_run usage error_code cancel_reason kind lane on_busy state",
    "sessions_app.TurnStep": "kind",
    "sessions_app.UserLimits": "limits",
    "sessions_app.UserSettings": "timezone notify_mail",
    "sessions_app.Worker": "shards",
}
WITHOUT_PAGES = ("axes", "contenttypes", "sessions")  # apps of others
# columns with such text that no page shows
# the dashboard has no list of recent actions; the text of a file is for models
UNSEEN = ("admin.LogEntry.object_repr", "sessions_app.Attachment.text")


def text_columns() -> Iterator[str]:
    """Every column of every model that can hold text."""
    kinds = (models.CharField, models.TextField, models.JSONField, models.GenericIPAddressField)
    for model in (each for each in apps.get_models() if each._meta.app_label not in WITHOUT_PAGES):
        for each in model._meta.concrete_fields:
            if isinstance(each, kinds):
                yield f"{model._meta.label}.{each.name}"


def listed(names: dict[str, str]) -> list[str]:
    """`Model.column` of each column named after its model."""
    return [f"{model}.{name}" for model, line in names.items() for name in line.split()]


LEGACY_COLUMNS = [f"automations.CronJob.{name}" for name in (*LEGACY.split(), *SHAPE_OF_LEGACY)]


@cache
def written_columns() -> dict[str, list[str]]:
    """By model, the columns with text of users or models in rows of any kind."""
    known = {*listed(OTHERS), *LEGACY_COLUMNS}
    found: dict[str, list[str]] = {}
    for each in text_columns():
        if each not in known:
            label, _, column = each.rpartition(".")
            found.setdefault(label, []).append(column)
    return found


def hostile_columns() -> list[str]:
    """The columns with text of users or models."""
    return [
        f"{label}.{name}" for label, names in written_columns().items() for name in names
    ] + LEGACY_COLUMNS
