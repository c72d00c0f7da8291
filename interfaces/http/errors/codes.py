"""Error codes and their HTTP statuses: one table for responses and for the OpenAPI schema."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from agent_core.text.formats import status_phrase

PROBLEM = "application/problem+json"
ERRORS_PAGE = "/api/docs/errors/"

CODES: dict[int, tuple[str, ...]] = {  # the first code is used for errors that have only a status
    400: (
        "bad_request",
        *("bad_address", "bad_answer", "bad_channel_meta", "bad_chat_type", "bad_automation", "bad_catch_up"),
        *("bad_channel", "bad_cron", "bad_active_flow", "bad_current_goal", "bad_cursor"),
        *("bad_description", "bad_document", "bad_enabled", "bad_ends_at", "bad_allow_tools"),
        *(
            "bad_base_url",
            "bad_fallback_model",
            "bad_limits",
            "bad_model_settings",
            "bad_models",
            "bad_provider",
        ),
        *(
            "bad_engine",
            "bad_events_url",
            "bad_ping_url",
            "bad_execution_mode",
            "bad_heartbeat",
            "bad_idempotency_key",
            "bad_if_match",
            "bad_image",
        ),
        *("bad_important_facts", "bad_input", "bad_instructions", "bad_interval", "bad_jitter_seconds"),
        *("bad_key", "bad_last_decision", "bad_max_retry", "bad_max_runs", "bad_mcp_servers"),
        *("bad_message", "bad_model", "bad_name", "bad_on_busy", "bad_open_loops", "bad_overlap"),
        *(
            "bad_page_size",
            "bad_parameter",
            "bad_paused_until",
            "bad_range",
            "bad_skip",
            "bad_until",
            "bad_policy",
            "bad_limit",
            "bad_scopes",
            "bad_expires_at",
            "bad_routine_limit",
            "bad_run",
            "bad_schedule",
        ),
        *("bad_sender", "bad_source", "bad_task_type", "bad_thread", "bad_time", "bad_timeout_seconds"),
        *(
            "bad_secret",
            "bad_title",
            "bad_token",
            "bad_unified_session",
            "bad_webhook_id",
            "document_too_long",
            "empty_message",
            "empty_name",
        ),
        *("empty_text", "empty_title", "internal_session", "malformed_body", "message_too_long"),
        *(
            "missing_extra",
            "needs_person",
            "never_fires",
            "no_images",
            "no_workspace",
            "not_private",
            "not_editable",
            "past_at",
            "past_time",
        ),
        *(
            "reserved_key",
            "text_too_long",
            "unknown_timezone",
            "unknown_version",
            "unsupported_message",
            "unsupported_value",
        ),
    ),
    401: ("not_authenticated", "bad_signature", "stale_request"),
    403: ("permission_denied", "beyond_limit", "insufficient_scope", "owner_inactive"),
    404: ("not_found",),
    405: ("method_not_allowed",),
    406: ("not_acceptable",),
    408: ("body_timeout",),
    409: (
        "conflict",
        *(
            "agent_exists",
            "bot_exists",
            "bot_taken",
            "connection_exists",
            "connection_in_use",
            "duplicate_routine",
            "execution_ended",
            "history_diverged",
            "message_being_sent",
        ),
        *(
            "message_failed",
            "message_sent",
            "not_failed",
            "nothing_to_skip",
            "question_closed",
            "question_taken",
        ),
        *(
            "primary_session",
            "protected_job",
            "session_busy",
            "session_closed",
            "session_exists",
            "storage_full",
        ),
        *(
            "too_many_agents",
            "too_many_automations",
            "too_many_connections",
            "too_many_hooks",
            "too_many_routines",
            "too_many_scheduled_messages",
            "too_many_sessions",
            "too_many_tokens",
        ),
        *("telegram_away", "turn_ended"),
    ),
    412: ("revision_conflict",),
    413: ("too_large",),
    415: ("unsupported_media_type",),
    422: ("idempotency_mismatch",),
    429: ("throttled", "too_many_streams", "too_many_tickets", "too_many_waiting"),
    500: ("server_error", "pooled_connection", "secret_unreadable"),
    503: ("unavailable",),
}
STATUS = {code: status for status, codes in CODES.items() for code in codes}


def status_of(code: str) -> int:
    """The HTTP status of a domain error; 400 for codes that are not in the table."""
    return STATUS.get(code, 400)


def code_of(status: int) -> str:
    """The code of an error that has only a status."""
    return CODES.get(status, ("refused",))[0]


def type_of(code: str) -> str:
    """The URL of the documentation of a code; relative to the server unless RONDO_DOCS_URL is set."""
    return f"{settings.RONDO_DOCS_URL or ERRORS_PAGE}#{code}"


def problem_body(status: int, code: str, detail: str) -> dict[str, Any]:
    """`{type, title, status, code, detail}`, the body of each error of the API."""
    title = status_phrase(status)
    return {"type": type_of(code), "title": title, "status": status, "code": code, "detail": detail}
